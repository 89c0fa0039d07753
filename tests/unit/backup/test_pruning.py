"""A prune removes what the rules do not keep, and never what a snapshot names."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from seglog.errors import CorruptTierError, RefusedError
from seglog.storage.local import LocalFileSystem
from seglog.storage.routing import RoutingFileSystem, machine_files
from seglog_rescue.backup.pruning import KeepRules, prune, snapshots_to_keep
from seglog_rescue.backup.repository import PRUNED, Repository, snapshot_id
from seglog_rescue.backup.restoring import verify_snapshots
from seglog_rescue.operations.backup import BackupRequest, backup
from tests.support.faulty_filesystem import Faults, FaultyFileSystem, Killed
from tests.support.log_files import batch
from tests.support.manual_clock import ManualClock

DAY_MS = 24 * 60 * 60 * 1000
NOW = 1_764_331_200_000  # a Friday at noon
FAR = 10**15  # everything on this machine's disks is older than this


def ids(*days_ago: float, source: str = "0000000a") -> list[str]:
    return [snapshot_id(round(NOW - days * DAY_MS), source) for days in days_ago]


@pytest.mark.parametrize(
    ("rules", "days"),
    [
        (KeepRules(last=2), (0, 0.1)),
        (KeepRules(daily=3), (0, 1, 2)),
        (KeepRules(weekly=2), (0, 5)),
        (KeepRules(monthly=2), (0, 28)),
        (KeepRules(last=1, daily=2, monthly=3), (0, 1, 28, 60)),
    ],
)
def test_rules_keep_the_last_of_their_periods(rules: KeepRules, days: tuple[float, ...]) -> None:
    every = ids(0, 0.1, 0.2, 1, 1.1, 2, 3, 5, 6, 12, 28, 29, 60)
    assert snapshots_to_keep(every, rules) == set(ids(*days))


def test_the_rules_apply_to_each_set_of_directories_and_leave_its_newest(tmp_path: Path) -> None:
    one, other = ids(0, 1, 2), ids(30, 31, source="0000000b")
    assert snapshots_to_keep([*one, *other], KeepRules(last=1)) == {one[0], other[0]}
    assert snapshots_to_keep(other, KeepRules(daily=0, weekly=0, last=0, monthly=0)) == {other[0]}


def filled(tmp_path: Path, runs: int = 3, store: RoutingFileSystem | None = None) -> Repository:
    """A repository with a snapshot for each day, of a log that is written anew each time."""
    log = tmp_path / "logs" / "orders-0" / "00000000000000000000.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    for day in range(runs):
        fresh = tmp_path / "logs" / "new"
        fresh.write_bytes(b"".join(batch(i, value=bytes([day]) * 200_000) for i in range(6)))
        fresh.rename(log)
        request, clock = BackupRequest([tmp_path / "logs"], tmp_path / "backup"), ManualClock(NOW + day * DAY_MS)
        backup(LocalFileSystem(), machine_files(), clock, request)
    return Repository(store or machine_files(), tmp_path / "backup")


def problems(repository: Repository) -> list[object]:
    return list(verify_snapshots(repository, repository.ids(), 1, random.Random(1), lambda _size: None).problems)


def test_objects_of_a_removed_snapshot_go_after_the_grace_period_and_no_others(tmp_path: Path) -> None:
    repository = filled(tmp_path)
    first, second, third = repository.ids()
    count = len(list(repository.objects()))
    done = prune(repository, KeepRules(last=1), FAR, FAR)
    assert done.removed == [first, second] and done.objects == 0
    assert repository.ids() == [third] and repository.ids(PRUNED) == [first, second]
    assert len(list(repository.objects())) == count
    again = prune(repository, KeepRules(last=1), FAR)
    assert again.objects == 2 and again.bytes > 2_400_000
    assert repository.ids(PRUNED) == [] and problems(repository) == []
    assert {name for name, _ in repository.objects()} == repository.read(third).objects()


def test_a_dry_run_says_what_goes_and_removes_nothing(tmp_path: Path) -> None:
    repository = filled(tmp_path)
    before = sorted(path for path in (tmp_path / "backup").rglob("*"))
    said = prune(repository, KeepRules(last=1), FAR, 0, dry_run=True)
    assert sorted(path for path in (tmp_path / "backup").rglob("*")) == before
    assert said == prune(repository, KeepRules(last=1), FAR, 0)
    assert said.objects == 2


def test_remains_of_runs_that_were_cut_short_go_too(tmp_path: Path) -> None:
    repository = filled(tmp_path, 1)
    (tmp_path / "backup" / "objects" / "0123.pack.77.part").write_bytes(b"half")
    assert prune(repository, KeepRules(last=1), NOW).objects == 0
    assert prune(repository, KeepRules(last=1), FAR).objects == 1
    assert problems(repository) == []


def test_a_damaged_manifest_and_a_prune_without_rules_remove_nothing(tmp_path: Path) -> None:
    repository = filled(tmp_path)
    with pytest.raises(RefusedError):
        prune(repository, KeepRules(), FAR)
    path = repository.manifest_path(repository.ids()[0])
    path.write_bytes(path.read_bytes()[:-10])
    before = len(list(repository.objects()))
    with pytest.raises(CorruptTierError):
        prune(repository, KeepRules(last=1), FAR, 0)
    assert len(repository.ids()) == 3 and len(list(repository.objects())) == before


def test_a_run_whose_last_snapshot_was_pruned_meanwhile_commits_nothing(tmp_path: Path) -> None:
    repository = filled(tmp_path, 1)
    (base,) = repository.ids()

    class Pruning(ManualClock):
        def now_ms(self) -> int:
            if self.asked:
                repository.discard_manifest(base)
            self.asked = True
            return super().now_ms()

    clock = Pruning(NOW + 9 * DAY_MS)
    clock.asked = False
    with pytest.raises(RefusedError, match="was pruned meanwhile"):
        backup(LocalFileSystem(), machine_files(), clock, BackupRequest([tmp_path / "logs"], tmp_path / "backup"))
    assert repository.ids() == []


def test_a_prune_killed_at_any_call_leaves_every_snapshot_whole(tmp_path: Path) -> None:
    filled(tmp_path / "model")
    faults = Faults()
    work = tmp_path / "work"
    for at in range(200):
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(tmp_path / "model", work)
        faults = Faults(at, "killed")
        store = RoutingFileSystem(FaultyFileSystem(faults), lambda: pytest.fail("no store"))
        try:
            prune(Repository(store, work / "backup"), KeepRules(last=1), FAR, 0)
        except Killed:
            pass
        else:
            break
        repository = Repository(machine_files(), work / "backup")
        assert problems(repository) == [], faults.call
        prune(repository, KeepRules(last=1), FAR, 0)
        assert problems(repository) == [] and len(repository.ids()) == 1, faults.call
        assert {name for name, _ in repository.objects()} == repository.read(repository.ids()[0]).objects()
    assert at > 10
