"""A prune removes what the rules do not keep, and never what a snapshot names."""

from __future__ import annotations

import os
import random
import shutil
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from seglog.errors import CorruptTierError, RefusedError
from seglog.storage.filesystem import FileSystem
from seglog.storage.local import LocalFileSystem
from seglog.storage.routing import RoutingFileSystem, machine_files
from seglog_rescue.backup.moving import ExtentMover
from seglog_rescue.backup.pruning import KeepRules, prune, snapshots_to_keep
from seglog_rescue.backup.repository import PRUNED, Repository, snapshot_id
from seglog_rescue.backup.restoring import verify_snapshots
from seglog_rescue.operations.backup import BackupRequest, backup
from tests.support.crash_filesystem import CrashFileSystem, PowerCut
from tests.support.faulty_filesystem import FAULTS, Faults, FaultyFileSystem, Killed, calls_of, moments
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


def with_sparse_pack(tmp_path: Path) -> Repository:
    """A repository whose first pack has two logs, of which the newest snapshot has the smaller one alone."""
    logs = tmp_path / "logs"
    for name, size in (("stays-0", 200_000), ("goes-0", 600_000)):
        (logs / name).mkdir(parents=True)
        (logs / name / "00000000000000000000.log").write_bytes(batch(0, value=random.Random(name).randbytes(size)))
    for day in range(3):
        request, clock = BackupRequest([logs], tmp_path / "backup"), ManualClock(NOW + day * DAY_MS)
        backup(LocalFileSystem(), machine_files(), clock, request)
        shutil.rmtree(logs / "goes-0", ignore_errors=True)
    return Repository(machine_files(), tmp_path / "backup")


def size_of_packs(repository: Repository) -> int:
    return sum(status.size for _, status in repository.objects())


def test_bytes_that_two_manifests_give_two_digests_are_not_moved(tmp_path: Path) -> None:
    repository = with_sparse_pack(tmp_path)
    (extent,) = next(file for file in repository.read(repository.ids()[0]).all_files() if file.size > 100_000).extents
    mover = ExtentMover(repository, frozenset({extent.object}))
    (moved,) = mover.moved("00000000000000000000.log", "goes-0/_", (extent,))
    assert moved.object != extent.object and (moved.size, moved.digest) == (extent.size, extent.digest)
    assert mover.moved("00000000000000000000.log", "goes-0/_", (extent,)) == (moved,)
    with pytest.raises(CorruptTierError, match="pack"):
        mover.moved("00000000000000000000.log", "goes-0/_", (replace(extent, digest="0" * 32),))


def test_a_pack_of_which_little_is_named_is_written_anew_and_goes_after_the_grace_period(tmp_path: Path) -> None:
    repository = with_sparse_pack(tmp_path)
    first, second, third = repository.ids()
    before = [repository.read(identity) for identity in (second, third)]
    assert prune(repository, KeepRules(last=3), FAR, FAR).packs == 0  # all of it is named
    done = prune(repository, KeepRules(last=2), FAR, FAR)
    assert done.packs == 0  # the removed one waits, and a run may build on it
    prune(repository, KeepRules(last=2), FAR, FAR)
    repository.discard_manifest(first, PRUNED)  # as a prune does that finds it waited long enough
    done = prune(repository, KeepRules(last=2), FAR, FAR)
    assert done.packs == 1 and done.objects == 0 and size_of_packs(repository) > 1_000_000
    assert repository.ids(PRUNED) == [second, third]
    for old in before:
        new = repository.read(old.id)
        assert not new.objects() & old.objects()
        assert [(file.name, file.size, file.tail) for file in new.all_files()] == [
            (file.name, file.size, file.tail) for file in old.all_files()
        ]
        assert repository.read(old.id, PRUNED) == old
    assert new.objects() == repository.read(second).objects()  # shared as before
    again = prune(repository, KeepRules(last=2), FAR)
    assert again.objects == 1 and again.bytes > 800_000 and again.packs == 0
    assert size_of_packs(repository) < 300_000 and problems(repository) == []
    request, clock = BackupRequest([tmp_path / "logs"], tmp_path / "backup"), ManualClock(NOW + 9 * DAY_MS)
    assert backup(LocalFileSystem(), machine_files(), clock, request).sent.objects == 0


def test_a_run_that_builds_on_a_manifest_before_its_pack_was_written_anew_is_whole(tmp_path: Path) -> None:
    repository = with_sparse_pack(tmp_path)
    prune(repository, KeepRules(last=1), FAR, FAR)
    for identity in repository.ids(PRUNED):
        repository.discard_manifest(identity, PRUNED)

    class Pruning(ManualClock):
        asked = 0

        def now_ms(self) -> int:
            self.asked += 1
            if self.asked == 2:
                assert prune(repository, KeepRules(last=1), FAR, FAR).packs == 1
            return super().now_ms()

    request = BackupRequest([tmp_path / "logs"], tmp_path / "backup")
    backup(LocalFileSystem(), machine_files(), Pruning(NOW + 9 * DAY_MS), request)
    prune(repository, KeepRules(last=2), FAR)
    assert len(repository.ids()) == 2 and problems(repository) == []


def test_what_a_run_may_still_name_stays_when_its_snapshot_is_replaced_and_then_removed(tmp_path: Path) -> None:
    repository = with_sparse_pack(tmp_path)
    prune(repository, KeepRules(last=2), FAR, FAR)
    repository.discard_manifest(repository.ids(PRUNED)[0], PRUNED)
    second = repository.read(repository.ids()[0])
    assert prune(repository, KeepRules(last=2), FAR, FAR).packs == 1
    replaced = repository.read(second.id)
    for _ in range(2):  # the second one finds its copy there
        prune(repository, KeepRules(last=1), FAR, FAR)
        assert repository.read(second.id, PRUNED).objects() == second.objects() | replaced.objects()
        assert second.objects() <= {name for name, _ in repository.objects()}
        repository.write(replaced)  # as if it had been killed before it removed the manifest


def test_the_copy_of_a_manifest_waits_anew_when_an_earlier_one_has_expired(tmp_path: Path) -> None:
    repository, now_ms = with_sparse_pack(tmp_path), time.time_ns() // 1_000_000
    first, second, third = repository.ids()
    for identity in (first, second, third):
        repository.replace(repository.manifest(identity), PRUNED)
        long_ago = (now_ms - 2 * DAY_MS) / 1000
        os.utime(repository.manifest_path(identity, PRUNED), (long_ago, long_ago))
    repository.discard_manifest(first)
    repository.discard_manifest(first, PRUNED)
    before = repository.read(third)
    done = prune(repository, KeepRules(last=1), now_ms)
    assert (done.removed, done.packs) == ([second], 1)
    assert repository.ids(PRUNED) == [second, third] and repository.read(third, PRUNED) == before
    assert repository.read(third) != before and problems(repository) == []


def test_no_pack_is_written_anew_while_records_are_erased(tmp_path: Path) -> None:
    repository = with_sparse_pack(tmp_path)
    repository.create("redactions/00000001.begun", b"{}\n")
    before = [repository.read(identity) for identity in repository.ids()]
    with pytest.raises(RefusedError, match="--resume"):
        prune(repository, KeepRules(last=2), FAR, 0)
    assert [repository.read(each.id) for each in before[1:]] == before[1:] and problems(repository) == []


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


@pytest.mark.parametrize("kind", FAULTS)
def test_a_prune_that_writes_packs_anew_may_fail_at_any_call(tmp_path: Path, kind: str) -> None:
    """SEGLOG_EFFORT=10 lets each call fail in turn."""
    with_sparse_pack(tmp_path / "model")
    place = tmp_path / "work"

    def work(fs: FileSystem) -> None:
        store = RoutingFileSystem(fs, lambda: pytest.fail("no store"))
        assert prune(Repository(store, place), KeepRules(last=2), FAR, 0).packs == 1

    shutil.copytree(tmp_path / "model" / "backup", place)
    for at in moments(calls_of(work), kind):
        shutil.rmtree(place)
        shutil.copytree(tmp_path / "model" / "backup", place)
        with suppress(OSError, Killed):
            work(FaultyFileSystem(Faults(at, kind)))
        repository = Repository(machine_files(), place)
        assert problems(repository) == [] and len(repository.ids()) >= 2
        prune(repository, KeepRules(last=2), FAR, 0)
        assert problems(repository) == [] and repository.ids(PRUNED) == []
        assert size_of_packs(repository) < 500_000  # once for each snapshot, if it failed between their manifests


def test_whatever_a_power_cut_leaves_of_a_prune_that_writes_packs_anew_restores(tmp_path: Path) -> None:
    """SEGLOG_EFFORT=10 cuts at each change, with more luck."""
    with_sparse_pack(tmp_path)
    place = tmp_path / "backup"

    def pruned(fs: FileSystem) -> Repository:
        repository = Repository(RoutingFileSystem(fs, lambda: pytest.fail("no store")), place)
        prune(repository, KeepRules(last=2), FAR, 0)
        return repository

    whole = CrashFileSystem.of(place)
    pruned(whole)
    for change in moments(whole.mutations, "killed"):
        fs = CrashFileSystem.of(place)
        fs.cut_at(change, 0.5)
        with suppress(PowerCut):
            pruned(fs)
        for seed in range(2):
            survivor = fs.survivor(seed)
            left = Repository(RoutingFileSystem(survivor, lambda: pytest.fail("no store")), place)
            assert problems(left) == [] and len(left.ids()) >= 2
            assert problems(pruned(survivor)) == []
