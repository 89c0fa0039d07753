"""Segments of Aiven's plugin whose custom metadata names another prefix or key: read from there, or it says why not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

import pytest

from seglog.locations import parse_location
from seglog.storage.filesystem import FileSystem
from seglog_ask.table.plan.files import files_of
from seglog_stores.remote.settings import StoreSettings
from seglog_stores.tiers.metadata import RemoteLogs
from seglog_stores.tiers.segments import Problem, Remark
from seglog_stores.tiers.tiered_partition import TierOptions
from seglog_stores.tiers.view import see_tiers
from tests.support.fixtures import CLEAN
from tests.support.log_files import FS
from tests.support.object_server import Fault, object_server
from tests.support.tiers import TOPIC_ID, custom_metadata, remote_record, tier_segments, write_aiven

SEGMENTS = tier_segments(CLEAN / "payments-0")
FIRST = SEGMENTS[0]
MAIN = f"payments-{TOPIC_ID}/0/{0:020d}-{FIRST.segment_id}"
DIRECTORY = f"payments-{TOPIC_ID}/0"


def options(custom: bytes | None, state: int = 1) -> TierOptions:
    """The metadata of all segments, with custom metadata of the first one."""
    logs = RemoteLogs()
    for one in SEGMENTS:
        logs.take(remote_record(one, "payments", 0, state=1), "added")
    logs.take(remote_record(FIRST, "payments", 0, state=state, custom=custom), "added again")
    assert not logs.problems
    return TierOptions(metadata=logs)


def shown(fs: FileSystem, path: Path, given: TierOptions) -> tuple[dict[str, bytes], list[Remark]]:
    remarks: list[Remark] = []
    fs, (seen,) = see_tiers(fs, [path], given, remarks.append)
    return {name: fs.read_bytes(seen / name) for name in fs.list(seen)}, remarks


def move(root: Path, stem: str, to: str, kinds: Sequence[str] = (".log", ".indexes")) -> None:
    """Takes the first segment's objects from below `root / stem` to `to`."""
    for kind in kinds:
        target = root / (to + kind)
        target.parent.mkdir(parents=True, exist_ok=True)
        (root / (stem + kind)).rename(target)


def problems(remarks: Sequence[Remark]) -> list[tuple[Problem, int | None, int | None]]:
    return [(one.problem, one.first_offset, one.last_offset) for one in remarks]


@pytest.mark.parametrize(
    ("own", "prefix", "key", "to"),
    [
        ("new/", "old/", None, f"old/{MAIN}"),
        ("new/", "old-", None, f"old-{MAIN}"),
        ("new-", "old/", None, f"old/{MAIN}"),
        ("new/", "", None, MAIN),
        ("new/a/", "old/b/", "some/key", "old/b/some/key"),
        ("new/", "new/old/", "key", "new/old/key"),
        ("new/", None, "some/key", "new/some/key"),
        ("new-", None, "some/key", "new-some/key"),
    ],
)
def test_objects_are_read_where_the_custom_metadata_has_them(
    tmp_path: Path, own: str, prefix: str | None, key: str | None, to: str
) -> None:
    root = tmp_path / "bucket"
    whole, _ = shown(FS, write_aiven(tmp_path / "whole", "payments", 0, SEGMENTS), options(None))
    below, _, start = own.rpartition("/")
    write_aiven(root / below, f"{start}payments", 0, SEGMENTS)
    rename_topic(root / below / f"{start}{DIRECTORY}", start)
    move(root, own + MAIN, to)
    files, remarks = shown(FS, root / f"{own}{DIRECTORY}", options(custom_metadata(prefix, key)))
    assert (files, remarks) == (whole, [])


def rename_topic(directory: Path, start: str) -> None:
    """Has the manifests say the topic's name without the prefix that its directory begins with."""
    for path in directory.glob("*.rsm-manifest"):
        path.write_text(path.read_text().replace(f'"{start}payments"', '"payments"'))


@pytest.mark.parametrize(("prefix", "key"), [("new/", None), ("new/", MAIN), (None, MAIN), ("a/b/new/", None)])
def test_what_names_the_manifests_own_place_changes_nothing(
    tmp_path: Path, prefix: str | None, key: str | None
) -> None:
    directory = write_aiven(tmp_path / "a" / "b" / "new", "payments", 0, SEGMENTS)
    expected = shown(FS, directory, options(None))
    assert shown(FS, directory, options(custom_metadata(prefix, key))) == expected
    assert expected[1] == []


def test_a_copy_of_a_tier_below_another_prefix_is_read_and_said_once(tmp_path: Path) -> None:
    directory = write_aiven(tmp_path / "copy", "payments", 0, SEGMENTS)
    expected, _ = shown(FS, directory, options(None))
    logs = RemoteLogs()
    for one in SEGMENTS:
        logs.take(remote_record(one, "payments", 0, state=1, custom=custom_metadata("kafka/")), "added")
    files, remarks = shown(FS, directory, TierOptions(metadata=logs))
    assert files == expected
    assert problems(remarks) == [(Problem.MOVED_OBJECT, 0, SEGMENTS[-1].end)]
    assert f"of {len(SEGMENTS)} segments" in str(remarks[0]) and f"kafka/{MAIN}" in str(remarks[0])


def test_objects_that_are_nowhere_are_missing(tmp_path: Path) -> None:
    directory = write_aiven(tmp_path / "new", "payments", 0, SEGMENTS)
    move(tmp_path, f"new/{MAIN}", f"old/{MAIN}", [".log"])  # half of them is not enough
    (tmp_path / f"new/{MAIN}.indexes").unlink()
    files, remarks = shown(FS, directory, options(custom_metadata("old/")))
    assert f"{0:020d}.log" not in files
    assert problems(remarks)[:2] == [(Problem.MISSING_OBJECT, 0, None), (Problem.MOVED_OBJECT, 0, FIRST.end)]


def test_objects_that_lack_in_the_place_that_is_named_did_not_move(tmp_path: Path) -> None:
    directory = write_aiven(tmp_path / "new", "payments", 0, SEGMENTS)
    (tmp_path / f"new/{MAIN}.log").unlink()
    _, remarks = shown(FS, directory, options(custom_metadata("new/")))
    assert {one.problem for one in remarks} == {Problem.MISSING_OBJECT}


def test_a_key_without_a_prefix_counts_from_the_configured_one_alone(tmp_path: Path) -> None:
    directory = write_aiven(tmp_path / "new", "payments", 0, SEGMENTS)
    write_aiven(tmp_path, "payments", 0, SEGMENTS)
    move(tmp_path, MAIN, "some/key")
    _, remarks = shown(FS, directory, options(custom_metadata(None, "some/key")))
    assert [one.problem for one in remarks] == [Problem.MOVED_OBJECT]


def test_a_key_that_is_no_path_here_is_said_and_not_raised(tmp_path: Path) -> None:
    directory = write_aiven(tmp_path / "new", "payments", 0, SEGMENTS)
    for key in ("k" * 300, f"new/{MAIN}.rsm-manifest/below"):
        _, remarks = shown(FS, directory, options(custom_metadata("", key)))
        assert [one.problem for one in remarks] == [Problem.MOVED_OBJECT], key


@pytest.mark.parametrize("custom", [custom_metadata("old/", MAIN)[:-1], custom_metadata("../../"), b"\xff" * 9])
def test_custom_metadata_that_cannot_be_read_is_a_remark(tmp_path: Path, custom: bytes) -> None:
    directory = write_aiven(tmp_path / "new", "payments", 0, SEGMENTS)
    expected, _ = shown(FS, directory, options(None))
    files, remarks = shown(FS, directory, options(custom))
    assert files == expected
    assert problems(remarks) == [(Problem.BAD_OBJECT, 0, FIRST.end)]
    assert "the custom metadata of the segment at offset 0 cannot be read" in str(remarks[0])


def test_objects_beside_the_manifest_that_no_broker_reads_are_orphans(tmp_path: Path) -> None:
    directory = write_aiven(tmp_path / "new", "payments", 0, SEGMENTS)
    expected, _ = shown(FS, directory, options(None))
    write_aiven(tmp_path / "old", "payments", 0, SEGMENTS)
    (tmp_path / f"new/{MAIN}.log").write_bytes(b"another one")
    files, remarks = shown(FS, directory, options(custom_metadata("old/")))
    assert files == expected
    assert [(one.problem, one.path) for one in remarks] == [
        (Problem.ORPHAN_OBJECT, tmp_path / f"new/{MAIN}{kind}") for kind in (".indexes", ".log")
    ]


def test_metadata_of_what_is_not_finished_moves_nothing(tmp_path: Path) -> None:
    directory = write_aiven(tmp_path / "new", "payments", 0, SEGMENTS)
    _, remarks = shown(FS, directory, options(b"\xff", state=0))
    assert problems(remarks)[0] == (Problem.INCOMPLETE_UPLOAD, 0, FIRST.end)
    assert not [one for one in remarks if one.problem is Problem.BAD_OBJECT]


def test_in_a_bucket_a_key_is_found_from_its_root_also_where_directories_between_are_forbidden(tmp_path: Path) -> None:
    write_aiven(tmp_path / "kafka" / "new", "payments", 0, SEGMENTS)
    whole, _ = shown(FS, tmp_path / "kafka" / "new" / DIRECTORY, options(None))
    move(tmp_path, f"kafka/new/{MAIN}", f"old/{MAIN}")
    objects = {str(one.relative_to(tmp_path)): one.read_bytes() for one in tmp_path.rglob("*") if one.is_file()}
    with object_server() as server:
        server.objects = {f"bkt/{key}": data for key, data in objects.items()}
        server.fault = lambda _, path: Fault(403, "AccessDenied") if "kafka/old" in unquote(path) else None
        fs = files_of(StoreSettings.of(server.environment))
        files, remarks = shown(fs, parse_location(f"s3://bkt/kafka/new/{DIRECTORY}"), options(custom_metadata("old/")))
    assert (files, remarks) == (whole, [])
