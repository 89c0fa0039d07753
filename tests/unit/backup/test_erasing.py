"""What is erased from a backup is in none of its objects afterwards, and every listed snapshot always restores."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

import seglog
from seglog.errors import RefusedError, UnsupportedError
from seglog.format.compression import compress
from seglog.locations import parse_location
from seglog.model import Compression, TopicPartition
from seglog.operations.redact import RedactionRequest
from seglog.redaction.selection import RecordsToErase
from seglog.scan.key_set import KeySet
from seglog.scan.log_walk import Gap, LogWalk
from seglog.scan.offset_set import OffsetSet
from seglog.storage.filesystem import FileSystem
from seglog.storage.local import LocalFileSystem
from seglog.storage.routing import RoutingFileSystem, machine_files
from seglog_rescue.backup.erasures import known_erasures
from seglog_rescue.backup.moving import ExtentMover, moved_part
from seglog_rescue.backup.pruning import KeepRules, prune
from seglog_rescue.backup.repository import PRUNED, Repository
from seglog_rescue.backup.restoring import restore_snapshots, verify_snapshots
from seglog_rescue.operations.backup import BackupOutcome, BackupRequest, backup
from seglog_rescue.operations.backup_redact import BackupRedaction
from seglog_stores.formats.snapshot_manifest import Part, StoredPartition
from seglog_stores.formats.snapshot_reading import KnownLines, Manifest
from seglog_stores.remote.filesystem import RemoteFileSystem
from tests.support.crash_filesystem import CrashFileSystem, PowerCut
from tests.support.faulty_filesystem import FAULTS, Faults, FaultyFileSystem, Killed, calls_of, moments
from tests.support.log_files import batch
from tests.support.manual_clock import ManualClock
from tests.support.naive import NaiveRecord, batch_v2, message
from tests.support.object_server import object_server

NOW = 1_764_331_200_000
SECRET, KEY, OTHER = b"the secret of customer 7", b"customer-7", b"what another customer said"
LOG, INDEX = "00000000000000000000.log", "00000000000000000000.index"


def keyed(offset: int, key: bytes, value: bytes, codec: Compression = Compression.NONE) -> bytes:
    """A batch with a record of another customer, and one of this key."""
    records = [NaiveRecord(0, 0, b"other", OTHER), NaiveRecord(1, 1, key, value)]
    body = compress(codec, b"".join(record.encode() for record in records)) if codec else None
    return batch_v2(offset, records, attributes=int(codec), payload=body)


def write(logs: Path, name: str, *batches: bytes) -> None:
    """Appends to a partition's log, and builds its indexes anew."""
    (logs / name).mkdir(parents=True, exist_ok=True)
    with (logs / name / LOG).open("ab") as file:
        file.write(b"".join(batches))
    seglog.reindex(logs / name)


def logs_in(logs: Path) -> Path:
    """A log of large extents, and one of small ones."""
    large = [batch(offset, value=random.Random(offset).randbytes(120_000)) for offset in range(12)]
    write(logs, "large-0", *large, keyed(12, KEY, SECRET, Compression.ZSTD), batch(14, value=bytes(9000)))
    write(logs, "small-0", keyed(0, KEY, SECRET), keyed(2, b"other", OTHER))
    write(logs, "without-0", keyed(0, b"other", OTHER))
    return logs


def grow(logs: Path, offset: int = 15) -> None:
    write(logs, "large-0", batch(offset, value=bytes([offset]) * 9000), keyed(offset + 1, KEY, SECRET))


def run(logs: Path, place: Path, at: int = 0, store: RoutingFileSystem | None = None) -> BackupOutcome:
    return backup(LocalFileSystem(), store or machine_files(), ManualClock(NOW + at), BackupRequest([logs], place))


def redacted(
    repository: Repository, key: bytes = KEY, *, resume: bool = False, topics: tuple[str, ...] = (), **what: bool
) -> BackupRedaction:
    """Erases, and searches afterwards."""
    request = RedactionRequest.of(RecordsToErase(KeySet([key])), **what)
    work = BackupRedaction(repository, ManualClock(NOW + 10**6), request, topics)
    work.search()
    if not request.dry_run:
        work.apply(resume=resume)
    return work


def routed(fs: FileSystem) -> RoutingFileSystem:
    return RoutingFileSystem(fs, lambda: pytest.fail("no URL was named"))


def repository_at(place: Path, store: RoutingFileSystem | None = None) -> Repository:
    return Repository(store or machine_files(), place)


def objects_with(repository: Repository, needle: bytes) -> list[str]:
    """All objects in whose bytes, or in whose decompressed batches, some bytes lie."""
    found = []
    for name, _ in repository.objects():
        path = repository.place / name
        walk = LogWalk(repository.fs, path)
        parts = [part.arena.tobytes() for piece in walk if not isinstance(piece, Gap) for part in piece.records()]
        if any(needle in data for data in (repository.fs.read_bytes(path), *parts)):
            found.append(name)
    return found


def require_whole(repository: Repository) -> None:
    done = verify_snapshots(repository, repository.ids(), 1, random.Random(1), lambda _size: None)
    assert done.problems == []


def restored(repository: Repository, identity: str, target: Path) -> Path:
    snapshot = repository.read(identity)
    restore_snapshots(repository, [snapshot], LocalFileSystem(), target, lambda _size: None)
    return target


def values(partition: Path) -> list[tuple[bytes | None, bytes | None]]:
    with seglog.open_log(partition) as log:
        return [(record.key, record.value) for record in log.records()]


def test_what_is_erased_is_in_no_object_and_everything_else_as_it_was(tmp_path: Path) -> None:
    logs, place = logs_in(tmp_path / "logs"), tmp_path / "backup"
    run(logs, place)
    grow(logs)
    run(logs, place, 1000)
    repository = repository_at(place)
    before = [restored(repository, identity, tmp_path / f"old{identity}") for identity in repository.ids()]
    assert len(objects_with(repository, SECRET)) > 1 and objects_with(repository, OTHER)
    untouched = {name for name in repository.read(repository.ids()[0]).objects() if "without" in name}
    work = redacted(repository)
    assert work.prove() == () and work.report(()).complete
    assert objects_with(repository, SECRET) == [] and objects_with(repository, OTHER)
    assert untouched <= {name for name, _ in repository.objects()}
    require_whole(repository)
    for i, (identity, old) in enumerate(zip(repository.ids(), before, strict=True)):
        new = restored(repository, identity, tmp_path / f"new{i}")
        assert sorted(path.name for path in new.rglob("*")) == sorted(path.name for path in old.rglob("*"))
        seglog.redact(old, keys=[KEY], replicas=1)
        for name in ("large-0", "small-0", "without-0"):
            assert values(new / name) == values(old / name)
            assert (new / name / LOG).read_bytes() == (old / name / LOG).read_bytes()
            assert list(seglog.verify(new / name)) == []


def test_a_partition_that_a_manifest_names_in_another_state_is_searched_too(tmp_path: Path) -> None:
    """The reader of manifests takes the names of all partition directories; `backup` stores those that are served."""
    logs, place = logs_in(tmp_path / "logs"), tmp_path / "backup"
    run(logs, place)
    repository = repository_at(place)
    (identity,) = repository.ids()
    stray = "small-0.6b9f2c7d3e5a4f0c8d1b2a3c4d5e6f70-stray"

    def renamed(part: Part) -> Part:
        return replace(part, name=stray) if is_small(part) else part

    def is_small(part: Part) -> bool:
        return isinstance(part, StoredPartition) and part.name == "small-0"

    repository.replace(repository.manifest(identity).changed(KnownLines(is_small), renamed))
    assert redacted(repository, topics=("small",)).found[0].topic_partition == TopicPartition("small", 0)
    redacted(repository)
    assert objects_with(repository, SECRET) == []
    require_whole(repository)


def test_what_snapshots_share_is_searched_and_written_anew_once(tmp_path: Path) -> None:
    logs, place = logs_in(tmp_path / "logs"), tmp_path / "backup"
    for at in range(5):
        run(logs, place, 1000 * at)
        grow(logs, 15 + 3 * at)
    repository = repository_at(place)
    size = sum(status.size for _, status in repository.objects())
    searched = 0

    def count(length: int) -> None:
        nonlocal searched
        searched += length

    request = RedactionRequest.of(RecordsToErase(KeySet([KEY])))
    work = BackupRedaction(repository, ManualClock(NOW + 10**6), request, (), count)
    work.search()
    assert searched <= size
    work.apply()
    assert len(work.files) == 6 and work.records == 6  # the first extents of two logs, and four that one grew by
    assert sum(status.size for _, status in repository.objects()) < 1.01 * size
    require_whole(repository)


def test_offsets_whole_records_and_topics_choose_what_goes(tmp_path: Path) -> None:
    logs, place = logs_in(tmp_path / "logs"), tmp_path / "backup"
    run(logs, place)
    repository = repository_at(place)
    redacted(repository, topics=("small",))
    (left,) = objects_with(repository, SECRET)
    assert "large" in left
    offsets = {TopicPartition("large", 0): OffsetSet([13])}
    work = BackupRedaction(
        repository, ManualClock(NOW), RedactionRequest.of(RecordsToErase(offsets=offsets), whole_record=True)
    )
    work.search()
    work.apply()
    assert work.prove() == () and objects_with(repository, SECRET) == []
    new = restored(repository, repository.ids()[0], tmp_path / "new")
    assert (KEY, None) in values(new / "small-0") and KEY not in [key for key, _ in values(new / "large-0")]
    assert not (new / "large-0" / INDEX).exists()  # a broker builds it again
    assert len(values(new / "large-0")) == 14


def test_the_next_run_stores_what_the_source_has_and_not_what_was_written_anew(tmp_path: Path) -> None:
    logs, place = logs_in(tmp_path / "logs"), tmp_path / "backup"
    run(logs, place)
    repository = repository_at(place)
    redacted(repository)
    for at in (1000, 2000):
        run(logs, place, at)
    assert objects_with(repository, SECRET)  # it is still at the source
    for identity in repository.ids()[1:]:
        new = restored(repository, identity, tmp_path / identity)
        assert (new / "large-0" / LOG).read_bytes() == (logs / "large-0" / LOG).read_bytes()
    seglog.redact(logs, keys=[KEY], replicas=1)
    run(logs, place, 3000)
    redacted(repository)
    assert objects_with(repository, SECRET) == []
    run(logs, place, 4000)
    assert objects_with(repository, SECRET) == []


def test_a_batch_that_goes_on_in_the_next_extent_is_found_and_erased(tmp_path: Path) -> None:
    logs, place = tmp_path / "logs", tmp_path / "backup"
    data = batch(0, value=bytes(8000)) + keyed(1, KEY, SECRET) + keyed(3, b"other", OTHER)
    (logs / "torn-0").mkdir(parents=True)
    (logs / "torn-0" / LOG).write_bytes(data[:-210])  # within the secret's batch
    assert run(logs, place).snapshot.directories[0].partitions[0].damage
    with (logs / "torn-0" / LOG).open("ab") as file:
        file.write(data[-210:])
    run(logs, place, 1000)
    repository = repository_at(place)
    first, second = repository.ids()
    assert len(repository.read(second).directories[0].partitions[0].files[0].extents) == 2
    with pytest.raises(RefusedError, match="cannot be read"):
        redacted(repository)
    repository.discard_manifest(first)
    redacted(repository)
    assert objects_with(repository, SECRET) == []
    assert values(restored(repository, second, tmp_path / "new") / "torn-0")[1:3] == [(b"other", OTHER), (KEY, None)]


def test_what_must_not_be_rewritten_is_refused_before_anything_changes(tmp_path: Path) -> None:
    logs, place = logs_in(tmp_path / "logs"), tmp_path / "backup"
    write(logs, "old-0", message(0, 1, b"old-key", SECRET, timestamp=1000))
    run(logs, place)
    repository = repository_at(place)
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    with pytest.raises(RefusedError, match="zeros"):
        redacted(repository, zeros=True)
    with pytest.raises(RefusedError, match="has nothing; nothing was changed"):
        redacted(repository, topics=("nothing",))
    with pytest.raises(RefusedError, match="a dry run"):
        redacted(repository, dry_run=True).apply()
    assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == before
    with pytest.raises(RefusedError, match="the last one of a log"):
        redacted(repository, b"old-key", whole_record=True)
    manifests = {path: data for path, data in before.items() if path.parent.name == "snapshots"}
    assert {path: path.read_bytes() for path in manifests} == manifests
    require_whole(repository)
    redacted(repository, b"old-key")  # the refusal left no erasure that must be ended first
    (logs / "kafka-0").mkdir()
    (logs / "kafka-0" / "00000000000000000000.kafka").write_bytes(b"")
    run(logs, place, 1000)
    with pytest.raises(UnsupportedError):
        redacted(repository)


# --- beside others ----------------------------------------------------------------------------------------


class Meanwhile(ManualClock):
    """A clock at whose second question something happens: between a run's work and its manifest."""

    def __init__(self, now: int, work: Callable[[], object]) -> None:
        super().__init__(now)
        self._work, self._asked = work, 0

    def now_ms(self) -> int:
        self._asked += 1
        if self._asked == 2:
            self._work()
        return super().now_ms()


def test_a_run_during_which_records_were_erased_commits_nothing(tmp_path: Path) -> None:
    logs, place = logs_in(tmp_path / "logs"), tmp_path / "backup"
    run(logs, place)
    grow(logs)
    repository = repository_at(place)
    clock = Meanwhile(NOW + 1000, lambda: redacted(repository))
    with pytest.raises(RefusedError, match="erased there while this run was going on"):
        backup(LocalFileSystem(), machine_files(), clock, BackupRequest([logs], place))
    assert len(repository.ids()) == 1
    require_whole(repository)
    run(logs, place, 2000)
    require_whole(repository)


@pytest.mark.parametrize("end", [RefusedError, Killed])
def test_a_run_that_is_stopped_for_a_whole_erasure_and_killed_before_it_looks_again_lists_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: type[BaseException]
) -> None:
    logs, place = logs_in(tmp_path / "logs"), tmp_path / "backup"
    run(logs, place)
    repository, write_manifest = repository_at(place), Repository.write

    def late(self: Repository, *given: object) -> int:
        monkeypatch.setattr(Repository, "write", write_manifest)
        redacted(repository)
        size = self.write(*given)
        if end is Killed:
            raise Killed
        return size

    monkeypatch.setattr(Repository, "write", late)
    with pytest.raises(end):
        run(logs, place, 1000)
    assert len(repository.ids()) == 1 and len(list((place / "snapshots").iterdir())) == (end is Killed)
    require_whole(repository)
    assert objects_with(repository, SECRET) == []
    run(logs, place, 2000)
    prune(repository, KeepRules(last=2), NOW + 3000)
    assert list((place / "snapshots").iterdir()) == []  # what does not count and never will is removed
    assert len(repository.ids()) == 2
    require_whole(repository)


def test_a_manifest_that_is_replaced_while_an_erasure_reads_it_is_searched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prune that was stopped meanwhile puts parts with the records into other packs."""
    logs, place = logs_in(tmp_path / "logs"), tmp_path / "backup"
    run(logs, place)
    grow(logs)
    run(logs, place, 1000)
    repository, write_anew = repository_at(place), Repository.replace
    packs = frozenset(name for name, _ in repository.objects() if name.startswith("packs/"))

    def late(self: Repository, manifest: Manifest, folder: str | None = None) -> None:
        monkeypatch.setattr(Repository, "replace", write_anew)
        mover, old = ExtentMover(repository, packs), repository.manifest(repository.ids()[1])
        moved = old.changed(KnownLines(lambda _: True), partial(moved_part, mover))
        mover.finish()
        repository.replace(moved)
        self.replace(manifest, folder)

    monkeypatch.setattr(Repository, "replace", late)
    redacted(repository)
    assert objects_with(repository, SECRET) == [] and len(repository.ids()) == 2
    require_whole(repository)


def test_a_run_that_ends_while_an_erasure_begins_is_erased_too(tmp_path: Path) -> None:
    logs, place = logs_in(tmp_path / "logs"), tmp_path / "backup"
    run(logs, place)
    repository = repository_at(place)
    work = BackupRedaction(repository, ManualClock(NOW), RedactionRequest.of(RecordsToErase(KeySet([KEY]))))
    work.search()
    grow(logs)
    run(logs, place, 1000)
    work.apply()
    assert len(repository.ids()) == 2 and objects_with(repository, SECRET) == []
    require_whole(repository)


def test_of_two_erasures_one_is_refused_and_of_one_cut_short_the_next_is_told(tmp_path: Path) -> None:
    logs, place = logs_in(tmp_path / "logs"), tmp_path / "backup"
    run(logs, place)
    repository = repository_at(place)
    repository.create("redactions/00000001.begun", b"{}\n")
    for work in (lambda: redacted(repository), lambda: run(logs, place, 1000)):
        with pytest.raises(RefusedError, match="--resume"):
            work()
    redacted(repository, resume=True)
    assert known_erasures(repository) == {f"00000001.{step}" for step in ("begun", "committed", "ended")}
    assert objects_with(repository, SECRET) == []
    run(logs, place, 1000)
    redacted(repository)
    assert "00000002.ended" in known_erasures(repository)


def test_what_pruned_snapshots_and_dead_runs_left_goes_too(tmp_path: Path) -> None:
    logs, place = logs_in(tmp_path / "logs"), tmp_path / "backup"
    run(logs, place)
    shutil.rmtree(logs / "small-0")
    write(logs, "small-0", keyed(0, b"other", OTHER))
    run(logs, place, 1000)
    repository = repository_at(place)
    prune(repository, KeepRules(last=1), NOW + 2000)
    repository.put(
        "objects/left-0/_/00000000000000000000-0-00000000000000000000000000000000.log", [SECRET], len(SECRET)
    )
    assert repository.ids(PRUNED) and len(objects_with(repository, SECRET)) > 2
    work = redacted(repository, topics=("small",))  # nothing is erased there, and a pack has bytes that nothing names
    assert work.records == 0 and work.removed
    assert [name for name in objects_with(repository, SECRET) if "large" not in name] == []
    assert repository.ids(PRUNED) == []
    assert {name for name, _ in repository.objects()} == repository.read(repository.ids()[0]).objects()
    require_whole(repository)


# --- faults -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with three snapshots, one of them pruned."""
    place = tmp_path_factory.mktemp("model")
    logs = logs_in(place / "logs")
    for at in range(3):
        run(logs, place / "backup", 1000 * at)
        grow(logs, 15 + 3 * at)
    prune(repository_at(place / "backup"), KeepRules(last=2), NOW + 3000)
    return place / "backup"


@pytest.mark.parametrize("kind", FAULTS)
def test_an_erasure_that_fails_at_any_call_leaves_every_snapshot_whole_and_the_next_ends_it(
    tmp_path: Path, model: Path, kind: str
) -> None:
    """SEGLOG_EFFORT=10 lets each call fail in turn."""
    place = tmp_path / "backup"
    ids = repository_at(model).ids()

    def work(fs: FileSystem) -> None:
        redacted(repository_at(place, routed(fs)))

    shutil.copytree(model, place)
    calls = calls_of(work)
    assert calls > 20
    for at in moments(calls, kind):
        shutil.rmtree(place)
        shutil.copytree(model, place)
        with suppress(OSError, Killed):
            work(FaultyFileSystem(Faults(at, kind)))
        repository = repository_at(place)
        assert repository.ids() == ids
        require_whole(repository)
        redacted(repository, resume=True)
        require_whole(repository)
        assert repository.ids() == ids and objects_with(repository, SECRET) == []
        named = {name for identity in ids for name in repository.read(identity).objects()}
        assert {name for name, _ in repository.objects()} == named


def test_whatever_a_power_cut_leaves_of_an_erasure_restores(model: Path) -> None:
    """SEGLOG_EFFORT=10 cuts at each change, with more luck."""
    whole = CrashFileSystem.of(model)
    redacted(repository_at(model, routed(whole)))
    for change in moments(whole.mutations, "killed"):
        fs = CrashFileSystem.of(model)
        fs.cut_at(change, 0.5)
        with suppress(PowerCut):
            redacted(repository_at(model, routed(fs)))
        for seed in range(2):
            repository = repository_at(model, routed(fs.survivor(seed)))
            assert len(repository.ids()) == 2
            require_whole(repository)
            redacted(repository, resume=True)
            require_whole(repository)
            assert objects_with(repository, SECRET) == []


def test_records_are_erased_from_a_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs, place = logs_in(tmp_path / "logs"), parse_location("s3://bkt/backup")
    with object_server() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        remote = RemoteFileSystem()
        store = RoutingFileSystem(LocalFileSystem(), lambda: remote)
        run(logs, place, 0, store)
        grow(logs)
        run(logs, place, 1000, store)
        repository = repository_at(place, store)
        assert objects_with(repository, SECRET)
        assert redacted(repository).prove() == ()
        assert objects_with(repository, SECRET) == []
        assert not any(SECRET in data for data in server.objects.values())
        require_whole(repository)
        new = restored(repository, repository.ids()[0], tmp_path / "new")
    assert (KEY, None) in values(new / "large-0")
