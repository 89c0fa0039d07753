"""What a repair derives from the data: producer snapshots from the first change on, and the note of its gaps."""

from __future__ import annotations

from pathlib import Path

from seglog.format.producer_snapshot import decode_snapshot
from tests.support.broken.damage import batches_of
from tests.support.log_files import batch, idempotent, replayed, write_segment
from tests.unit.repairs.test_repair import LOG, damaged, mended, remaining


def with_snapshots(directory: Path, *offsets: int) -> Path:
    """The log directory, once the partition has a snapshot of producer 7 at each of these offsets."""
    producers = replayed(directory, idempotent(0, 7, 0))
    for offset in offsets:
        producers.end_offset = offset
        producers.take_snapshot()
    return directory.parent


def producers_of(path: Path) -> set[int]:
    return {each.producer_id for each in decode_snapshot(path.read_bytes(), path)}


def test_producers_whose_records_retention_deleted_stay_in_the_snapshots(tmp_path: Path) -> None:
    directory = tmp_path / "logs" / "t-0"
    for base in (20, 30, 40):
        write_segment(directory, base, batch(base, 5), batch(base + 5, 5))
    logs = with_snapshots(directory, 20, 30, 40)
    damaged(directory / f"{30:020d}.log", 20, b"rotten")
    outcome = mended(logs, "t-0")
    assert outcome.complete and outcome.run is not None
    assert all(producers_of(directory / f"{offset:020d}.snapshot") == {7} for offset in (20, 30, 40))
    assert remaining(logs, ["t-0"]) == 0


def test_snapshots_are_made_anew_from_the_first_of_several_damaged_segments_on(tmp_path: Path) -> None:
    """The only batch of producer 7 is damaged."""
    directory = tmp_path / "logs" / "t-0"
    write_segment(directory, 0, idempotent(0, 7, 0), batch(1, 9))
    for base in (10, 20):
        write_segment(directory, base, batch(base, 5), batch(base + 5, 5))
    logs = with_snapshots(directory, 10, 20)
    for base in (0, 10):
        damaged(directory / f"{base:020d}.log", 20, b"rotten")
    assert mended(logs, "t-0").complete
    assert all(producers_of(directory / f"{offset:020d}.snapshot") == set() for offset in (10, 20))
    assert remaining(logs, ["t-0"]) == 0


def test_a_snapshot_beyond_the_end_of_its_segment_is_no_obstacle(tmp_path: Path) -> None:
    directory = tmp_path / "logs" / "t-0"
    write_segment(directory, 0, batch(0, 10))
    write_segment(directory, 20, batch(20, 5), batch(25, 5))
    logs = with_snapshots(directory, 15)
    log = directory / f"{20:020d}.log"
    damaged(log, 20, b"rotten")
    assert mended(logs, "t-0").complete
    assert batches_of(log.read_bytes()) == [batch(25, 5)]


def test_rubbish_after_the_last_batch_of_a_closed_segment_is_no_gap(tmp_path: Path) -> None:
    directory = tmp_path / "logs" / "t-0"
    for base in (0, 10):
        write_segment(directory, base, batch(base, 10))
    damaged(directory / LOG, len(batch(0, 10)), b"rubbish")
    outcome = mended(directory.parent, "t-0")
    assert (outcome.complete, outcome.plan.partitions[0].gaps) == (True, ())
    assert (directory / LOG).read_bytes() == batch(0, 10)
