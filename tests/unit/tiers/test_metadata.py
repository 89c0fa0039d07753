"""`__remote_log_metadata` folded: states, updates, deletions; and compared with the objects that are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.errors import NotALogError
from seglog.model import TopicPartition
from seglog_stores.formats.remote_metadata import RemotePartitionState, RemoteSegmentState
from seglog_stores.tiers.metadata import RemoteLogs, checked_against, read_remote_logs
from seglog_stores.tiers.recognition import Layout, TierPlace
from seglog_stores.tiers.segments import Problem, TierSegment
from tests.support.log_files import FS, write_segment
from tests.support.naive import NaiveRecord, batch_v2

TOPIC_ID, SEGMENT_ID = "AAECAwQFBgcICQoLDA0ODw", "EBESExQVFhcYGRobHB0eHw"
PARTITION = "0274000102030405060708090a0b0c0d0e0f0000000300"
SEGMENT = PARTITION + "101112131415161718191a1b1c1d1e1f00"
ADDED = (
    f"010000{SEGMENT}000000000000006400000000000000c7000000010000018bcfe568000000018bcfe56be8"
    "020000000500000000000000640000001000000001000101"
)
UPDATED = f"010100{SEGMENT}000000020000018bcfe56fd006010002b8170100"
DELETING = f"010100{SEGMENT}000000020000018bcfe56fd0000200"
GONE = f"010200{PARTITION}000000010000018bcfe56fd00000"
PLACE = TierPlace(Path("tier"), Layout.AIVEN, TopicPartition("t", 3), TOPIC_ID)


def folded(*values: str) -> RemoteLogs:
    logs = RemoteLogs()
    for number, value in enumerate(values):
        logs.take(bytes.fromhex(value), f"offset {number}")
    return logs


def one_object(segment_id: str = SEGMENT_ID) -> TierSegment:
    return TierSegment(100, 150, segment_id, (), {}, None, Path("object"))


def test_an_update_replaces_state_broker_time_and_custom_metadata() -> None:
    (copy,) = folded(ADDED, UPDATED).of(PLACE).values()
    assert (copy.state, copy.custom, copy.size) == (RemoteSegmentState(1), bytes.fromhex("010002b817"), 4096)
    assert (copy.segment.broker_id, copy.segment.event_timestamp_ms) == (2, 1700000002000)
    assert (copy.segment.start_offset, copy.segment.end_offset) == (100, 199)
    (copy,) = folded(ADDED, UPDATED, DELETING).of(PLACE).values()
    assert (copy.state, copy.custom) == (RemoteSegmentState.DELETE_SEGMENT_STARTED, None)
    assert folded(ADDED, GONE).deleted == {(TOPIC_ID, 3): RemotePartitionState(0)}


def test_what_cannot_be_folded_is_reported_with_its_place() -> None:
    logs = folded(UPDATED, "02", ADDED[:-2], ADDED.replace("c7", "00", 1), GONE[:-4] + "0900")
    assert logs.unreadable == 5 and logs.copies.get((TOPIC_ID, 3), {}) == {}
    assert logs.problems[0] == f"offset 0: it updates segment {SEGMENT_ID}, which no earlier record adds"
    assert "has offsets 100 to 0" in logs.problems[3]


def test_segments_and_metadata_are_compared_both_ways() -> None:
    kept, remarks = checked_against(folded(ADDED, UPDATED), PLACE, [one_object()], {SEGMENT_ID})
    assert ([(one.end_offset, one.epochs[0].epoch) for one in kept], remarks) == ([(199, 5)], [])
    for values, problem in (((), Problem.ORPHAN_OBJECT), ((ADDED,), Problem.INCOMPLETE_UPLOAD)):
        kept, remarks = checked_against(folded(*values), PLACE, [one_object()], {SEGMENT_ID})
        assert (kept, [one.problem for one in remarks]) == ([], [problem])
    _, remarks = checked_against(folded(ADDED, UPDATED, DELETING, GONE), PLACE, [one_object()], {SEGMENT_ID})
    assert [one.problem for one in remarks] == [Problem.DELETED, Problem.DELETED]
    _, remarks = checked_against(folded(ADDED, UPDATED), PLACE, [], set())
    assert [(one.problem, one.first_offset, one.last_offset) for one in remarks] == [(Problem.MISSING_OBJECT, 100, 199)]


def test_the_topic_is_read_out_of_a_log_directory_past_damage(tmp_path: Path) -> None:
    values = [bytes.fromhex(value) for value in (ADDED, "ff", UPDATED)]
    batches = [batch_v2(i, [NaiveRecord(0, 0, None, value)]) for i, value in enumerate(values)]
    segment = write_segment(tmp_path / "__remote_log_metadata-36", 0, *batches)
    with segment.path.open("ab") as file:
        file.write(b"torn")
    logs = read_remote_logs(FS, [tmp_path])
    assert [copy.state for copy in logs.of(PLACE).values()] == [RemoteSegmentState.COPY_SEGMENT_FINISHED]
    assert logs.unreadable == 2
    (tmp_path / "other").mkdir()
    write_segment(tmp_path / "other" / "t-0", 0, *batches)
    with pytest.raises(NotALogError, match="no partition of __remote_log_metadata"):
        read_remote_logs(FS, [tmp_path / "other"])
