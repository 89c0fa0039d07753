"""Names as Kafka gives them, both ways."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglog.format.filenames import (
    JAVA_NUMBER,
    FileKind,
    FileName,
    FileState,
    PartitionDirectoryName,
    PartitionState,
    format_file_name,
    format_partition_directory,
    parse_file_name,
    parse_partition_directory,
    parse_topic_partition,
    segment_file_name,
    topic_name_problem,
)
from seglog.model import TopicPartition

HEX = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("00000000000000000000.log", FileName(0, FileKind.LOG)),
        ("00000000000000000042.index", FileName(42, FileKind.OFFSET_INDEX)),
        ("00000000000000000042.timeindex.swap", FileName(42, FileKind.TIME_INDEX, FileState.SWAP)),
        (
            "00000000000000000042.txnindex.cleaned",
            FileName(42, FileKind.TRANSACTION_INDEX, FileState.CLEANED),
        ),
        (
            "00000000000000000042.snapshot.deleted",
            FileName(42, FileKind.PRODUCER_SNAPSHOT, FileState.DELETED),
        ),
        ("00000000000000000042.kafka", FileName(42, FileKind.LOG_07)),
        ("09223372036854775807.log", FileName(2**63 - 1, FileKind.LOG)),
        (
            "00000000000000000123-0000000004.checkpoint",
            FileName(123, FileKind.METADATA_SNAPSHOT, epoch=4),
        ),
        (
            "00000000000000000123-0000000004.checkpoint.part",
            FileName(123, FileKind.METADATA_SNAPSHOT, FileState.PARTIAL, 4),
        ),
        (
            "00000000000000000123-0000000004.checkpoint.deleted",
            FileName(123, FileKind.METADATA_SNAPSHOT, FileState.DELETED, 4),
        ),
    ],
)
def test_file_names_parse_and_format(name: str, expected: FileName) -> None:
    assert parse_file_name(name) == expected
    assert str(expected) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "42.log",
        "0000000000000000004\uff12.log",
        "00000000000000000042",
        "00000000000000000042.log.bak",
        "00000000000000000042.log.deleted.deleted",
        "00000000000000000042.log\n",
        "x00000000000000000042.log",
        "99999999999999999999.log",
        "00000000000000000042.checkpoint",
        "00000000000000000042-0000000004.log",
        "00000000000000000042-9999999999.checkpoint",
        "-0000000000000000042.log",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ],
)
def test_names_kafka_never_gives_are_none(name: str) -> None:
    assert parse_file_name(name) is None


@given(
    st.builds(
        FileName,
        st.integers(0, 2**63 - 1),
        st.sampled_from([kind for kind in FileKind if kind is not FileKind.METADATA_SNAPSHOT]),
        st.sampled_from(FileState),
    )
    | st.builds(
        FileName,
        st.integers(0, 2**63 - 1),
        st.just(FileKind.METADATA_SNAPSHOT),
        st.sampled_from(FileState),
        st.integers(0, 2**31 - 1),
    )
)
def test_every_file_name_round_trips(name: FileName) -> None:
    assert parse_file_name(format_file_name(name)) == name


@given(st.text() | st.from_regex(r"[0-9]{19,21}(-[0-9]{9,11})?(\.[a-z]{1,10}){0,3}", fullmatch=True))
def test_what_parses_formats_to_the_same_name(name: str) -> None:
    parsed = parse_file_name(name)
    assert parsed is None or str(parsed) == name


def test_numbers_that_cannot_be_in_a_name_are_refused() -> None:
    for offset in (-1, 2**63):
        with pytest.raises(ValueError, match="offset"):
            segment_file_name(offset)
    for epoch in (None, -1, 2**31):
        with pytest.raises(ValueError, match="epoch"):
            format_file_name(FileName(1, FileKind.METADATA_SNAPSHOT, epoch=epoch))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orders-0", PartitionDirectoryName(TopicPartition("orders", 0))),
        ("a-b.c_d-12", PartitionDirectoryName(TopicPartition("a-b.c_d", 12))),
        ("topic--1", PartitionDirectoryName(TopicPartition("topic-", 1))),
        ("__cluster_metadata-0", PartitionDirectoryName(TopicPartition("__cluster_metadata", 0))),
        (
            f"orders-3.{HEX}-delete",
            PartitionDirectoryName(TopicPartition("orders", 3), PartitionState.DELETED, HEX),
        ),
        (f"a.b-3.{HEX}-stray", PartitionDirectoryName(TopicPartition("a.b", 3), PartitionState.STRAY, HEX)),
        (f"a.b-3.{HEX}-future", PartitionDirectoryName(TopicPartition("a.b", 3), PartitionState.FUTURE, HEX)),
        ("topic-1-delete", None),
        ("topic-delete-1", PartitionDirectoryName(TopicPartition("topic-delete", 1))),
    ],
)
def test_directory_names_parse_and_format(name: str, expected: PartitionDirectoryName | None) -> None:
    assert parse_partition_directory(name) == expected
    assert expected is None or str(expected) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "-",
        "-0",
        "foo",
        "foo-",
        "foo-x",
        "lost+found",
        "foo-+1",
        "foo-2147483648",
        "foo bar-0",
        ".-0",
        "..-0",
        "foo-0\n",
        f"foo.{HEX}-delete",
        f"foo-x.{HEX}-delete",
        "foo-\u0663",
        "a" * 250 + "-0",
    ],
)
def test_other_directories_are_none(name: str) -> None:
    assert parse_partition_directory(name) is None


def test_leading_zeros_of_a_partition_are_accepted_as_kafka_does() -> None:
    parsed = parse_partition_directory("orders-007")
    assert parsed is not None
    assert parsed.topic_partition == TopicPartition("orders", 7)


def test_the_topic_of_a_deleted_or_stray_directory_is_cut_to_255_characters() -> None:
    longest = TopicPartition("t" * 249, 12)
    for state in (PartitionState.DELETED, PartitionState.STRAY):
        name = format_partition_directory(PartitionDirectoryName(longest, state, HEX))
        assert len(name) == 255
        assert name.endswith(f"-12.{HEX}{state.value}")
        parsed = parse_partition_directory(name)
        assert parsed is not None
        assert (parsed.topic_partition.partition, parsed.state) == (12, state)
    future = format_partition_directory(PartitionDirectoryName(longest, PartitionState.FUTURE, HEX))
    assert future.startswith("t" * 249 + "-12.")


@given(
    topic=st.from_regex(r"[a-zA-Z0-9._-]{1,200}", fullmatch=True).filter(lambda topic: topic not in (".", "..")),
    partition=st.integers(0, 2**31 - 1),
    state=st.sampled_from(PartitionState),
)
def test_every_directory_name_round_trips(topic: str, partition: int, state: PartitionState) -> None:
    unique = "" if state is PartitionState.LIVE else HEX
    name = PartitionDirectoryName(TopicPartition(topic, partition), state, unique)
    assert parse_partition_directory(str(name)) == name


@given(st.text())
def test_any_text_parses_or_not_but_never_raises(name: str) -> None:
    parse_topic_partition(name)
    parse_partition_directory(name)


@pytest.mark.parametrize("topic", ["a", "a" * 249, "A.b_c-9", "...", "__consumer_offsets"])
def test_a_legal_topic_name_has_no_problem(topic: str) -> None:
    assert topic_name_problem(topic) is None


@pytest.mark.parametrize("topic", ["", ".", "..", "a" * 250, "a b", "ä", "a/b", "a\n"])
def test_illegal_topic_names_have_a_reason(topic: str) -> None:
    assert topic_name_problem(topic)


def test_numbers_in_names_are_those_that_java_takes_digits_of_other_scripts_too() -> None:
    taken = ("5", "+5", "-5", "007", "\N{ARABIC-INDIC DIGIT FIVE}", "\N{FULLWIDTH DIGIT FIVE}")
    refused = ("", "+", "5\n", " 5", "1_0", "\N{SUPERSCRIPT TWO}", "\N{MATHEMATICAL BOLD DIGIT FIVE}", "5.0")
    assert [text for text in (*taken, *refused) if JAVA_NUMBER.fullmatch(text)] == list(taken)
