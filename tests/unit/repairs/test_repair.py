"""Repairs: what is kept, what changes, what is refused, and how all of it is taken back."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from seglog.api.opening import open_log
from seglog.clock import FixedClock
from seglog.errors import NotALogError, RefusedError
from seglog.format.checkpoint import parse_offset_checkpoint
from seglog.log.checkpoints import OffsetCheckpoint
from seglog.log.loader import LoadOptions, plan_recovery
from seglog.model import Record, TopicPartition
from seglog.repairs.plan import Policy, RepairOptions, RepairPart
from seglog.repairs.repair import RepairOutcome, examination, plan_repair, repair
from seglog.repairs.undo.apply import undo_run
from seglog.repairs.undo.journal import JOURNAL_FILE, RunState, read_journal
from seglog.repairs.undo.quarantine import find_run, purge_run, quarantine_of, runs_in
from seglog.repairs.undo.restore import restore_run
from seglog.repairs.undo.since import ChangedSinceError
from seglog.storage.local import LocalFileSystem
from tests.support.broken.damage import batches_of
from tests.support.fixtures import fixture_copy, fixture_now_ms
from tests.support.log_files import batch, facts, marker, replayed, transactional, write_segment

FS = LocalFileSystem()
NAME = "4.3.0/clean"
CLOCK = FixedClock(fixture_now_ms(NAME))
ORDERS, PAYMENTS = "orders-lz4-0", "payments-0"
LOG = "00000000000000000000.log"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return fixture_copy(NAME, tmp_path / "kafka")


def damaged(path: Path, position: int, replacement: bytes) -> None:
    """Writes over a place of a file, keeping its modification time."""
    status = path.stat()
    contents = bytearray(path.read_bytes())
    contents[position : position + len(replacement)] = replacement
    path.write_bytes(contents)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def mended(data: Path, *partitions: str, options: RepairOptions | None = None) -> RepairOutcome:
    directories = [data / name for name in partitions]
    return repair(FS, CLOCK, data, directories, examination(FS, CLOCK, data, directories).findings, options)


def remaining(data: Path, names: Sequence[str]) -> int:
    summary = examination(FS, CLOCK, data, [data / name for name in names]).summary
    return summary.errors + summary.warnings


def test_a_healthy_directory_is_left_alone(data: Path) -> None:
    before = facts(data)
    outcome = mended(data, ORDERS, PAYMENTS, "customers-0")
    assert (outcome.run, outcome.complete, facts(data)) == (None, True, before)
    assert not (data.parent / ".seglog-quarantine").exists()


def test_damage_in_the_middle_costs_its_batch_and_undo_gives_it_back(data: Path) -> None:
    path = data / ORDERS / LOG
    healthy = batches_of(path.read_bytes())
    hit = next(i for i in range(len(healthy)) if sum(map(len, healthy[: i + 1])) > 5000)
    damaged(path, 5000, b"\0\0\0")
    path.chmod(0o640)
    before, modified = facts(data), path.stat().st_mtime_ns
    outcome = mended(data, ORDERS)
    assert outcome.complete and outcome.run is not None
    assert batches_of(path.read_bytes()) == healthy[:hit] + healthy[hit + 1 :]
    assert (path.stat().st_mtime_ns, path.stat().st_mode & 0o777) == (modified, 0o640)
    assert remaining(data, [ORDERS]) == 0
    undo_run(FS, outcome.run)
    assert facts(data) == before


def test_a_repair_long_after_the_last_write_forgets_no_producer(tmp_path: Path) -> None:
    """A snapshot without those that have expired contradicts the log, and the next repair would write it again."""
    directory, clock = tmp_path / "logs" / "t-0", FixedClock(2_000_000_000_000)
    first = [transactional(0, 7, 0), marker(1, 7, commit=True)]
    second = [transactional(2, 7, 1), marker(3, 7, commit=True)]
    write_segment(directory, 0, *first)
    write_segment(directory, 2, *second)
    for offset, batches in ((2, first), (4, [*first, *second])):
        producers = replayed(directory, *batches)
        producers.end_offset = offset
        producers.take_snapshot()
    log = directory / f"{2:020d}.log"
    log.write_bytes(bytes(9) + log.read_bytes()[9:])

    def again() -> RepairOutcome:
        findings = examination(FS, clock, directory.parent, [directory]).findings
        return repair(FS, clock, directory.parent, [directory], findings)

    assert again().run is not None
    assert batches_of(log.read_bytes()) == second[1:]
    assert again().run is None
    summary = examination(FS, clock, directory.parent, [directory]).summary
    assert (summary.errors, summary.warnings) == (0, 0)


def test_indexes_of_a_damaged_swap_are_rebuilt_and_come_back_by_undo(data: Path) -> None:
    log = sorted((data / PAYMENTS).glob("*.log"))[0]
    damaged(log, 5000, b"\0\0\0")
    for suffix in (".log", ".index", ".timeindex"):
        path = log.with_suffix(suffix)
        path.rename(path.with_name(path.name + ".swap"))
    before = facts(data)
    outcome = mended(data, PAYMENTS)
    assert outcome.complete and outcome.run is not None
    assert not list((data / PAYMENTS).glob("*.swap"))
    assert remaining(data, [PAYMENTS]) == 0
    undo_run(FS, outcome.run)
    assert facts(data) == before


def test_a_torn_tail_is_cut_where_it_is_and_only_the_tail_is_kept(data: Path) -> None:
    path = data / ORDERS / LOG
    inode = path.stat().st_ino
    damaged(path, path.stat().st_size, b"\0\0\0\0half a batch")
    before = facts(data)
    outcome = mended(data, ORDERS)
    assert outcome.run is not None and path.stat().st_ino == inode
    kept = outcome.run.folder / "old" / ORDERS / LOG
    assert kept.stat().st_size < 1000
    assert remaining(data, [ORDERS]) == 0
    undo_run(FS, outcome.run)
    assert facts(data) == before


def test_checkpoints_do_not_reach_beyond_the_new_end(data: Path) -> None:
    path = data / ORDERS / LOG
    damaged(path, path.stat().st_size - 20, bytes(20))
    outcome = mended(data, ORDERS)
    end = outcome.plan.partitions[0].log_end_offset
    key = TopicPartition("orders-lz4", 0)
    for name, expected in (("replication-offset-checkpoint", end), ("recovery-point-offset-checkpoint", 0)):
        offsets = parse_offset_checkpoint((data / name).read_bytes(), name)
        assert offsets[key] == expected
        assert offsets[TopicPartition("payments", 0)] > 0


def started_at(data: Path, offset: int) -> None:
    """Notes a log start for ORDERS, as a flipped byte may."""
    OffsetCheckpoint(FS, data / "log-start-offset-checkpoint").update({TopicPartition("orders-lz4", 0): offset})


def has_start(data: Path) -> bool:
    starts = OffsetCheckpoint(FS, data / "log-start-offset-checkpoint").offsets
    return TopicPartition("orders-lz4", 0) in starts


@pytest.mark.parametrize("only", [[RepairPart.CHECKPOINT], list(RepairPart)], ids=["checkpoint", "everything"])
def test_a_log_start_beyond_the_end_goes_and_every_record_can_be_read(data: Path, only: list[RepairPart]) -> None:
    """At the log's end it would hide all records, and retention would delete them."""
    started_at(data, 100_000)
    before, log_before = facts(data), facts(data / ORDERS)
    findings = examination(FS, CLOCK, data, [data / ORDERS], whole=True).findings
    outcome = repair(FS, CLOCK, data, [data / ORDERS], findings, RepairOptions(only=frozenset(only)))
    assert not has_start(data) and facts(data / ORDERS) == log_before
    with open_log(data / ORDERS) as log:
        assert [record.offset for record in log.records(0)] == list(range(790))
    assert outcome.run is not None
    undo_run(FS, outcome.run)
    assert facts(data) == before


def test_a_checkpoint_stays_where_unrepaired_damage_hides_the_logs_end(data: Path) -> None:
    last = sorted((data / ORDERS).glob("*.log"))[-1]
    with last.open("ab") as file:
        file.write(b"x" * 100)
    started_at(data, 795)
    findings = examination(FS, CLOCK, data, [data / ORDERS], whole=True).findings
    only = RepairOptions(only=frozenset({RepairPart.CHECKPOINT}))
    assert plan_repair(FS, CLOCK, data, [data / ORDERS], findings, only).is_empty
    assert repair(FS, CLOCK, data, [data / ORDERS], findings).run is not None
    assert not has_start(data), "the repair of the log shows its end"


def test_offsets_lost_with_a_damaged_end_are_reported_and_the_repair_is_complete(data: Path) -> None:
    path = data / ORDERS / LOG
    damaged(path, path.stat().st_size - 20, bytes(20))
    outcome = mended(data, ORDERS)
    (note,) = outcome.plan.notes
    assert "are gone: the log ends at" in note and outcome.complete
    assert remaining(data, [ORDERS]) == 0


def test_an_end_that_is_missing_without_damage_stays_wrong(data: Path) -> None:
    path = data / ORDERS / LOG
    last = len(batches_of(path.read_bytes())[-1])
    os.truncate(path, path.stat().st_size - last)
    outcome = mended(data, ORDERS)
    (left,) = outcome.unrepaired
    assert "the log ends at" in left and not outcome.complete


def test_a_checkpoint_that_cannot_be_read_begins_anew(data: Path) -> None:
    (data / "cleaner-offset-checkpoint").write_text("0\nmany\n")
    findings = examination(FS, CLOCK, data, [data / ORDERS], whole=True).findings
    outcome = repair(FS, CLOCK, data, [data / ORDERS], findings)
    assert outcome.run is not None
    assert [change.path for change in outcome.run.changed] == ["cleaner-offset-checkpoint"]
    assert (data / "cleaner-offset-checkpoint").read_text() == "0\n0\n"


def test_leader_epochs_that_cannot_be_read_are_derived_from_the_batches(data: Path) -> None:
    path = data / ORDERS / "leader-epoch-checkpoint"
    before = path.read_bytes()
    path.write_bytes(b"gibberish")
    outcome = mended(data, ORDERS)
    assert (outcome.complete, path.read_bytes(), remaining(data, [ORDERS])) == (True, before, 0)


def test_a_missing_transaction_index_is_made_again(data: Path) -> None:
    index = sorted((data / PAYMENTS).glob("*.txnindex"))[0]
    contents = index.read_bytes()
    index.unlink()
    assert mended(data, PAYMENTS).complete
    assert index.read_bytes() == contents


def test_only_limits_the_repair(data: Path) -> None:
    index, snapshot = data / ORDERS / "00000000000000000000.timeindex", next((data / ORDERS).glob("*.snapshot"))
    index.unlink()
    damaged(snapshot, 4, b"\0\0")
    broken = snapshot.read_bytes()
    outcome = mended(data, ORDERS, options=RepairOptions(only=frozenset({RepairPart.INDEX})))
    assert outcome.run is not None
    assert [Path(change.path).name for change in outcome.run.changed] == [index.name]
    assert snapshot.read_bytes() == broken
    assert mended(data, ORDERS).complete
    assert remaining(data, [ORDERS]) == 0


def test_indexes_of_a_damaged_log_are_not_rebuilt_alone(data: Path) -> None:
    damaged(data / ORDERS / LOG, 5000, b"\0\0\0")
    (data / ORDERS / LOG).with_suffix(".timeindex").unlink()
    before = facts(data.parent)
    with pytest.raises(RefusedError, match="would still cut"):
        mended(data, ORDERS, options=RepairOptions(only=frozenset({RepairPart.INDEX})))
    assert facts(data.parent) == before


def test_a_recovery_as_after_a_crash_cuts_nothing_of_a_repaired_log(data: Path) -> None:
    for position in (200, 9_000, 20_000):
        damaged(data / ORDERS / LOG, position, os.urandom(40))
    mended(data, ORDERS)
    report = plan_recovery(FS, data / ORDERS, CLOCK, LoadOptions(clean_shutdown=False))
    assert (report.truncated_bytes, report.removed_files) == (0, [])


def test_policy_truncate_drops_everything_after_the_damage(data: Path) -> None:
    logs = sorted((data / PAYMENTS).glob("*.log"))
    damaged(logs[0], 5000, b"\xff\xff")
    before = facts(data)
    outcome = mended(data, PAYMENTS, options=RepairOptions(policy=Policy.TRUNCATE))
    assert sorted((data / PAYMENTS).glob("*.log")) == logs[:1]
    assert logs[0].stat().st_size <= 5000
    assert outcome.run is not None
    undo_run(FS, outcome.run)
    assert facts(data) == before


def test_what_a_brokers_recovery_fails_over_is_left_and_said(tmp_path: Path) -> None:
    """A later segment holds an offset below its base: Kafka finds nothing to split and does not start."""
    directory = tmp_path / "logs" / "t-0"
    directory.mkdir(parents=True)
    for base, batches in ((0, (batch(0, 10),)), (10, (batch(10, 5),)), (15, (batch(7), batch(15, 2)))):
        (directory / f"{base:020d}.log").write_bytes(b"".join(batches))
    before = facts(tmp_path)
    outcome = mended(directory.parent, "t-0", options=RepairOptions(policy=Policy.TRUNCATE))
    (left,) = outcome.unrepaired
    assert "position 0: offset 7 does not fit a segment that starts at 15" in left and "smallest-loss" in left
    assert outcome.run is None and facts(tmp_path) == before
    assert mended(directory.parent, "t-0").complete


def test_a_segment_that_recovery_would_split_is_left_to_recover(tmp_path: Path) -> None:
    directory = tmp_path / "logs" / "t-0"
    directory.mkdir(parents=True)
    torn = batch(2**31 + 10, 3)
    (directory / f"{0:020d}.log").write_bytes(batch(0, 10) + batch(2**31, 5) + torn[:-1] + b"\xff")
    before = facts(tmp_path)
    outcome = mended(directory.parent, "t-0", options=RepairOptions(policy=Policy.TRUNCATE))
    assert any("recovery splits a segment" in each and "seglog recover" in each for each in outcome.unrepaired)
    assert outcome.run is None and facts(tmp_path) == before


def test_a_damaged_swap_is_undone_when_the_old_segment_is_intact(data: Path) -> None:
    old = data / ORDERS / LOG
    contents = old.read_bytes()
    (data / ORDERS / f"{LOG}.swap").write_bytes(contents[:3000] + bytes(500) + contents[3500:])
    assert mended(data, ORDERS).complete
    assert (old.read_bytes(), (data / ORDERS / f"{LOG}.swap").exists()) == (contents, False)


@pytest.mark.parametrize("kept", [0, 1], ids=["empty", "shorter"])
def test_a_swap_that_ends_sooner_is_undone_when_the_old_segment_is_intact(data: Path, kept: int) -> None:
    old = data / ORDERS / LOG
    contents = old.read_bytes()
    first = 12 + int.from_bytes(contents[8:12], "big")
    (data / ORDERS / f"{LOG}.swap").write_bytes(contents[: kept * first])
    assert mended(data, ORDERS).complete
    assert (old.read_bytes(), (data / ORDERS / f"{LOG}.swap").exists()) == (contents, False)


def test_segments_retired_by_a_damaged_swap_come_back(data: Path) -> None:
    old = data / ORDERS / LOG
    contents = old.read_bytes()
    for path in sorted((data / ORDERS).glob("00000000000000000000.*")):
        path.rename(path.with_name(path.name + ".deleted"))
    (data / ORDERS / f"{LOG}.swap").write_bytes(contents[:3000] + bytes(500) + contents[3500:])
    before = facts(data)
    outcome = mended(data, ORDERS)
    assert outcome.complete and old.read_bytes() == contents
    assert remaining(data, [ORDERS]) == 0
    assert outcome.run is not None
    undo_run(FS, outcome.run)
    assert facts(data) == before


def test_planning_changes_nothing(data: Path) -> None:
    damaged(data / ORDERS / LOG, 5000, b"\0\0\0")
    before = facts(data)
    findings = examination(FS, CLOCK, data, [data / ORDERS]).findings
    plan = plan_repair(FS, CLOCK, data, [data / ORDERS], findings, RepairOptions())
    rows = list(plan.rows())
    assert {"excise", "rebuild", "derive"} <= {row["action"] for row in rows}
    assert all(next(iter(row)) == "type" for row in rows)
    assert facts(data) == before


def test_undo_refuses_when_a_file_has_changed_since(data: Path) -> None:
    damaged(data / ORDERS / LOG, 5000, b"\0\0\0")
    outcome = mended(data, ORDERS)
    with (data / ORDERS / LOG).open("ab") as file:
        file.write(b"appended since")
    after = facts(data)
    assert outcome.run is not None
    with pytest.raises(ChangedSinceError, match="changed since"):
        undo_run(FS, outcome.run)
    assert facts(data) == after


def test_undo_refuses_when_the_quarantine_was_tampered_with(data: Path) -> None:
    damaged(data / ORDERS / LOG, 5000, b"\0\0\0")
    outcome = mended(data, ORDERS)
    assert outcome.run is not None
    damaged(outcome.run.folder / "old" / ORDERS / LOG, 100, b"??")
    with pytest.raises(RefusedError, match="is not what"):
        undo_run(FS, outcome.run)


@pytest.mark.parametrize("inside", [".", "orders-lz4-0", "quarantine"])
def test_the_quarantine_may_not_be_in_the_log_directory(data: Path, inside: str) -> None:
    with pytest.raises(RefusedError, match="inside the log directory"):
        quarantine_of(FS, data, data / inside)


def test_the_quarantine_may_not_be_in_another_log_directory(data: Path, tmp_path: Path) -> None:
    other = fixture_copy("4.3.0/clean", tmp_path / "other")
    with pytest.raises(RefusedError, match="is a log directory itself"):
        quarantine_of(FS, data, other / "quarantine")


def test_a_quarantine_that_cannot_be_written_is_refused_by_name(data: Path, tmp_path: Path) -> None:
    damaged(data / ORDERS / LOG, 5000, b"\0\0\0")
    before = facts(data)
    blocked = tmp_path / "file"
    blocked.write_bytes(b"")
    with pytest.raises(RefusedError, match="--quarantine"):
        mended(data, ORDERS, options=RepairOptions(quarantine=blocked / "below"))
    assert facts(data) == before


def test_too_little_disk_space_is_refused_before_anything_is_written(data: Path) -> None:
    damaged(data / ORDERS / LOG, 5000, b"\0\0\0")
    before = facts(data.parent)

    class Full(LocalFileSystem):
        def free_bytes(self, path: Path) -> int:
            return 1000

    fs = Full()
    with pytest.raises(RefusedError, match="1000 are free"):
        repair(fs, CLOCK, data, [data / ORDERS], examination(fs, CLOCK, data, [data / ORDERS]).findings)
    assert facts(data.parent) == before


@pytest.mark.parametrize("name", ["__cluster_metadata-0", "x-0.0123456789abcdef0123456789abcdef-delete"])
def test_what_is_not_ours_is_refused(data: Path, name: str) -> None:
    (data / name).mkdir(exist_ok=True)
    with pytest.raises(RefusedError):
        plan_repair(FS, CLOCK, data, [data / name], None, RepairOptions())


def test_runs_are_found_by_name_restored_elsewhere_and_purged(data: Path, tmp_path: Path) -> None:
    damaged(data / ORDERS / LOG, 5000, b"\0\0\0")
    path = data / PAYMENTS / sorted(p.name for p in (data / PAYMENTS).glob("*.log"))[-1]
    damaged(path, path.stat().st_size, b"torn")
    before = facts(data)
    outcome = mended(data, ORDERS, PAYMENTS)
    assert outcome.run is not None
    quarantine = quarantine_of(FS, data)
    assert [run.name for run in runs_in(FS, quarantine) if not isinstance(run, Exception)] == [outcome.run.name]
    found = find_run(FS, outcome.run.name, [quarantine])
    assert (found.state, found.changes) == (RunState.FINISHED, outcome.run.changes)
    for restored in restore_run(FS, found, tmp_path / "restored"):
        name = str(restored.relative_to(tmp_path / "restored"))
        assert restored.read_bytes() == before[name][0]
    assert purge_run(FS, found) > 0
    with pytest.raises(NotALogError):
        find_run(FS, outcome.run.name, [quarantine])


def test_the_journal_says_what_each_file_was_and_became(data: Path) -> None:
    damaged(data / ORDERS / LOG, 5000, b"\0\0\0")
    size = (data / ORDERS / LOG).stat().st_size
    outcome = mended(data, ORDERS)
    assert outcome.run is not None
    steps = (outcome.run.folder / JOURNAL_FILE).read_text().splitlines()
    assert [step[9:14] for step in (steps[0], steps[1], steps[-2], steps[-1])] == ["start", "prepa", "appli", "finis"]
    change = next(c for c in read_journal(FS, outcome.run.folder).changes if c.path.endswith(LOG))
    assert change.before is not None and change.after is not None
    assert change.before.size == size > change.after.size
    assert not (outcome.run.folder / "new").exists()


def test_a_lost_abort_marker_is_reported(data: Path) -> None:
    index = sorted((data / PAYMENTS).glob("*.txnindex"))[0]
    marker_offset = int.from_bytes(index.read_bytes()[18:26], "big")
    log = index.with_suffix(".log")
    position = 0
    for each in batches_of(log.read_bytes()):
        if int.from_bytes(each[:8], "big") == marker_offset:
            damaged(log, position + 40, b"\xff\xff")
        position += len(each)
    outcome = mended(data, PAYMENTS)
    assert len(outcome.plan.notes) == 1
    assert f"at offset {marker_offset} is damaged" in outcome.plan.notes[0]
    assert remaining(data, [PAYMENTS]) == 0


@pytest.mark.parametrize("bit", range(32))
def test_a_broken_leader_epoch_is_set_right(data: Path, bit: int) -> None:
    log = sorted((data / PAYMENTS).glob("*.log"))[0]
    healthy = {path.name: path.read_bytes() for path in (data / PAYMENTS).iterdir()}
    second = len(batches_of(log.read_bytes())[0])
    damaged(log, second + 12 + bit // 8, bytes([healthy[log.name][second + 12 + bit // 8] ^ 1 << bit % 8]))
    before = facts(data)
    outcome = mended(data, PAYMENTS)
    assert outcome.complete and outcome.run is not None
    assert remaining(data, [PAYMENTS]) == 0
    assert log.read_bytes() == healthy[log.name]
    assert (data / PAYMENTS / "leader-epoch-checkpoint").read_bytes() == healthy["leader-epoch-checkpoint"]
    undo_run(FS, outcome.run)
    assert facts(data) == before


@pytest.mark.parametrize("checkpoint", ["0\n2\n0 0\n2 750\n", None, "", "0\n1\n0 0\n", "0\n1\n0 790\n", "rubbish"])
def test_a_brokers_batch_keeps_its_epoch_whatever_was_appended_after_it(data: Path, checkpoint: str | None) -> None:
    directory = data / "orders-none-0"
    last = sorted(directory.glob("*.log"))[-1]
    before = last.read_bytes()
    with open_log(directory, writable=True, clock=CLOCK) as log:
        log.append([Record(b"v", timestamp=CLOCK.now_ms())], leader_epoch=0)
        log.append([Record(b"v", timestamp=CLOCK.now_ms())], leader_epoch=0)
    epochs = directory / "leader-epoch-checkpoint"
    if checkpoint is None:
        epochs.unlink()
    else:
        epochs.write_text(checkpoint)
    mended(data, directory.name)
    assert last.read_bytes().startswith(before)
    if checkpoint == "0\n2\n0 0\n2 750\n":
        assert remaining(data, [directory.name]) == 0
        with open_log(directory) as log:
            assert [int(e) for rows in log.segments.active.rows() for e in rows["leader_epoch"]] == [2, 2, 2]
