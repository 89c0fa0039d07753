"""Kafka's text files: what Kafka writes comes back, what Kafka refuses is refused with the line."""

from __future__ import annotations

import random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglog.errors import CorruptCheckpointError
from seglog.format.checkpoint import (
    CheckpointEndsError,
    CheckpointNumberError,
    EpochEntry,
    MetaProperties,
    OffsetLines,
    PartitionMetadata,
    UnforeseenByKafkaError,
    format_clean_shutdown,
    format_leader_epochs,
    format_meta_properties,
    format_offset_checkpoint,
    format_partition_metadata,
    parse_clean_shutdown,
    parse_leader_epochs,
    parse_meta_properties,
    parse_offset_checkpoint,
    parse_partition_metadata,
)
from seglog.format.properties import format_properties, parse_properties
from seglog.format.uuids import format_uuid, parse_uuid
from seglog.model import TopicPartition

PATH = "dir/checkpoint"
OFFSETS = st.dictionaries(
    st.builds(TopicPartition, st.from_regex(r"[a-zA-Z0-9._-]{1,30}", fullmatch=True), st.integers(0, 2**31 - 1)),
    st.integers(-(2**63), 2**63 - 1),
)
EPOCHS = st.lists(st.builds(EpochEntry, st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)))
TOPIC_ID = parse_uuid("plCTISI6QfqVJ920uxzSVQ")


def test_offset_checkpoints_are_as_kafka_writes_them() -> None:
    offsets = {TopicPartition("compacted", 1): 77, TopicPartition("compacted", 0): 1042}
    assert format_offset_checkpoint(offsets) == b"0\n2\ncompacted 0 1042\ncompacted 1 77\n"
    assert parse_offset_checkpoint(b"0\n2\ncompacted 0 1042\ncompacted 1 77\n", PATH) == offsets
    assert format_offset_checkpoint({}) == b"0\n0\n"


def test_leader_epochs_are_as_kafka_writes_them() -> None:
    entries = (EpochEntry(0, 0), EpochEntry(5, 120))
    assert format_leader_epochs(entries) == b"0\n2\n0 0\n5 120\n"
    assert parse_leader_epochs(b"0\n2\n0 0\n5 120\n", PATH) == entries


def test_an_empty_file_has_no_entries() -> None:
    assert parse_offset_checkpoint(b"", PATH) == {}
    assert parse_leader_epochs(b"", PATH) == ()


@given(OFFSETS)
def test_offsets_round_trip(offsets: dict[TopicPartition, int]) -> None:
    assert parse_offset_checkpoint(format_offset_checkpoint(offsets), PATH) == offsets


def test_lines_of_which_single_ones_change_are_those_that_are_formatted_at_once() -> None:
    chance, offsets = random.Random(3), dict[TopicPartition, int]()
    lines = OffsetLines(offsets)
    for _ in range(300):
        key = TopicPartition(chance.choice(["a", "b", "b-1", "", "not fit"]), chance.randrange(12))
        offset = chance.choice([None, 0, chance.randrange(1 << 40)])
        lines.put(key, offset)
        offsets.pop(key, None)
        offsets |= {} if offset is None else {key: offset}
        assert lines.data() == format_offset_checkpoint(offsets)


@given(EPOCHS)
def test_epochs_round_trip(entries: list[EpochEntry]) -> None:
    assert parse_leader_epochs(format_leader_epochs(entries), PATH) == tuple(entries)


@pytest.mark.parametrize(
    "data",
    [
        b"0\r\n1\r\na 0 5\r\n",
        b"0\r1\ra 0 5",
        b"0\n1\na 0 5",
        b"0\n1\na \t 0  5  \n",
        b"0\n1\na +0 +5\n",
        b"+0\n01\na 00 05\n",
    ],
)
def test_what_java_reads_leniently_is_read(data: bytes) -> None:
    assert parse_offset_checkpoint(data, PATH) == {TopicPartition("a", 0): 5}


def test_of_a_partition_listed_twice_the_last_holds() -> None:
    assert parse_offset_checkpoint(b"0\n2\na 0 5\na 0 6\n", PATH) == {TopicPartition("a", 0): 6}


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"1\n0\n", 1),
        (b"x\n0\n", 1),
        (b"\n0\n", 1),
        (b" 0\n0\n", 1),
        (b"0\nx\n", 2),
        (b"0\n2\na 0 5\n", 2),
        (b"0\n0\na 0 5\n", 2),
        (b"0\n1\na 0\n", 3),
        (b"0\n1\na 0 5 6\n", 3),
        (b"0\n1\n a 0 5\n", 3),
        (b"0\n2\na 0 5\n\n", 4),
        (b"0\n0\n\n", 3),
        (b"\x00" * 40, 1),
        (b"0\n1\na\x93 0 5\n", 3),
        (b"\xff0\n0\n", 1),
    ],
)
def test_malformed_checkpoints_name_the_line(data: bytes, line: int) -> None:
    with pytest.raises(CorruptCheckpointError, match=f"{PATH}: line {line}:") as caught:
        parse_offset_checkpoint(data, PATH)
    assert not isinstance(caught.value, CheckpointNumberError)


def test_a_topic_that_is_not_utf8_is_left_out_as_no_broker_would_read_the_rest() -> None:
    offsets = {TopicPartition("a", 0): 5, TopicPartition("\udcff", 0): 6}
    assert parse_offset_checkpoint(format_offset_checkpoint(offsets), PATH) == {TopicPartition("a", 0): 5}


@pytest.mark.parametrize("entry", [b"a x 5", b"a 0 y", b"a 2147483648 5", b"a 0 9223372036854775808", b"a 0 1.5"])
def test_fields_that_are_not_numbers_raise_their_own_error_as_in_kafka(entry: bytes) -> None:
    with pytest.raises(CheckpointNumberError, match=f"{PATH}: line 3:"):
        parse_offset_checkpoint(b"0\n1\n" + entry + b"\n", PATH)


def test_a_number_of_entries_below_0_is_nothing_that_kafka_foresees() -> None:
    for parse in (parse_offset_checkpoint, parse_leader_epochs):
        with pytest.raises(CheckpointNumberError, match=f"{PATH}: line 2: -1 entries"):
            parse(b"0\n-1\n", PATH)


@pytest.mark.parametrize("data", [b"0", b"0\n"])
def test_a_checkpoint_that_ends_after_its_version_is_empty_to_kafka(data: bytes) -> None:
    assert parse_leader_epochs(data, PATH) == ()
    with pytest.raises(CheckpointEndsError, match=f"{PATH}: line 2: the number of entries is missing"):
        parse_offset_checkpoint(data, PATH)


@pytest.mark.parametrize(
    ("data", "foreseen"),
    [
        (b"", False),
        (b"version: 0", False),
        (b"version: 0\ntopic_id: nonsense", False),
        (b"version: x\ntopic_id: nonsense", True),
        (b"version: -1", True),
        (b"version 0", True),
        (b"version:0\n", True),
        (b"version: 0\n\n", True),
        (b"version: 0\ntopic_id: \n", True),
        (b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", True),
        (b"version: 0\nt\x93pic_id: c2VnbG9nAH4AAAEAAAAAdA", True),
    ],
)
def test_damage_to_partition_metadata_is_classified_as_in_kafka(data: bytes, foreseen: bool) -> None:
    with pytest.raises(CorruptCheckpointError) as caught:
        parse_partition_metadata(data, PATH)
    assert isinstance(caught.value, UnforeseenByKafkaError) is not foreseen


def test_a_number_of_many_digits_is_an_error_and_takes_no_time() -> None:
    with pytest.raises(CheckpointNumberError):
        parse_offset_checkpoint(b"0\n1\na 0 " + b"9" * 100_000, PATH)


@given(st.binary() | st.from_regex(rb"0\n[0-9]\n([a-z0-9 \t\r\n-]{0,12}\n){0,3}", fullmatch=True))
def test_random_bytes_raise_only_the_documented_error(data: bytes) -> None:
    for parse in (
        parse_offset_checkpoint,
        parse_leader_epochs,
        parse_partition_metadata,
        parse_meta_properties,
    ):
        try:
            parse(data, PATH)  # type: ignore[operator]
        except CorruptCheckpointError as error:
            assert str(error).startswith(PATH)
    parse_clean_shutdown(data)


class TestPartitionMetadata:
    TEXT = b"version: 0\ntopic_id: plCTISI6QfqVJ920uxzSVQ"

    def test_is_as_kafka_writes_it(self) -> None:
        assert format_partition_metadata(PartitionMetadata(TOPIC_ID)) == self.TEXT
        assert parse_partition_metadata(self.TEXT, PATH) == PartitionMetadata(TOPIC_ID)

    def test_later_versions_and_other_names_are_read(self) -> None:
        data = b"v:   3\r\nid: plCTISI6QfqVJ920uxzSVQ\nmore\n"
        assert parse_partition_metadata(data, PATH) == PartitionMetadata(TOPIC_ID, 3)

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"version: 0",
            b"version: -1\ntopic_id: plCTISI6QfqVJ920uxzSVQ",
            b"version:0\ntopic_id: x",
            b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
            b"version: 0\ntopic_id: short",
            b"\n\n",
            b"version: 0\ntopic_id: plCTISI6QfqVJ920uxzSVQ: x",
        ],
    )
    def test_malformed_files_are_errors(self, data: bytes) -> None:
        with pytest.raises(CorruptCheckpointError):
            parse_partition_metadata(data, PATH)

    @given(st.uuids().filter(lambda value: value.int != 0), st.integers(0, 2**31 - 1))
    def test_round_trip(self, topic_id: UUID, version: int) -> None:
        metadata = PartitionMetadata(topic_id, version)
        assert parse_partition_metadata(format_partition_metadata(metadata), PATH) == metadata


class TestMetaProperties:
    def test_a_file_of_kafka_4_is_read(self) -> None:
        data = (
            b"#\n#Sat Nov 21 01:58:33 UTC 2026\nnode.id=1\ndirectory.id=z85HBq-9MeBv_VCNzcwLog\nversion=1\n"
            b"cluster.id=nTt3CsSpS2aPgwQjbH2edA\n"
        )
        expected = MetaProperties(1, "nTt3CsSpS2aPgwQjbH2edA", 1, parse_uuid("z85HBq-9MeBv_VCNzcwLog"))
        assert parse_meta_properties(data, PATH) == expected
        written = format_meta_properties(expected, 1795226313000)
        assert sorted(written.splitlines()) == sorted(data.splitlines())

    def test_version_0_is_read_with_nothing_in_it(self) -> None:
        assert parse_meta_properties(b"", PATH) == MetaProperties(0)
        assert parse_meta_properties(b"broker.id=5\nnode.id=6\n", PATH) == MetaProperties(0, None, 5)

    @pytest.mark.parametrize(
        "data",
        [
            b"version=2\n",
            b"version=x\n",
            b"version=1\n",
            b"version=1\ncluster.id=a\n",
            b"broker.id=x\n",
            b"version=1\ncluster.id=a\nnode.id=1\ndirectory.id=?\n",
            b"version=\\uZZZZ",
        ],
    )
    def test_malformed_files_are_errors(self, data: bytes) -> None:
        with pytest.raises(CorruptCheckpointError):
            parse_meta_properties(data, PATH)

    @given(
        st.builds(MetaProperties, st.just(1), st.text(), st.integers(0, 2**31 - 1), st.none() | st.uuids())
        | st.builds(MetaProperties, st.just(0), st.none() | st.text(), st.none() | st.integers(0, 9), st.none())
    )
    def test_round_trip(self, meta: MetaProperties) -> None:
        assert parse_meta_properties(format_meta_properties(meta, 0), PATH) == meta


class TestProperties:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("a=b", {"a": "b"}),
            ("  a : b c  ", {"a": "b c  "}),
            ("a b", {"a": "b"}),
            ("a\t=\tb", {"a": "b"}),
            ("a", {"a": ""}),
            ("=b", {"": "b"}),
            ("a==b", {"a": "=b"}),
            ("# a=1\n! b=2\n\n   \nc=3", {"c": "3"}),
            ("a=one, \\\n   two\\\n\tthree", {"a": "one, twothree"}),
            ("a=x\\\n#y", {"a": "x#y"}),
            ("a=x\\\\\nb=2", {"a": "x\\", "b": "2"}),
            ("a\\ b\\=c=d\\te\\z", {"a b=c": "d\tez"}),
            ("a=\\u00e4\\u20AC\\uD83D\\uDE00", {"a": "ä€😀"}),
            ("a=1\na=2", {"a": "2"}),
            ("a=\\", {"a": ""}),
        ],
    )
    def test_java_syntax_is_read(self, text: str, expected: dict[str, str]) -> None:
        assert parse_properties(text.encode("latin-1")) == expected

    @given(st.dictionaries(st.text(), st.text()))
    def test_round_trip(self, properties: dict[str, str]) -> None:
        assert parse_properties(format_properties(properties, ("", "now"))) == properties

    @given(st.binary() | st.text(alphabet="\\u=: \n#0aF").map(str.encode))
    def test_random_bytes_raise_only_value_error(self, data: bytes) -> None:
        try:
            parse_properties(data)
        except ValueError as error:
            assert "hexadecimal" in str(error)


class TestCleanShutdown:
    def test_the_marker_is_as_kafka_writes_it(self) -> None:
        assert format_clean_shutdown() == b'{"version":0,"brokerEpoch":-1}'
        assert parse_clean_shutdown(b'{"version":0,"brokerEpoch":587}') == 587
        assert parse_clean_shutdown(format_clean_shutdown()) == -1

    @pytest.mark.parametrize(
        "data",
        [b"", b"{", b"[]", b"{}", b'{"brokerEpoch":"x"}', b'{"brokerEpoch":true}', b"\xff", b"[" * 100_000],
    )
    def test_any_contents_are_a_marker(self, data: bytes) -> None:
        assert parse_clean_shutdown(data) is None


class TestUuid:
    def test_text_form_is_kafkas(self) -> None:
        assert format_uuid(UUID(int=0)) == "A" * 22
        assert format_uuid(UUID(int=1)) == "AAAAAAAAAAAAAAAAAAAAAQ"
        assert parse_uuid("AAAAAAAAAAAAAAAAAAAAAQ==") == UUID(int=1)

    @given(st.uuids())
    def test_round_trip(self, value: UUID) -> None:
        assert parse_uuid(format_uuid(value)) == value

    @given(st.text())
    def test_other_text_is_a_value_error(self, text: str) -> None:
        with pytest.raises(ValueError, match="UUID"):
            parse_uuid(text)
