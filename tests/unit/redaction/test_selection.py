"""Keys and offsets are found as a plain comparison finds them; files that name them are read or refused by line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglog.errors import InputError
from seglog.format.builder import columns_of
from seglog.model import Record, TopicPartition
from seglog.redaction.selection import RecordsToErase, read_keys, read_offsets
from seglog.scan.key_set import KeySet
from seglog.scan.offset_set import OffsetSet

KEYS = st.binary(max_size=20) | st.sampled_from([b"customer-%07d" % i for i in range(20)])


@given(st.lists(st.none() | KEYS, max_size=60), st.lists(KEYS, max_size=12))
def test_a_set_of_keys_finds_what_a_plain_comparison_finds(keys: list[bytes | None], wanted: list[bytes]) -> None:
    records = columns_of([Record(b"v", key) for key in keys])
    found = KeySet(wanted).mask(records)
    assert found.tolist() == [key in set(wanted) for key in keys]


@given(st.lists(st.integers(0, 40), unique=True), st.sets(st.integers(0, 45)))
def test_offsets_are_found(offsets: list[int], wanted: set[int]) -> None:
    records = columns_of([Record(b"v", offset=offset) for offset in sorted(offsets)])
    selection = RecordsToErase(offsets={TopicPartition("t", 0): OffsetSet(wanted)}).of(TopicPartition("t", 0))
    assert selection.mask(records).tolist() == [offset in wanted for offset in sorted(offsets)]


def test_keys_come_as_text_or_as_json() -> None:
    text = b'plain\r\n\n{"key": "caf\xc3\xa9"}\n{"key_b64": "AAH/"}\n'
    assert set(read_keys(text, "keys")) == {b"plain", b"caf\xc3\xa9", b"\x00\x01\xff"}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"key": 5}', "neither key"),
        (b'{"key_b64": "*"}', "not base64"),
        (b"{key}", "not a JSON object"),
        (b"", "no key in it"),
    ],
)
def test_a_line_that_is_no_key_is_refused(line: bytes, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        read_keys(line, "keys")


def test_offsets_come_as_csv_in_any_order_of_columns_and_as_json() -> None:
    csv = b'key,offset,topic,partition\n"a,b",7,orders,1\n,3,orders,1\nx,7,orders,1\n'
    assert {key: list(found) for key, found in read_offsets(csv, "f").items()} == {TopicPartition("orders", 1): [3, 7]}
    lines = b'{"type": "batch"}\n{"type":"record","topic":"a","partition":0,"offset":5}\n'
    assert {key: list(found) for key, found in read_offsets(lines, "f").items()} == {TopicPartition("a", 0): [5]}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"topic,partition\nt,1\n", "no column 'offset'"),
        (b"topic,partition,offset\nt,1\n", "2 values for 3 columns"),
        (b"topic,partition,offset\nt,1,-4\n", "offset is a number"),
        (b"topic,partition,offset\nt,9999999999,4\n", "partition is a number"),
        (b"topic,partition,offset\nt,1," + b"9" * 400 + b"\n", "offset is a number"),
        (b"topic,partition,offset\na/b,1,4\n", "not a topic's name"),
        (b'{"topic": "t", "partition": 0}\n', "no 'offset'"),
        (b'{"topic": "t", "partition": 0, "offset": true}\n', "offset is a number"),
        (b"topic,partition,offset\n", "no offset in it"),
        (b"\xff", "not UTF-8"),
    ],
)
def test_a_line_that_is_no_offset_is_refused(text: bytes, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        read_offsets(text, "f")


def test_a_selection_never_prints_what_it_selects() -> None:
    selection = RecordsToErase(KeySet([b"secret-key"]), {})
    assert "secret" not in repr(selection) + selection.rule + repr(selection.of(TopicPartition("t", 0)))


def test_a_partition_of_which_no_offset_is_named_has_no_selected_record() -> None:
    records = columns_of([Record(b"v", offset=offset) for offset in range(3)])
    selection = RecordsToErase(offsets={TopicPartition("t", 0): OffsetSet([1])}).of(TopicPartition("t", 1))
    assert not selection.reaches(0, None)
    assert not selection.may_be_in(records.batches).any()
    assert not selection.mask(records).any()
