"""Replaying the coordinators' topics: transactions, tombstones, times, compaction, damage, share groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.log.append import ProducerIdentity, encode_end_txn_marker
from seglog.log.validator import AppendOrigin
from seglog.model import Record
from seglog.scan.view import PartitionView
from seglog.storage.local import LocalFileSystem
from seglog_rescue.groups.committed_offsets import UNKNOWN, OffsetCommit, ShareState, offset_commits, share_states
from seglog_rescue.groups.coordinator_replay import CoordinatorReplay, ShareReplay
from tests.support.group_records import commit, commit_key, share_snapshot, share_update
from tests.support.open_logs import opened_log

FS = LocalFileSystem()
PRODUCER = ProducerIdentity(9, 0, 0, transactional=True)


def offsets(directory: Path, until_ms: int | None = None) -> dict[str, int]:
    """Offset by group; all of one partition."""
    replay = replayed(directory, CoordinatorReplay(until_ms))
    found = list(offset_commits(replay.values.values()))
    return {one.group: one.offset for one in found if isinstance(one, OffsetCommit)}


def replayed(directory: Path, replay: CoordinatorReplay) -> CoordinatorReplay:
    with PartitionView(FS, directory) as view:
        replay.take_view(view)
    return replay


@pytest.mark.parametrize(("committed", "expected"), [(True, {"g": 7}), (False, {"g": 5})])
def test_a_transactions_offsets_count_from_its_commit_marker_on(
    tmp_path: Path, committed: bool, expected: dict[str, int]
) -> None:
    with opened_log(tmp_path / "__consumer_offsets-0") as log:
        log.append([commit("g", 5)])
        log.append([commit("g", 7)], producer=PRODUCER)
        assert offsets(tmp_path / "__consumer_offsets-0") == {"g": 5}
        marker = encode_end_txn_marker(PRODUCER, committed, 0, 2000)
        log.append_batches(marker, origin=AppendOrigin.COORDINATOR)
    assert offsets(tmp_path / "__consumer_offsets-0") == expected
    assert offsets(tmp_path / "__consumer_offsets-0", 1999) == {"g": 5}  # before the marker


@pytest.mark.parametrize(("later", "expected"), [(commit("g", 9), {"g": 9}), (Record(None, commit_key("g"), 1000), {})])
def test_what_was_committed_or_deleted_after_a_transactions_offset_stays(
    tmp_path: Path, later: Record, expected: dict[str, int]
) -> None:
    """Kafka: OffsetMetadataManager.replayEndTransactionMarker compares the records' offsets."""
    with opened_log(tmp_path / "__consumer_offsets-0") as log:
        log.append([commit("g", 7)], producer=PRODUCER)
        log.append([later])
        marker = encode_end_txn_marker(PRODUCER, True, 0, 1000)
        log.append_batches(marker, origin=AppendOrigin.COORDINATOR)
    assert offsets(tmp_path / "__consumer_offsets-0") == expected


def test_a_time_shows_what_was_committed_then(tmp_path: Path) -> None:
    directory = tmp_path / "__consumer_offsets-0"
    with opened_log(directory) as log:
        for stamp in (1000, 2000, 3000):
            log.append([commit("g", stamp // 1000, timestamp=stamp)])
        log.append([Record(None, commit_key("g"), 4000)])
    assert [offsets(directory, stamp) for stamp in (999, 1000, 2999, 3999, 4000)] == [
        {},
        {"g": 1},
        {"g": 2},
        {"g": 3},
        {},
    ]


def test_damage_is_passed_over_and_said_and_what_is_missing_is_counted(tmp_path: Path) -> None:
    directory = tmp_path / "__consumer_offsets-0"
    with opened_log(directory) as log:
        positions = []
        for group in "abc":
            log.append([commit(group, 1)])
            positions.append(log.segments.active.size)
    (file,) = directory.glob("*.log")
    data = bytearray(file.read_bytes())
    data[positions[0] + 70] ^= 1
    file.write_bytes(data)
    replay = replayed(directory, CoordinatorReplay())
    assert {one.group for one in offset_commits(replay.values.values()) if isinstance(one, OffsetCommit)} == {"a", "c"}
    assert (replay.damaged, replay.missing, replay.end_offset) == (1, 1, 3)
    assert f"{file.name}: position {positions[0]}: the checksum" in replay.damage[0]


def test_updates_change_a_share_groups_snapshot_and_a_snapshot_begins_anew(tmp_path: Path) -> None:
    directory = tmp_path / "__share_group_state-0"

    def state() -> ShareState:
        replay = replayed(directory, ShareReplay())
        assert isinstance(replay, ShareReplay)
        (found,) = share_states(replay)
        assert isinstance(found, ShareState)
        return found

    with opened_log(directory) as log:
        log.append([share_snapshot("s", start=5, delivered=2, batches=[(5, 9)])])
        assert (state().start_offset, state().delivered, state().reached) == (5, 2, 10)
        log.append([share_update("s", start=-1, delivered=4, batches=[(10, 14)])])
        assert (state().start_offset, state().delivered, state().reached) == (5, 4, 15)
        log.append([share_update("s", start=12, delivered=-1, batches=[])])  # by a broker that does not count
        assert (state().start_offset, state().delivered, state().reached) == (12, UNKNOWN, 15)
        log.append([share_snapshot("s", start=15, delivered=0, batches=[])])
        assert (state().start_offset, state().delivered, state().reached) == (15, 0, 15)
