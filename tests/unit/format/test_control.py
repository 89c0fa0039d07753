"""Control records against Kafka's bytes, both ways, and what Kafka refuses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglog.format.control import (
    ControlRecord,
    ControlRecordError,
    encode_control_key,
    encode_control_value,
    encode_transaction_marker,
    parse_control_record,
    parse_control_type,
    parse_coordinator_epoch,
)
from seglog.format.uuids import format_uuid
from seglog.model import ControlType

INT16, INT32, INT64 = (st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (16, 32, 64))
UUID_TEXT = st.uuids().map(format_uuid)
VERSION_0 = st.just(0)


def voter_v(version: int) -> st.SearchStrategy[dict[str, object]]:
    fields = {"voterId": INT32} if version == 0 else {"voterId": INT32, "voterDirectoryId": UUID_TEXT}
    return st.fixed_dictionaries(fields)


def leader_change(version: int) -> st.SearchStrategy[dict[str, object]]:
    voters = st.lists(voter_v(version), max_size=4)
    return st.fixed_dictionaries(
        {"version": st.just(version), "leaderId": INT32, "voters": voters, "grantingVoters": voters}
    )


VOTERS = st.fixed_dictionaries(
    {
        "version": VERSION_0,
        "voters": st.lists(
            st.fixed_dictionaries(
                {
                    "voterId": INT32,
                    "voterDirectoryId": UUID_TEXT,
                    "endpoints": st.lists(
                        st.fixed_dictionaries({"name": st.text(), "host": st.text(), "port": st.integers(0, 65535)}),
                        max_size=3,
                    ),
                    "kRaftVersionFeature": st.fixed_dictionaries(
                        {"minSupportedVersion": INT16, "maxSupportedVersion": INT16}
                    ),
                }
            ),
            max_size=3,
        ),
    }
)
KRAFT = st.one_of(
    st.tuples(st.just(ControlType.LEADER_CHANGE), leader_change(0) | leader_change(1)),
    st.tuples(
        st.just(ControlType.SNAPSHOT_HEADER),
        st.fixed_dictionaries({"version": VERSION_0, "lastContainedLogTimestamp": INT64}),
    ),
    st.tuples(st.just(ControlType.SNAPSHOT_FOOTER), st.fixed_dictionaries({"version": VERSION_0})),
    st.tuples(
        st.just(ControlType.KRAFT_VERSION),
        st.fixed_dictionaries({"version": VERSION_0, "kRaftVersion": INT16}),
    ),
    st.tuples(st.just(ControlType.KRAFT_VOTERS), VOTERS),
)


def test_kafkas_commit_marker_is_read_and_written() -> None:
    key, value = bytes.fromhex("00000001"), bytes.fromhex("000000000015")
    assert parse_control_record(key, value) == ControlRecord(ControlType.COMMIT, 1, 21)
    assert (encode_control_key(ControlType.COMMIT), encode_transaction_marker(21)) == (key, value)


def test_kafkas_leader_change_is_read_and_written() -> None:
    key, value = bytes.fromhex("00000002"), bytes.fromhex("0000000000010200000001000100")
    record = parse_control_record(key, value)
    assert record.type is ControlType.LEADER_CHANGE
    assert record.data == {
        "version": 0,
        "leaderId": 1,
        "voters": [{"voterId": 1}],
        "grantingVoters": [],
    }
    assert encode_control_value(ControlType.LEADER_CHANGE, record.data) == value


@given(INT32, st.sampled_from([ControlType.ABORT, ControlType.COMMIT]))
def test_markers_round_trip(epoch: int, control_type: ControlType) -> None:
    key, value = encode_control_key(control_type), encode_transaction_marker(epoch)
    assert parse_control_record(key, value) == ControlRecord(control_type, int(control_type), epoch)


@given(KRAFT)
def test_kraft_records_round_trip(case: tuple[ControlType, dict[str, object]]) -> None:
    control_type, data = case
    value = encode_control_value(control_type, data)
    assert parse_control_record(encode_control_key(control_type), value).data == data


@given(KRAFT, st.data())
def test_truncated_kraft_records_are_errors(case: tuple[ControlType, dict[str, object]], data: st.DataObject) -> None:
    control_type, content = case
    value = encode_control_value(control_type, content)
    cut = data.draw(st.integers(0, len(value) - 1))
    with pytest.raises(ControlRecordError):
        parse_control_record(encode_control_key(control_type), value[:cut])


@pytest.mark.parametrize("type_id", [7, 100, -1, -2, 2**15 - 1])
def test_types_of_later_versions_are_unknown(type_id: int) -> None:
    assert parse_control_type(encode_control_key(type_id)) == (ControlType.UNKNOWN, type_id)
    assert parse_control_record(encode_control_key(type_id), None).type is ControlType.UNKNOWN


@pytest.mark.parametrize("key", [None, b"", b"\x00\x00\x00", b"\xff\xff\x00\x00"])
def test_short_keys_and_negative_versions_are_refused(key: bytes | None) -> None:
    with pytest.raises(ControlRecordError):
        parse_control_type(key)


@pytest.mark.parametrize("value", [None, b"", b"\x00\x00\x00\x00\x00", b"\xff\xff\x00\x00\x00\x00"])
def test_short_markers_and_negative_versions_are_refused(value: bytes | None) -> None:
    with pytest.raises(ControlRecordError):
        parse_coordinator_epoch(value)


def test_later_versions_of_keys_and_markers_are_read_as_version_0() -> None:
    record = parse_control_record(bytes.fromhex("00050000ffff"), bytes.fromhex("0009000000150000"))
    assert record == ControlRecord(ControlType.ABORT, 0, 21)


def test_tagged_fields_of_later_versions_are_skipped() -> None:
    value = bytes.fromhex("0000" + "0001" + "01" + "05" + "03" + "aabbcc")
    assert parse_control_record(encode_control_key(ControlType.KRAFT_VERSION), value).data == {
        "version": 0,
        "kRaftVersion": 1,
    }


@given(st.integers(0, 8), st.binary(max_size=100))
def test_random_values_raise_only_the_documented_error(type_id: int, value: bytes) -> None:
    for content in (value, b"\x00\x00" + value):
        try:
            parse_control_record(encode_control_key(type_id), content)
        except ControlRecordError as error:
            assert str(error)


def test_an_array_that_claims_a_billion_elements_is_refused() -> None:
    value = bytes.fromhex("0000" + "ffffffff07" + "00")
    with pytest.raises(ControlRecordError, match="collection of size 2147483646"):
        parse_control_record(encode_control_key(ControlType.KRAFT_VOTERS), value)
