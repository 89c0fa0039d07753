"""Logs that a manifest has committed: what it names is a log directory, and what it does not name is nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from seglog.clock import FixedClock
from seglog.errors import CorruptRecordError, CorruptTierError, NotALogError, RefusedError, UnsupportedError
from seglog.format.checkpoint import parse_offset_checkpoint
from seglog.layout import PARTITION_LEADER_EPOCH_OFFSET
from seglog.model import TopicPartition
from seglog.remote_path import remote_path
from seglog.scan.listing import TargetKind, resolve_path, resolve_paths
from seglog.storage.routing import RoutingFileSystem, machine_files
from seglog_stores.formats.log_manifest import manifest_name, parse_log_manifest
from seglog_stores.formats.tier_names import COMMITTED
from seglog_stores.operations.fetch import fetch
from seglog_stores.remote.routing import files_with, shared_remote_files
from seglog_stores.remote.settings import StoreSettings
from seglog_stores.tiers.manifests import read_committed
from seglog_stores.tiers.publishing import commit, require_new
from seglog_stores.tiers.segments import GRAVE, Problem, Remark
from seglog_stores.tiers.survey import Surveyed, survey
from seglog_stores.tiers.tiered_partition import TierOptions
from seglog_stores.tiers.view import see_tiers
from tests.support.fixtures import clean_partition
from tests.support.log_files import FS, files_of
from tests.support.object_server import Fault, ObjectServer, object_server
from tests.support.published import published

NAMES = ("customers-0", "payments-0")
CLOCK = FixedClock(1_700_000_000_000)
STORE = machine_files()


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Partitions that a broker wrote: one of them cleaned, the other one with transactions."""
    directory = tmp_path_factory.mktemp("genuine")
    for name in NAMES:
        clean_partition(name, directory)
    return directory


@pytest.fixture
def prefix(logs: Path, tmp_path: Path) -> Path:
    """The same, committed below a prefix."""
    prefix = tmp_path / "prefix"
    commit(STORE, prefix, None, [published(FS, STORE, prefix, logs / name) for name in NAMES], CLOCK)
    return prefix


def committed_files(directory: Path) -> dict[str, bytes]:
    """The files of a genuine partition of which a manifest knows."""
    files = files_of(directory)
    files.pop("partition.metadata", None)
    return {name: data for name, data in files.items() if not name.endswith(".snapshot")}


def shown(path: Path) -> tuple[dict[str, bytes], list[Remark]]:
    """The files that a partition is shown to have, and what is said about it."""
    remarks: list[Remark] = []
    fs, (seen,) = see_tiers(FS, [path], None, remarks.append)
    files = {name: fs.read_bytes(seen / name) for name in fs.list(seen)}
    return {name: data for name, data in files.items() if not name.endswith(".snapshot")}, remarks


@pytest.mark.parametrize("name", NAMES)
def test_a_committed_partition_has_the_files_of_the_genuine_one(name: str, prefix: Path, logs: Path) -> None:
    assert shown(prefix / name) == (committed_files(logs / name), [])


def test_the_snapshot_after_each_segment_is_shown(prefix: Path, logs: Path) -> None:
    fs, (seen,) = see_tiers(FS, [prefix / "payments-0"])
    found = {name: fs.read_bytes(seen / name) for name in fs.list(seen) if name.endswith(".snapshot")}
    genuine = files_of(logs / "payments-0")
    assert found
    assert found.items() <= genuine.items()


def test_a_prefix_is_a_log_directory_with_a_brokers_checkpoints(prefix: Path) -> None:
    fs, (seen,) = see_tiers(FS, [prefix])
    assert resolve_path(fs, seen).kind is TargetKind.LOG_DIRECTORY
    checkpoints = ["log-start-offset-checkpoint", "recovery-point-offset-checkpoint"]
    assert fs.list(seen) == sorted([*NAMES, *checkpoints])
    ends = parse_offset_checkpoint(fs.read_bytes(seen / checkpoints[1]), "")
    logs = read_committed(FS, prefix)
    assert logs is not None
    assert ends == {one.topic_partition: one.log_end_offset for one in logs.manifest.partitions}


def test_a_topic_and_a_file_of_a_partition_are_paths_too(prefix: Path) -> None:
    fs, paths = see_tiers(FS, [prefix / "customers", prefix / "payments-0" / f"{0:020d}.log"])
    assert [target.path for target in resolve_paths(fs, paths)] == [prefix / "customers-0", paths[1]]


def test_an_object_without_a_manifest_is_not_part_of_a_log(prefix: Path, logs: Path) -> None:
    published(FS, STORE, prefix, logs / "customers-0")  # an attempt that nobody has committed
    (tmp := prefix / "gone-0" / "seglog-AAAAAAAAAAAAAAAAAAAABw").mkdir(parents=True)
    (tmp / f"{0:020d}.log").write_bytes(b"x")
    assert shown(prefix / "customers-0") == (committed_files(logs / "customers-0"), [])
    fs, (seen,) = see_tiers(FS, [prefix])
    assert "gone-0" not in fs.list(seen)


def test_a_prefix_in_which_nothing_was_committed_is_no_log(logs: Path, tmp_path: Path) -> None:
    published(FS, STORE, tmp_path / "prefix", logs / "customers-0")
    (tmp_path / "prefix" / COMMITTED).mkdir()
    for path in (tmp_path / "prefix", tmp_path / "prefix" / "customers-0"):
        with pytest.raises(NotALogError, match="never committed"):
            see_tiers(FS, [path])


def test_a_log_is_read_as_it_was_before_a_writer_that_died(prefix: Path, logs: Path) -> None:
    before = shown(prefix / "payments-0")
    published(FS, STORE, prefix, logs / "payments-0")
    assert shown(prefix / "payments-0") == before


@pytest.mark.parametrize("suffix", [".log", ".index"])
def test_an_object_that_is_missing_is_grave(suffix: str, prefix: Path) -> None:
    (path,) = (prefix / "customers-0").glob(f"seglog-*/{0:020d}{suffix}")
    path.unlink()
    _, (remark,) = shown(prefix / "customers-0")
    assert (remark.problem, remark.path, remark.first_offset) == (Problem.MISSING_OBJECT, path, 0)
    assert remark.problem in GRAVE


def test_a_partition_of_which_nothing_is_left_is_still_said_to_be_there(prefix: Path) -> None:
    shutil.rmtree(prefix / "customers-0")
    files, remarks = shown(prefix / "customers-0")
    assert {remark.problem for remark in remarks} == {Problem.MISSING_OBJECT}
    assert [name for name in files if name.endswith(".log")] == []


def test_an_object_of_another_size_is_damage(prefix: Path) -> None:
    (path,) = (prefix / "customers-0").glob(f"seglog-*/{0:020d}.log")
    path.write_bytes(path.read_bytes() + b"x")
    _, (remark,) = shown(prefix / "customers-0")
    assert (remark.problem, remark.path) == (Problem.BAD_OBJECT, path)


def test_a_manifest_that_cannot_be_read_is_not_replaced_by_an_older_one(prefix: Path) -> None:
    (prefix / COMMITTED / manifest_name(2)).write_bytes(b"{")
    with pytest.raises(CorruptTierError, match=manifest_name(2)):
        see_tiers(FS, [prefix])


def test_a_manifest_under_another_number_is_damage(prefix: Path) -> None:
    data = (prefix / COMMITTED / manifest_name(1)).read_bytes()
    (prefix / COMMITTED / manifest_name(2)).write_bytes(data)
    with pytest.raises(CorruptTierError, match="has the number 1, which contradicts its name"):
        see_tiers(FS, [prefix])


def test_of_two_writers_that_began_together_the_second_one_gets_an_error(prefix: Path) -> None:
    before = read_committed(FS, prefix)
    assert before is not None
    one, other = before.manifest.partitions
    commit(STORE, prefix, before, [one], CLOCK)
    with pytest.raises(RefusedError, match="another writer has committed meanwhile"):
        commit(STORE, prefix, before, [other], CLOCK)
    after = read_committed(FS, prefix)
    assert after is not None
    assert (after.manifest.number, after.manifest.partitions) == (2, (one,))
    assert not list((prefix / COMMITTED).glob("*.tmp"))


class Overwriting(RoutingFileSystem):
    """A store that makes what is to be created whatever is there."""

    def __init__(self) -> None:
        super().__init__(FS, shared_remote_files)
        self.objects: dict[Path, bytes] = {}

    def create(self, path: Path, data: bytes) -> bool:
        self.objects[path] = data
        return True

    def discard(self, path: Path) -> None:
        del self.objects[path]


def test_a_store_that_would_lose_one_of_two_writers_is_found_out(logs: Path, tmp_path: Path) -> None:
    partition, store = published(FS, STORE, tmp_path, logs / "customers-0"), Overwriting()
    with pytest.raises(
        UnsupportedError, match=r"^s3://bucket/logs: this store ignores If-None-Match .* nothing was committed$"
    ):
        commit(store, remote_path("s3", "bucket", "logs"), None, [partition], CLOCK)
    assert store.objects == {}


class Losing(RoutingFileSystem):
    """A store whose answer to a creation is lost: the request is sent again, and meets its own object."""

    def __init__(self) -> None:
        super().__init__(FS, shared_remote_files)

    def create(self, path: Path, data: bytes) -> bool:
        super().create(path, data)
        return super().create(path, data)


def test_a_creation_whose_answer_was_lost_is_no_other_writers(logs: Path, tmp_path: Path) -> None:
    commit(Losing(), tmp_path, None, [published(FS, STORE, tmp_path, logs / "customers-0")], CLOCK)
    assert shown(tmp_path / "customers-0")[1] == []


def test_manifests_that_nobody_is_at_work_with_are_removed(prefix: Path) -> None:
    before = read_committed(FS, prefix)
    for _ in range(12):
        assert before is not None
        commit(STORE, prefix, before, before.manifest.partitions, FixedClock(4_000_000_000_000))
        before = read_committed(FS, prefix)
    assert sorted(path.name for path in (prefix / COMMITTED).iterdir()) == [manifest_name(n) for n in range(4, 14)]


def test_objects_go_with_the_last_manifest_that_names_them(prefix: Path, logs: Path) -> None:
    before = read_committed(FS, prefix)
    assert before is not None
    kept, replaced = before.manifest.partitions
    (place,) = {one.place for one in replaced.segments}
    new = published(FS, STORE, prefix, logs / NAMES[1])
    there = []
    for _ in range(12):
        commit(STORE, prefix, before, [kept, new], FixedClock(4_000_000_000_000))
        there.append(any((prefix / NAMES[1] / place).iterdir()))
        before = read_committed(FS, prefix)
        assert before is not None
    assert there == [True] * 9 + [False] * 3
    assert all(shown(prefix / name) == (committed_files(logs / name), []) for name in NAMES)


def test_a_prefix_must_be_new(prefix: Path, logs: Path, tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="logs were already committed there"):
        require_new(FS, prefix)
    with pytest.raises(RefusedError, match="it already holds something else"):
        require_new(FS, logs)
    published(FS, STORE, tmp_path / "new", logs / "customers-0")  # what a writer has left that died
    require_new(FS, tmp_path / "new")
    require_new(FS, tmp_path / "none")


def test_what_nobody_names_is_shown_by_a_survey_alone(prefix: Path, logs: Path) -> None:
    published(FS, STORE, prefix, logs / "customers-0")
    (prefix / COMMITTED / "staged" / "job").mkdir(parents=True)
    (prefix / COMMITTED / "staged" / "job" / "x.batches").write_bytes(b"xyz")
    manifest = parse_log_manifest((prefix / COMMITTED / manifest_name(1)).read_bytes(), "")
    named = {each.place for one in manifest.partitions for each in one.segments}
    found = list(survey(FS, [prefix], TierOptions()))
    partitions = [one for one in found if isinstance(one, Surveyed)]
    assert [one.place.topic_partition for one in partitions] == [TopicPartition(*n.split("-0")[:1], 0) for n in NAMES]
    remarks = [one for one in found if isinstance(one, Remark)]
    assert {remark.problem for remark in remarks} == {Problem.ORPHAN_OBJECT}
    (orphan,) = (p for p in (prefix / "customers-0").iterdir() if p.name not in named)
    assert {remark.path for remark in remarks} == {orphan, prefix / COMMITTED / "staged" / "job"}
    assert [one for one in survey(FS, [prefix / "payments-0"], TierOptions()) if isinstance(one, Remark)] == []


def test_a_local_part_is_refused_as_the_manifest_says_all(prefix: Path, logs: Path) -> None:
    fs, (seen,) = see_tiers(FS, [prefix / "customers-0"], TierOptions(local=logs))
    with pytest.raises(RefusedError, match="a manifest describes this log completely"):
        fs.list(seen)


# --- fetch ------------------------------------------------------------------------------------------------


def test_a_cleaned_partition_is_fetched_with_its_gaps(prefix: Path, logs: Path, tmp_path: Path) -> None:
    fs, (seen,) = see_tiers(FS, [prefix / "customers-0"])
    done = fetch(fs, seen, FS, tmp_path / "restored" / "customers-0")
    assert committed_files(tmp_path / "restored" / "customers-0") == committed_files(logs / "customers-0")
    assert done.gaps == ()


@pytest.mark.parametrize("suffix", [".log", ".timeindex"])
def test_a_byte_that_was_changed_ends_a_fetch(suffix: str, prefix: Path, tmp_path: Path) -> None:
    path = sorted((prefix / "customers-0").glob(f"seglog-*/*{suffix}"))[0]
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.write_bytes(data)
    fs, (seen,) = see_tiers(FS, [prefix / "customers-0"])
    with pytest.raises(CorruptRecordError, match=r"CRC-32C is [0-9a-f]{8}, but [0-9a-f]{8} in the manifest"):
        fetch(fs, seen, FS, tmp_path / "restored" / "customers-0")
    assert not (tmp_path / "restored" / "customers-0").exists()


@pytest.mark.parametrize("suffix", [".log", ".timeindex"])
def test_a_fetched_partition_is_recognised_by_the_manifests_checksums(
    suffix: str, prefix: Path, tmp_path: Path
) -> None:
    fs, (seen,) = see_tiers(FS, [prefix / "customers-0"])
    target = tmp_path / "restored" / "customers-0"
    count = fetch(fs, seen, FS, target).files
    assert fetch(fs, seen, FS, target).kept == count
    path = sorted(target.glob(f"*{suffix}"))[0]
    data = bytearray(path.read_bytes())
    data[PARTITION_LEADER_EPOCH_OFFSET] ^= 1  # which the batch's own checksum does not cover
    path.write_bytes(data)
    with pytest.raises(RefusedError, match="is there already and not empty"):
        fetch(fs, seen, FS, target)


# --- in a store -------------------------------------------------------------------------------------------


def remote_store(server: ObjectServer) -> RoutingFileSystem:
    return files_with(StoreSettings.of({**server.environment, "SEGLOG_REMOTE_RETRIES": "0"}))


def test_a_writer_needs_no_permission_to_remove(logs: Path, caplog: pytest.LogCaptureFixture) -> None:
    prefix = remote_path("s3", "bkt", "logs")
    with object_server() as server:
        server.fault = lambda method, _: Fault(403, "AccessDenied") if method == "POST" else None
        store = remote_store(server)
        commit(store, prefix, None, [published(FS, store, prefix, logs / "customers-0")], CLOCK)
        fs, (seen,) = see_tiers(remote_store(server), [prefix / "customers-0"])
        assert fs.list(seen)
    assert "was not removed: the store refuses to change it" in caplog.text


@pytest.mark.parametrize("nth", range(1, 8))
def test_a_put_that_fails_commits_nothing(nth: int, logs: Path) -> None:
    """Each request that makes an object fails once: an error that names it, and no log."""
    prefix = remote_path("s3", "bkt", "logs")
    with object_server() as server:

        def fault(method: str, _: str) -> Fault | None:
            puts = sum(each.startswith("PUT") for each in server.asked)
            return Fault(403, "AccessDenied") if method == "PUT" and puts == nth else None

        server.fault = fault
        store = remote_store(server)
        done = False
        try:
            commit(store, prefix, None, [published(FS, store, prefix, logs / "customers-0")], CLOCK)
            done = True
        except PermissionError as error:
            assert "s3://bkt/logs" in str(error)
        assert done == (sum(each.startswith("PUT") for each in server.asked) < nth)
        assert (read_committed(remote_store(server), prefix) is not None) == done
