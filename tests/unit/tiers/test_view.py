"""A tier looks like a log directory: files, sizes and bytes are those of the partition it was made from."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from seglog.clock import SystemClock
from seglog.errors import ConfigError, CorruptTierError, NotALogError, RefusedError
from seglog.scan.listing import TargetKind, list_log_directory, list_partition, resolve_path
from seglog.storage.filesystem import READ_BYTES_LIMIT, PassingFileSystem
from seglog.verification.verify import Level, Verification, VerifyOptions
from seglog_stores.formats.tier_keys import PrivateKey
from seglog_stores.tiers.segments import KeyPairs, Problem, Remark
from seglog_stores.tiers.tiered_partition import TierOptions
from seglog_stores.tiers.view import see_tiers
from tests.support.faulty_filesystem import DeletingFileSystem
from tests.support.fixtures import CLEAN, clean_partition
from tests.support.log_files import FS, files_of
from tests.support.tiers import (
    PLAIN,
    SEALED,
    AivenOptions,
    private_pem,
    tier_segments,
    write_aiven,
    write_local_tiered,
    write_pinterest,
)

NAME = "payments-0"
OTHER_ID = "EBESExQVFhcYGRobHB0eHw"


def keys() -> KeyPairs:
    return KeyPairs({"key1": PrivateKey.parse(private_pem(), "key.pem")})


@pytest.fixture
def genuine(tmp_path: Path) -> Path:
    """A partition with transactions that a broker wrote."""
    return clean_partition(NAME, tmp_path / "logs")


def shown(path: Path, options: TierOptions | None = None) -> tuple[dict[str, bytes], list[Remark]]:
    """The files that the partition at a path has, and what is said about it."""
    remarks: list[Remark] = []
    fs, (seen,) = see_tiers(FS, [path], options or TierOptions(keys=keys()), remarks.append)
    return {name: fs.read_bytes(seen / name) for name in fs.list(seen)}, remarks


def closed_files(genuine: Path) -> dict[str, bytes]:
    """What a restored partition has of the genuine one: all before the active segment, at offset 399."""
    files = {name: data for name, data in files_of(genuine).items() if name < f"{399:020d}."}
    snapshot = f"{399:020d}.snapshot"
    return files | {snapshot: files_of(genuine)[snapshot], "leader-epoch-checkpoint": b"0\n1\n0 0\n"}


@pytest.mark.parametrize(
    "options",
    [PLAIN, AivenOptions(compressed=True), AivenOptions(encrypted=True), SEALED, AivenOptions(1 << 22, True, True)],
    ids=str,
)
def test_aivens_partition_has_the_files_of_the_genuine_one(
    tmp_path: Path, genuine: Path, options: AivenOptions
) -> None:
    directory = write_aiven(tmp_path / "tier", "payments", 0, tier_segments(genuine), options)
    files, remarks = shown(directory)
    assert (files, remarks) == (closed_files(genuine), [])


def test_local_tiered_storage_has_the_files_of_the_genuine_one(tmp_path: Path, genuine: Path) -> None:
    directory = write_local_tiered(tmp_path, "payments", 0, tier_segments(genuine))
    files, remarks = shown(directory)
    assert (files, remarks) == (closed_files(genuine), [])


def test_pinterests_copy_ends_at_its_watermark(tmp_path: Path, genuine: Path) -> None:
    segments = tier_segments(genuine, active=True)
    directory = write_pinterest(tmp_path, "payments", 0, segments)
    (directory / "offset.wm").write_text(f"{segments[-2].start:020d}")
    files, remarks = shown(directory)
    kept = (".log", ".index", ".timeindex")
    assert files == {name: data for name, data in closed_files(genuine).items() if name.endswith(kept)}
    assert [remark.problem for remark in remarks] == [Problem.INCOMPLETE_UPLOAD]


@pytest.mark.parametrize("mark", ["garbage", "too large", "a directory"])
def test_without_a_watermark_that_can_be_read_every_segment_counts(tmp_path: Path, genuine: Path, mark: str) -> None:
    directory = write_pinterest(tmp_path, "payments", 0, tier_segments(genuine))
    path = directory / "offset.wm"
    if mark == "a directory":
        path.unlink()
        path.mkdir()
    else:
        path.write_text("x" if mark == "garbage" else "0" * 2000)
    files, remarks = shown(directory)
    kept = (".log", ".index", ".timeindex")
    assert files == {name: data for name, data in closed_files(genuine).items() if name.endswith(kept)}
    assert [(remark.problem, remark.path) for remark in remarks] == [(Problem.BAD_OBJECT, path)]


@pytest.mark.parametrize("layout", ["aiven", "local"])
def test_the_root_of_a_tier_is_a_log_directory(tmp_path: Path, genuine: Path, layout: str) -> None:
    write = write_aiven if layout == "aiven" else write_local_tiered
    segments = tier_segments(genuine)
    for topic, number in (("payments", 0), ("payments", 1), ("a-b-c", 0)):
        write(tmp_path / "tier", topic, number, segments)
    fs, (seen,) = see_tiers(FS, [tmp_path / "tier"])
    assert resolve_path(fs, seen).kind is TargetKind.LOG_DIRECTORY
    names = [str(found.topic_partition) for found in list_log_directory(fs, seen).live]
    assert names == ["a-b-c-0", "payments-0", "payments-1"]
    assert len(list_partition(fs, seen / "payments-1").segments) == len(segments)


def test_an_object_is_the_file_that_it_is_in_the_partition(tmp_path: Path, genuine: Path) -> None:
    directory = write_aiven(tmp_path, "payments", 0, tier_segments(genuine), SEALED)
    log = next(path for path in directory.iterdir() if path.suffix == ".log" and path.name.startswith(f"{265:020d}"))
    fs, (seen,) = see_tiers(FS, [log], TierOptions(keys=keys()))
    assert seen.name == f"{265:020d}.log"
    assert fs.read_bytes(seen) == (genuine / seen.name).read_bytes()


def test_what_is_no_tier_stays_as_it_is(genuine: Path) -> None:
    paths = [genuine, genuine.parent, genuine / f"{0:020d}.log"]
    fs, seen = see_tiers(FS, paths)
    assert fs is FS and seen == paths


def test_verify_finds_nothing_wrong_with_a_tier(tmp_path: Path, genuine: Path) -> None:
    directory = write_aiven(tmp_path / "tier", "payments", 0, tier_segments(genuine), SEALED)
    fs, (seen,) = see_tiers(FS, [directory], TierOptions(keys=keys()))
    found = list(Verification(fs, [resolve_path(fs, seen)], VerifyOptions(Level.SEMANTIC, jobs=1), SystemClock()))
    assert [finding.code for finding in found if finding.severity.value != "info"] == []


def test_the_local_part_goes_on_where_the_tier_ends(tmp_path: Path, genuine: Path) -> None:
    directory = write_aiven(tmp_path / "tier", "payments", 0, tier_segments(genuine))
    whole = files_of(genuine)
    for path in genuine.glob(f"{0:020d}.*"):
        path.unlink()
    files, remarks = shown(directory, TierOptions(genuine.parent))
    assert (files, remarks) == (whole, [])


def test_what_is_not_complete_or_damaged_is_reported_with_its_gap(tmp_path: Path, genuine: Path) -> None:
    directory = write_aiven(tmp_path, "payments", 0, tier_segments(genuine, active=True))
    manifests = sorted(directory.glob("*.rsm-manifest"))
    manifests[1].unlink()
    files, remarks = shown(directory)
    assert sorted(name for name in files if name.endswith(".log")) == [f"{0:020d}.log", f"{399:020d}.log"]
    assert [(one.problem, one.first_offset, one.last_offset) for one in remarks] == [
        (Problem.INCOMPLETE_UPLOAD, 265, None),
        (Problem.GAP, 265, 398),
    ]
    manifests[0].write_text("{}")
    _, remarks = shown(directory)
    assert [one.problem for one in remarks] == [Problem.BAD_OBJECT, Problem.INCOMPLETE_UPLOAD]
    assert "field version: it is missing" in str(remarks[0])


def test_a_damaged_chunk_is_named_by_object_and_position(tmp_path: Path, genuine: Path) -> None:
    directory = write_aiven(tmp_path, "payments", 0, tier_segments(genuine), AivenOptions(compressed=True))
    log = min(directory.glob("*.log"))
    data = bytearray(log.read_bytes())
    data[0:4] = b"none"
    log.write_bytes(data)
    with pytest.raises(CorruptTierError, match=rf"{log.name}: position 0: chunk 0"):
        shown(directory)
    log.write_bytes(data[:-1])
    _, remarks = shown(directory)
    assert "by its manifest" in str(remarks[0])


def test_a_log_without_a_batch_is_reported(tmp_path: Path, genuine: Path) -> None:
    directory = write_local_tiered(tmp_path, "payments", 0, tier_segments(genuine))
    max(directory.glob("*.log")).write_bytes(b"")
    _, remarks = shown(directory)
    assert [(one.problem, one.first_offset) for one in remarks] == [(Problem.BAD_OBJECT, 265)]


def test_an_encrypted_tier_asks_for_its_key_by_id(tmp_path: Path, genuine: Path) -> None:
    directory = write_aiven(tmp_path, "payments", 0, tier_segments(genuine), SEALED)
    with pytest.raises(ConfigError, match=r"key pair key1; give its private key with --tier-key key1=FILE"):
        shown(directory, TierOptions())


def test_two_topics_of_one_name_are_not_mixed(tmp_path: Path, genuine: Path) -> None:
    segments = tier_segments(genuine)
    write_aiven(tmp_path / "tier", "payments", 0, segments)
    one = write_aiven(tmp_path / "tier", "payments", 0, segments, topic_id=OTHER_ID)
    with pytest.raises(RefusedError, match="of topics with different ids; name the directory"):
        see_tiers(FS, [tmp_path / "tier"])
    assert shown(one)[1] == []


def test_partitions_that_are_only_local_are_not_shown_in_place_of_a_tier(tmp_path: Path, genuine: Path) -> None:
    write_aiven(tmp_path / "tier", "payments", 0, tier_segments(genuine))
    local = tmp_path / "logs"
    (local / "other-0").mkdir(parents=True)
    (local / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    fs, (path,) = see_tiers(FS, [tmp_path / "tier"], TierOptions(local=local))
    assert [found.path.name for found in list_log_directory(fs, path).live] == ["payments-0"]
    assert fs.list(path) == ["payments-0", "recovery-point-offset-checkpoint"]


def test_partitions_that_are_only_local_are_not_missed_when_a_tier_is_verified(tmp_path: Path, genuine: Path) -> None:
    write_aiven(tmp_path / "tier", "payments", 0, tier_segments(genuine))
    clean_partition("clicks-0", genuine.parent)
    checkpoint = genuine.parent / "replication-offset-checkpoint"
    checkpoint.write_text("0\n2\nclicks 0 5\ngone 0 7\n")
    fs, (path,) = see_tiers(FS, [tmp_path / "tier"], TierOptions(local=genuine.parent))
    found = list(Verification(fs, [resolve_path(fs, path)], VerifyOptions(Level.SEMANTIC, jobs=1), SystemClock()))
    assert [(one.code, one.partition) for one in found if one.severity.value != "info"] == [
        ("PARTITION_MISSING", "gone-0")
    ]


def test_a_directory_that_goes_while_it_is_asked_for_a_tier_is_no_log(genuine: Path) -> None:
    with pytest.raises(NotALogError, match=f"{NAME}: no such directory any more"):
        see_tiers(DeletingFileSystem(FS), [genuine])


def test_manifests_are_asked_for_together(tmp_path: Path) -> None:
    segments = tier_segments(CLEAN / "customers-uncleaned-0")
    directory = write_aiven(tmp_path, "customers-uncleaned", 0, segments)
    together = threading.Barrier(len(segments))

    class Waiting(PassingFileSystem):
        def read_bytes(self, path: Path, limit: int = READ_BYTES_LIMIT) -> bytes:
            together.wait(60)  # broken, and an error, where one is asked for after the other
            return super().read_bytes(path, limit)

    fs, (shown,) = see_tiers(Waiting(FS), [directory])
    assert len([name for name in fs.list(shown) if name.endswith(".log")]) == len(segments) > 2
