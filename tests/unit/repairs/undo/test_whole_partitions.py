"""Undo restores all of a run's partitions, or refuses before it changes anything, whatever came in between."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from seglog.configuration.keys import LogConfig
from seglog.errors import RefusedError
from seglog.format.checkpoint import format_offset_checkpoint, parse_offset_checkpoint
from seglog.log.directory import LogDirectory
from seglog.model import Record, TopicPartition
from seglog.operations.keeping import Keeper
from seglog.operations.recover import RecoveryOptions, recover
from seglog.operations.truncate import cut_log
from seglog.repairs.repair import repair
from seglog.repairs.undo.apply import undo_run
from seglog.repairs.undo.journal import RunRecord, read_journal
from seglog.repairs.undo.since import ChangedSinceError
from seglog.scan.listing import OFFSET_CHECKPOINTS, Target, TargetKind
from tests.support.fixtures import KAFKA, fixture_copy, fixture_now_ms
from tests.support.log_files import FS, facts
from tests.support.manual_clock import ManualClock
from tests.support.target_directories import empty_partition, request, transplanted

NAME = "4.3.0/clean"
PARTITIONS = [TopicPartition("orders-none", 0), TopicPartition("orders-lz4", 0), TopicPartition("payments", 0)]
NEW = TopicPartition("clicks", 0)
"""A partition that is made empty in the copy, so that the fixture's can be transplanted into it."""
MARKER = ".kafka_cleanshutdown"
State = tuple[dict[str, object], dict[str, int | None]]


@dataclass
class Directory:
    """A copy of a broker's log directory, on which runs are made, a second apart."""

    path: Path
    clock: ManualClock
    dice: random.Random

    def state(self, key: TopicPartition) -> State:
        """The partition's files, and its own entries of the shared checkpoints."""
        files = {name: contents for name, (contents, *_) in facts(self.path / str(key)).items()}
        return files, {name: self.entries(name).get(key) for name in OFFSET_CHECKPOINTS}

    def entries(self, name: str) -> dict[TopicPartition, int]:
        path = self.path / name
        return parse_offset_checkpoint(path.read_bytes(), path) if path.exists() else {}

    def tree(self) -> dict[str, object]:
        """Every file with its times; the marker, which comes and goes, without."""
        marker = {MARKER: (self.path / MARKER).exists() and (self.path / MARKER).read_text()}
        return {**facts(self.path), **marker}

    def opened(self) -> LogDirectory:
        return LogDirectory.open(self.path, fs=FS, clock=self.clock, config_of=lambda _: LogConfig(), writable=True)

    # --- what makes runs, and what comes between them ---------------------------------------------------------

    def truncate(self, key: TopicPartition) -> RunRecord | None:
        with LogDirectory.open(self.path, fs=FS, clock=self.clock, writable=False) as owner:
            start, end = owner.log(key).log_start_offset, owner.log(key).log_end_offset
        offset = self.dice.randint(start, end)
        return cut_log(self._keeper("truncate"), self.path / str(key), offset, None).run

    def repair(self, key: TopicPartition) -> RunRecord | None:
        return repair(FS, self.clock, self.path, [self.path / str(key)]).run

    def recover(self, key: TopicPartition) -> RunRecord | None:
        options = RecoveryOptions(recovery_point=0, keeper=self._keeper("recover"))
        target = Target(self.path / str(key), TargetKind.PARTITION)
        (report,) = recover(FS, self.clock, target, lambda _: LogConfig(), options)
        return None if report.run is None else read_journal(FS, report.run)

    def transplant(self, key: TopicPartition) -> RunRecord | None:
        source = KAFKA / NAME / str(key)
        return transplanted(FS, self.clock.now_ms(), request(FS, self.path, source)).run

    def empty(self, key: TopicPartition) -> None:
        """Makes the partition as a broker leaves a new one."""
        directory = self.path / str(key)
        metadata = (directory / "partition.metadata").read_bytes()
        shutil.rmtree(directory)
        empty_partition(FS, directory)
        (directory / "partition.metadata").write_bytes(metadata)
        for name in OFFSET_CHECKPOINTS[::2]:
            (self.path / name).write_bytes(format_offset_checkpoint(self.entries(name) | {key: 0}))

    def damage(self, key: TopicPartition, *, at_end: bool = False) -> None:
        """Flips a byte of a log that has records; with `at_end`, in its last batch."""
        logs = [path for path in sorted((self.path / str(key)).glob("*.log")) if path.stat().st_size > 100]
        if logs:
            path = logs[-1] if at_end else self.dice.choice(logs)
            data = bytearray(path.read_bytes())
            data[-1 if at_end else self.dice.randrange(61, len(data))] ^= 0x40
            path.write_bytes(data)

    def broker(self) -> None:
        """What a broker leaves that starts, leads and stops without a write; its checkpoints are in another order."""
        with self.opened() as owner:
            for key in (*PARTITIONS, NEW):
                log = owner.log(key)
                log.leader_epochs.assign(log.leader_epochs.latest_epoch + 1, log.log_end_offset)
                log.producers.take_snapshot()
        for name in OFFSET_CHECKPOINTS[:3]:
            found = list(self.entries(name).items())
            self.dice.shuffle(found)
            (self.path / name).write_bytes(format_offset_checkpoint(dict(found), sort=False))
        (self.path / MARKER).write_text(f'{{"version":0,"brokerEpoch":{self.dice.randrange(1000)}}}')

    def crash(self) -> None:
        (self.path / MARKER).unlink(missing_ok=True)

    def _keeper(self, command: str) -> Keeper:
        return Keeper(FS, self.clock, lambda _: LogConfig(), command)


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    now = fixture_now_ms(NAME)
    return Directory(fixture_copy(NAME, tmp_path), ManualClock(now), random.Random(1))


def made(directory: Directory, verb: str, key: TopicPartition) -> RunRecord:
    directory.damage(key, at_end=True)
    run = getattr(directory, verb)(key)
    assert run is not None
    return run


@pytest.mark.parametrize("seed", range(12))
def test_runs_are_undone_in_any_order_with_a_broker_in_between(tmp_path: Path, seed: int) -> None:
    """Each undo restores its partition as it was, or refuses because of a later run and changes nothing."""
    dice = random.Random(seed)
    directory = Directory(fixture_copy(NAME, tmp_path), ManualClock(fixture_now_ms(NAME)), dice)
    directory.empty(NEW)
    runs: list[tuple[RunRecord, TopicPartition, State, bool]] = []
    for _ in range(dice.randint(2, 4)):
        key = dice.choice([*PARTITIONS, NEW])
        verbs = ["truncate", "repair", "recover"]
        if all(each[1] != key for each in runs):
            if key == NEW:
                verbs = ["transplant"]
            else:
                directory.damage(key)
        if verbs == ["transplant"]:
            directory.broker()  # a broker that was stopped in order
        elif dice.random() < 0.3:
            directory.crash()
        state, clean = directory.state(key), (directory.path / MARKER).exists()
        directory.clock.advance(1000)
        run = getattr(directory, dice.choice(verbs))(key)
        if run is not None:
            runs.append((run, key, state, clean))
        if dice.random() < 0.5:
            directory.broker()
    left = list(runs)
    while left:
        if dice.random() < 0.3:
            directory.broker()
        run, key, state, clean = dice.choice(left)
        later = [each for each in left if each[1] == key and each[0].started_ms > run.started_ms]
        if later:
            before = directory.tree()
            with pytest.raises(ChangedSinceError, match="undo that run first"):
                undo_run(FS, run)
            assert directory.tree() == before
            continue
        undo_run(FS, run)
        assert directory.state(key) == state
        assert clean or not (directory.path / MARKER).exists()
        left.remove((run, key, state, clean))


@pytest.mark.parametrize("order", ["first run first", "last run first"])
def test_undone_runs_on_two_partitions_leave_the_tree_as_it_was(directory: Directory, order: str) -> None:
    one, two = PARTITIONS[:2]
    directory.damage(one)
    before = {path: contents for path, (contents, *_) in facts(directory.path).items()}
    runs = [directory.repair(one)]
    directory.clock.advance(1000)
    runs.append(directory.truncate(two))
    for run in runs if order == "first run first" else reversed(runs):
        assert run is not None
        undo_run(FS, run)
    assert {path: contents for path, (contents, *_) in facts(directory.path).items()} == before


def test_an_undo_alone_restores_every_file_with_its_times(directory: Directory) -> None:
    for verb in ("truncate", "repair", "recover"):
        directory.damage(PARTITIONS[0])
        before = directory.tree()
        run = getattr(directory, verb)(PARTITIONS[0])
        undo_run(FS, run)
        assert directory.tree() == before


def appended(directory: Directory, key: TopicPartition) -> None:
    with directory.opened() as owner:
        owner.log(key).append([Record(b"new")])


def begun_anew(directory: Directory, key: TopicPartition) -> None:
    (directory.path / str(key) / f"{10**9:020d}.log").touch()


def deleted(directory: Directory, key: TopicPartition) -> None:
    with directory.opened() as owner:
        owner.log(key).increment_log_start_offset(owner.log(key).log_end_offset)


def removed(directory: Directory, key: TopicPartition) -> None:
    (directory.path / str(key)).rename(directory.path.parent / "moved-away")


def made_anew(directory: Directory, key: TopicPartition) -> None:
    (directory.path / str(key) / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")


@pytest.mark.parametrize("change", [appended, begun_anew, deleted, removed, made_anew])
@pytest.mark.parametrize("verb", ["truncate", "repair", "recover"])
def test_a_partition_that_went_on_is_refused_before_anything_changes(
    directory: Directory, verb: str, change: Callable[[Directory, TopicPartition], None]
) -> None:
    run = made(directory, verb, PARTITIONS[0])
    change(directory, PARTITIONS[0])
    before = directory.tree()
    with pytest.raises(ChangedSinceError, match=r"orders-none-0.* since .*undoing would lose the change"):
        undo_run(FS, run)
    assert directory.tree() == before


def test_a_checkpoint_that_nobody_can_read_any_more_is_refused_before_anything_changes(directory: Directory) -> None:
    run = made(directory, "truncate", PARTITIONS[0])
    (directory.path / "replication-offset-checkpoint").write_text("0\n9\n")
    before = directory.tree()
    with pytest.raises(RefusedError, match="can be undone after"):
        undo_run(FS, run)
    assert directory.tree() == before


def test_entries_of_other_partitions_stay_as_others_wrote_them(directory: Directory) -> None:
    one, two = PARTITIONS[:2]
    before = directory.state(one)
    run = made(directory, "truncate", one)
    for name in OFFSET_CHECKPOINTS[:3]:
        (directory.path / name).write_bytes(format_offset_checkpoint(directory.entries(name) | {two: 7, one: 1}))
    if directory.entries("log-start-offset-checkpoint").get(one):
        (directory.path / "log-start-offset-checkpoint").write_bytes(format_offset_checkpoint({two: 7}))
    undo_run(FS, run)
    assert directory.state(one)[1] == before[1]
    assert all(directory.entries(name)[two] == 7 for name in OFFSET_CHECKPOINTS[:3])
