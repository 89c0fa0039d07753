"""A manifest that was cut, or has text that no file can have, is refused, and one of odd files is not;
`test_hostile_repositories.py` has the other changes.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

import seglog
from seglog.errors import CorruptTierError, RefusedError
from seglog.format.codecs.zstd import zstd
from seglog.storage.local import LocalFileSystem
from seglog.storage.routing import machine_files
from seglog_rescue.backup.repository import Repository
from seglog_rescue.operations.backup import BackupRequest, backup
from seglog_stores.formats.snapshot_manifest import Part, Snapshot, StoredPartition, format_snapshot, packed_manifest
from seglog_stores.formats.snapshot_reading import KnownLines, parse_snapshot, read_manifest, unpacked_manifest
from tests.support.command_line import clean_logs
from tests.support.log_files import batch, contents_below
from tests.support.manual_clock import ManualClock


def stored(logs: Path, place: Path) -> Snapshot:
    """The snapshot of a run."""
    clock = ManualClock(1_700_000_000_000)
    return backup(LocalFileSystem(), machine_files(), clock, BackupRequest([logs], place)).snapshot


@pytest.mark.parametrize("end", [0, 1, -1, -40, -200])
def test_a_cut_manifest_is_refused(tmp_path: Path, end: int) -> None:
    snapshot = stored(clean_logs(tmp_path), tmp_path / "backup")
    with pytest.raises(CorruptTierError):
        parse_snapshot(format_snapshot(snapshot)[:end], "manifest", snapshot.id)


def test_a_manifest_is_stored_as_a_zstd_frame_and_read_as_plain_lines_too(tmp_path: Path) -> None:
    place = tmp_path / "backup"
    snapshot = stored(clean_logs(tmp_path), place)
    (path,), repository = (place / "snapshots").iterdir(), Repository(machine_files(), place)
    packed, text = path.read_bytes(), format_snapshot(snapshot)
    assert zstd.decompress(packed) == text and len(packed) < len(text) / 2
    path.write_bytes(text)  # as earlier builds stored it
    assert repository.read(snapshot.id) == snapshot
    assert repository.write(snapshot) == len(packed)  # it is there already, in either form
    path.write_bytes(packed_manifest(format_snapshot(replace(snapshot, started_ms=1))))
    with pytest.raises(RefusedError, match="another run has written it meanwhile"):
        repository.write(snapshot)


@pytest.mark.parametrize("end", [4, 20, -1])
def test_a_cut_frame_is_refused(tmp_path: Path, end: int) -> None:
    packed = packed_manifest(format_snapshot(stored(clean_logs(tmp_path), tmp_path / "backup")))
    with pytest.raises(CorruptTierError):
        read_manifest(unpacked_manifest(packed[:end], "manifest"), "manifest", "id")


def test_a_frame_does_not_expand_beyond_the_limit() -> None:
    frame = packed_manifest(bytes(64 << 20))
    with (
        patch("seglog_stores.formats.snapshot_reading.SNAPSHOT_BYTES_LIMIT", 32 << 20),
        pytest.raises(CorruptTierError, match="expands to more than 33554432 bytes"),
    ):
        unpacked_manifest(frame, "manifest")


def test_a_line_that_several_manifests_have_is_parsed_once(tmp_path: Path) -> None:
    snapshot = stored(clean_logs(tmp_path), tmp_path / "backup")
    (directory,) = snapshot.directories
    first, *others = directory.partitions
    grown = replace(directory, partitions=(replace(first, cut=7), *others))
    later = replace(snapshot, ended_ms=snapshot.ended_ms + 1, directories=(grown,))
    parsed: list[Part] = []
    known = KnownLines(parsed.append)
    for each in (snapshot, later):
        known.take(read_manifest(format_snapshot(each), "manifest", each.id))
    assert parsed == [replace(directory, partitions=()), *directory.partitions, replace(first, cut=7)]


def test_a_partition_that_is_there_twice_is_refused_by_what_knows_its_line(tmp_path: Path) -> None:
    snapshot = stored(clean_logs(tmp_path), tmp_path / "backup")
    (directory,) = snapshot.directories
    known = KnownLines(lambda part: part)
    known.take(read_manifest(format_snapshot(snapshot), "manifest", snapshot.id))
    twice = replace(directory, partitions=(*directory.partitions, directory.partitions[0]))
    data = format_snapshot(replace(snapshot, directories=(twice,)))
    with pytest.raises(CorruptTierError, match=f"{directory.partitions[0].name} is there twice"):
        known.take(read_manifest(data, "manifest", snapshot.id))


def test_a_changed_manifest_has_other_parts_and_is_itself_without_any(tmp_path: Path) -> None:
    snapshot = stored(clean_logs(tmp_path), tmp_path / "backup")
    manifest = read_manifest(format_snapshot(snapshot), "manifest", snapshot.id)
    (directory,) = snapshot.directories
    name = directory.partitions[1].name

    def is_meant(part: Part) -> bool:
        return isinstance(part, StoredPartition) and part.name == name

    def with_cut(part: Part) -> Part:
        return replace(part, cut=7) if isinstance(part, StoredPartition) else part

    cut = tuple(with_cut(each) if is_meant(each) else each for each in directory.partitions)
    changed = manifest.changed(KnownLines(is_meant), with_cut)
    assert changed.snapshot() == replace(snapshot, directories=(replace(directory, partitions=cut),))
    assert manifest.changed(KnownLines(lambda _: False), with_cut) is manifest


def of_path(snapshot: Snapshot, path: str) -> bytes:
    """The manifest of a log directory with another path."""
    (directory,) = snapshot.directories
    return format_snapshot(replace(snapshot, directories=(replace(directory, path=path),)))


def test_text_that_no_file_can_have_is_refused(tmp_path: Path) -> None:
    """JSON can escape half of a surrogate pair; a path that is not UTF-8 has other halves (PEP 383)."""
    snapshot = stored(clean_logs(tmp_path), tmp_path / "backup")
    with pytest.raises(CorruptTierError, match=r"path: \"\\ud800\" has a lone surrogate"):
        parse_snapshot(of_path(snapshot, "\ud800"), "manifest", snapshot.id)
    (directory,) = parse_snapshot(of_path(snapshot, "/logs-\udcff"), "manifest", snapshot.id).directories
    assert directory.path == "/logs-\udcff"


@pytest.mark.parametrize("seconds", [-(2**31), -1, 2**33])
def test_a_time_before_1970_and_the_id_of_no_broker_are_stored_and_come_back(tmp_path: Path, seconds: int) -> None:
    (tmp_path / "logs" / "orders-0").mkdir(parents=True)
    names = (f"orders-0/{0:020}.log", "meta.properties")
    for name, contents in zip(names, (batch(0), b"version=1\ncluster.id=one\nnode.id=-5\n"), strict=True):
        (tmp_path / "logs" / name).write_bytes(contents)
        os.utime(tmp_path / "logs" / name, (0, seconds))
    stored(tmp_path / "logs", tmp_path / "backup")
    seglog.restore_backup(tmp_path / "backup", tmp_path / "made")
    assert contents_below(tmp_path / "made") == contents_below(tmp_path / "logs")
    assert {(tmp_path / "made" / name).stat().st_mtime for name in names} == {seconds}
