"""Whatever fails while a backup runs: what is listed restores, nothing else is believed, and the next run works."""

from __future__ import annotations

import random
import shutil
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from seglog.errors import SeglogError
from seglog.locations import parse_location
from seglog.storage.filesystem import FileSystem
from seglog.storage.local import LocalFileSystem
from seglog.storage.routing import RoutingFileSystem, machine_files
from seglog_rescue.backup.pruning import KeepRules, prune
from seglog_rescue.backup.repository import Repository
from seglog_rescue.backup.restoring import restore_snapshots, verify_snapshots
from seglog_rescue.operations.backup import BackupOutcome, BackupRequest, backup
from seglog_stores.remote.filesystem import RemoteFileSystem
from tests.support.crash_filesystem import CrashFileSystem, PowerCut
from tests.support.faulty_filesystem import FAULTS, Faults, FaultyFileSystem, Killed, calls_of, moments
from tests.support.log_files import batch, contents_below
from tests.support.manual_clock import ManualClock
from tests.support.object_server import Fault, ObjectServer, object_server

NOW = 1_764_331_200_000


def no_store() -> RemoteFileSystem:
    raise AssertionError("no URL was named")


def routed(fs: FileSystem) -> RoutingFileSystem:
    return RoutingFileSystem(fs, no_store)


def logs_in(directory: Path, *names: str) -> Path:
    """A log directory whose partitions have one large segment, or several extents' worth of small ones."""
    for name in names:
        (directory / name).mkdir(parents=True)
        data = b"".join(batch(i, value=bytes([i]) * 150_000) for i in range(8))
        (directory / name / "00000000000000000000.log").write_bytes(data if name.startswith("large") else data[:1000])
    return directory


def grow(logs: Path) -> None:
    for log in logs.glob("*/*.log"):
        with log.open("ab") as file:
            file.write(b"".join(batch(i, value=bytes([i]) * 150_000) for i in range(8, 16)))


def run(logs: Path, place: Path, store: RoutingFileSystem | None = None, at: int = 0) -> BackupOutcome:
    clock = ManualClock(NOW + at)
    return backup(LocalFileSystem(), store or machine_files(), clock, BackupRequest([logs], place))


def require_whole(repository: Repository) -> None:
    done = verify_snapshots(repository, repository.ids(), 1, random.Random(1), lambda _size: None)
    assert done.problems == []


def require_restored(repository: Repository, logs: Path, target: Path) -> None:
    snapshot = repository.read(repository.ids()[-1])
    restore_snapshots(repository, [snapshot], LocalFileSystem(), target, lambda _size: None)
    assert contents_below(target) == contents_below(logs)
    shutil.rmtree(target)


@pytest.mark.parametrize("kind", FAULTS)
def test_a_run_that_fails_at_any_call_leaves_no_snapshot_and_no_harm(tmp_path: Path, kind: str) -> None:
    """SEGLOG_EFFORT=10 lets each call fail in turn."""
    logs, place, model = logs_in(tmp_path / "logs", "large-0", "small-0"), tmp_path / "backup", tmp_path / "model"
    run(logs, model)
    grow(logs)

    def work(fs: FileSystem) -> None:
        run(logs, place, routed(fs), at=1000)

    shutil.copytree(model, place)
    calls = calls_of(work)
    for at in moments(calls, kind):
        shutil.rmtree(place)
        shutil.copytree(model, place)
        faults = Faults(at, kind)
        with suppress(OSError, Killed):
            work(FaultyFileSystem(faults))
        repository = Repository(machine_files(), place)
        require_whole(repository)
        run(logs, place, at=2000)
        require_whole(repository)
        require_restored(repository, logs, tmp_path / "new")


@pytest.mark.parametrize("kind", ["error", "full", "killed"])
def test_a_restore_that_fails_leaves_nothing_under_the_name(tmp_path: Path, kind: str) -> None:
    logs = logs_in(tmp_path / "logs", "large-0", "small-0")
    run(logs, tmp_path / "backup")
    repository = Repository(machine_files(), tmp_path / "backup")
    snapshot = repository.read(repository.ids()[-1])

    def work(fs: FileSystem) -> None:
        shutil.rmtree(tmp_path / "new", ignore_errors=True)
        restore_snapshots(repository, [snapshot], fs, tmp_path / "new", lambda _size: None)

    for at in moments(calls_of(work), kind):
        with suppress(OSError, Killed):
            work(FaultyFileSystem(Faults(at, kind)))
        if (tmp_path / "new").exists():
            assert contents_below(tmp_path / "new") == contents_below(logs)
        work(LocalFileSystem())
        assert contents_below(tmp_path / "new") == contents_below(logs)


def test_what_a_power_cut_leaves_listed_restores(tmp_path: Path) -> None:
    """SEGLOG_EFFORT=10 cuts at each change, with more luck."""
    logs, place = logs_in(tmp_path / "logs", "large-0", "small-0"), tmp_path / "backup"
    place.mkdir()
    run(logs, place)
    grow(logs)
    whole = CrashFileSystem.of(place)
    run(logs, place, routed(whole), at=1000)
    shutil.rmtree(place)
    place.mkdir()
    for change in moments(whole.mutations, "killed"):
        fs = CrashFileSystem.of(place)
        fs.cut_at(change, 0.5)
        with suppress(PowerCut):
            run(logs, place, routed(fs), at=1000)
        for seed in range(3):
            survivor = fs.survivor(seed)
            store = routed(survivor)
            require_whole(Repository(store, place))
            run(logs, place, store, at=2000)
            require_whole(Repository(store, place))
            assert Repository(store, place).ids()


def test_a_committed_snapshot_outlives_a_power_cut(tmp_path: Path) -> None:
    logs, place = logs_in(tmp_path / "logs", "large-0", "small-0"), tmp_path / "backup"
    fs = CrashFileSystem.of(tmp_path / "elsewhere")
    fs.make_directory(tmp_path, parents=True)
    fs.sync_all()
    run(logs, place, routed(fs))
    for seed in range(5):
        repository = Repository(routed(fs.survivor(seed)), place)
        assert len(repository.ids()) == 1
        require_whole(repository)


# --- writers at once, and a failing bucket ----------------------------------------------------------------


def test_a_repository_that_another_run_makes_meanwhile_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs, others, place = (tmp_path / name for name in ("logs", "others", "backup"))
    logs_in(logs, "small-0")
    logs_in(others, "large-0")
    is_new = Repository.is_new

    def after_another_run(repository: Repository) -> bool:
        monkeypatch.setattr(Repository, "is_new", is_new)
        run(others, place, at=1)
        return repository.is_new()

    monkeypatch.setattr(Repository, "is_new", after_another_run)
    run(logs, place, at=2)
    repository = Repository(machine_files(), place)
    assert len(repository.ids()) == 2
    require_whole(repository)


def test_brokers_write_into_one_repository_at_once(tmp_path: Path) -> None:
    broken: list[Exception] = []

    def work(number: int) -> None:
        try:
            logs = tmp_path / f"logs{number}"
            for at in range(4):
                run(logs, tmp_path / "backup", at=at * 10 + number)
                grow(logs)
        except (OSError, SeglogError) as error:
            broken.append(error)

    for number in range(3):
        logs_in(tmp_path / f"logs{number}", "large-0", "small-0")
    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert broken == []
    repository = Repository(machine_files(), tmp_path / "backup")
    assert len(repository.ids()) == 12
    require_whole(repository)


def test_two_runs_of_one_directory_at_once_both_restore(tmp_path: Path) -> None:
    logs, place = logs_in(tmp_path / "logs", "large-0", "small-0"), tmp_path / "backup"
    run(logs, place)
    grow(logs)

    class Overtaken(ManualClock):
        """A clock that lets another run begin and end between the beginning and the end of this one."""

        asked = 0

        def now_ms(self) -> int:
            self.asked += 1
            if self.asked == 2:
                run(logs, place, at=3000)
                prune(Repository(machine_files(), place), KeepRules(last=2), NOW + 4000)
            return super().now_ms()

    backup(LocalFileSystem(), machine_files(), Overtaken(NOW + 5000), BackupRequest([logs], place))
    repository = Repository(machine_files(), place)
    assert len(repository.ids()) == 3
    require_whole(repository)
    require_restored(repository, logs, tmp_path / "new")


def bucket(server: ObjectServer, monkeypatch: pytest.MonkeyPatch, **environment: str) -> RoutingFileSystem:
    for name, value in {**server.environment, **environment}.items():
        monkeypatch.setenv(name, value)
    remote = RemoteFileSystem()
    return RoutingFileSystem(LocalFileSystem(), lambda: remote)


def test_a_bucket_holds_what_a_directory_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs, place = logs_in(tmp_path / "logs", "large-0", "small-0"), parse_location("s3://bkt/backup")
    with object_server() as server:
        first = run(logs, place, bucket(server, monkeypatch))
        asked = len(server.asked)
        again = run(logs, place, bucket(server, monkeypatch), at=1000)
        assert first.sent.objects == 2 and again.sent.objects == 0
        assert len(server.asked) - asked <= 11
        repository = Repository(bucket(server, monkeypatch), place)
        require_whole(repository)
        require_restored(repository, logs, tmp_path / "new")
        grow(logs)
        run(logs, place, bucket(server, monkeypatch), at=2000)
        prune(Repository(bucket(server, monkeypatch), place), KeepRules(last=1), 10**15, 0)
        repository = Repository(bucket(server, monkeypatch), place)
        assert len(repository.ids()) == 1
        assert {name for name, _ in repository.objects()} == repository.read(repository.ids()[0]).objects()
        require_restored(repository, logs, tmp_path / "new")


@pytest.mark.parametrize("retries", ["0", "6"])
def test_a_bucket_that_fails_in_a_tenth_of_its_requests_lists_only_what_restores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, retries: str
) -> None:
    logs, place = logs_in(tmp_path / "logs", "large-0", *(f"small-{i}" for i in range(5))), parse_location("s3://b/x")
    chance = random.Random(45)

    def failing(_method: str, _path: str) -> Fault | None:
        return Fault(503, "SlowDown") if chance.random() < 0.1 else None

    with object_server() as server:
        ended = 0
        for at in range(12):
            server.fault = failing
            with suppress(OSError):
                run(logs, place, bucket(server, monkeypatch, SEGLOG_REMOTE_RETRIES=retries), at=at * 1000)
                ended += 1
            server.fault = no_fault
            repository = Repository(bucket(server, monkeypatch), place)
            assert len(repository.ids()) >= ended  # an answer may be lost where the object is made
            require_whole(repository)
            if at == 5:
                grow(logs)
        assert ended == 12 or retries == "0"  # without a retry, a run rarely ends
        run(logs, place, bucket(server, monkeypatch), at=99_000)
        require_restored(Repository(bucket(server, monkeypatch), place), logs, tmp_path / "new")


def test_a_run_with_nothing_new_asks_a_bucket_of_many_objects_little_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs, place = logs_in(tmp_path / "logs", "small-0"), parse_location("s3://bkt/backup")
    with object_server() as server:
        run(logs, place, bucket(server, monkeypatch))
        server.objects |= {f"bkt/backup/packs/{number:032x}.pack": b"" for number in range(2 * server.page)}
        asked = len(server.asked)
        assert run(logs, place, bucket(server, monkeypatch), at=1000).sent.objects == 0
        assert len(server.asked) - asked <= 11


@pytest.mark.parametrize("retries", ["0", "6"])
def test_packs_are_written_anew_in_a_bucket_that_fails_in_a_tenth_of_its_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, retries: str
) -> None:
    """Whatever request fails, what is listed restores; the prune that ends has left what snapshots name."""
    logs, place = tmp_path / "logs", parse_location("s3://b/x")
    for name, size in (("stays-0", 100), ("goes-0", 150_000), ("goes-1", 150_000)):
        (logs / name).mkdir(parents=True)
        (logs / name / "00000000000000000000.log").write_bytes(batch(0, value=random.Random(name).randbytes(size)))
    chance, ended = random.Random(45), 0

    def failing(_method: str, _path: str) -> Fault | None:
        return Fault(503, "SlowDown") if chance.random() < 0.1 else None

    with object_server() as server:
        for at in range(4):
            run(logs, place, bucket(server, monkeypatch), at=at * 1000)
            for gone in logs.glob("goes-*"):
                shutil.rmtree(gone)
        for _ in range(20):
            server.fault = failing
            with suppress(OSError):
                store = bucket(server, monkeypatch, SEGLOG_REMOTE_RETRIES=retries)
                ended += prune(Repository(store, place), KeepRules(last=3), 10**15, 0).packs
            server.fault = no_fault
            repository = Repository(bucket(server, monkeypatch), place)
            assert len(repository.ids()) >= 3
            require_whole(repository)
            require_restored(repository, logs, tmp_path / "new")
            if ended:
                break
        assert ended or retries == "0"  # without a retry, a prune rarely ends
        prune(repository, KeepRules(last=3), 10**15, 0)
        named = {name for identity in repository.ids() for name in repository.read(identity).objects()}
        assert {name for name, _ in repository.objects()} == named
        assert max(status.size for _, status in repository.objects()) < 1000  # without what had gone


def no_fault(_method: str, _path: str) -> Fault | None:
    return None
