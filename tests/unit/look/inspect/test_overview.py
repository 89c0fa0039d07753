"""`ls`: sizes, offsets and times without reading logs from end to end."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from seglog.look.inspect.overview import overview
from seglog.scan.listing import resolve_paths
from seglog.storage.local import LocalFileSystem
from tests.support import log_files as logs
from tests.support.watched_files import CountingFileSystem

FS = LocalFileSystem()


def test_segments_end_where_the_next_begins_and_the_last_where_its_batches_end(tmp_path: Path) -> None:
    for base in (0, 24):
        path = logs.write_log(tmp_path, logs.plain_batches(first_offset=base), base_offset=base)
    path.with_suffix(".index").write_bytes(struct.pack(">ii", 5, len(logs.plain_batches()[0])))
    path.with_name("00000000000000000000.log.deleted").touch()
    (found,) = overview(FS, resolve_paths(FS, [tmp_path / "t-0"]))
    assert [(s.base_offset, s.end_offset, s.active) for s in found.segments] == [(0, 24, False), (24, 48, True)]
    assert (found.start_offset, found.end_offset, found.size) == (0, 48, 2 * path.stat().st_size)
    assert found.segments[1].max_timestamp == 1072 and found.segments[1].index_size == 8
    assert found.leftovers == ("00000000000000000000.log.deleted",)


def test_a_partition_is_listed_once_and_no_file_is_asked_for_what_the_listing_told(tmp_path: Path) -> None:
    for base in (0, 24, 48):
        path = logs.write_log(tmp_path, logs.plain_batches(first_offset=base), base_offset=base)
        for kind in (".index", ".timeindex"):
            path.with_suffix(kind).touch()
    targets, fs = resolve_paths(FS, [tmp_path / "t-0"]), CountingFileSystem()
    (found,) = overview(fs, targets, log_starts=False)
    assert len(found.segments) == 3 and fs.calls["list"] == 1
    assert fs.calls["status"] == 1  # of the directory
    assert max(fs.opened.values()) == 1


def test_a_wrong_index_does_not_mislead(tmp_path: Path) -> None:
    path = logs.write_log(tmp_path, logs.plain_batches())
    path.with_suffix(".index").write_bytes(struct.pack(">ii", 5, 10**8))
    (found,) = overview(FS, resolve_paths(FS, [path.parent]))
    assert found.end_offset == 24


def test_an_empty_segment_ends_where_it_begins(tmp_path: Path) -> None:
    path = logs.write_log(tmp_path, [], base_offset=7)
    (found,) = overview(FS, resolve_paths(FS, [path.parent]))
    assert (found.end_offset, found.segments[0].max_timestamp) == (7, None)


@pytest.mark.parametrize(
    ("noted", "start"),
    [
        ("0\n1\nt 0 700\n", 700),  # DeleteRecords within the second segment
        ("0\n1\nt 0 712\n", 712),  # everything
        ("0\n1\nt 0 3\n", 676),  # older than the files
        ("0\n1\nt 0 900\n", 676),  # beyond the log end: a broker begins anew
        ("0\n1\nother 0 700\n", 676),
        ("0\n1\nt 0 7", 676),  # a wrong line: a broker takes none of them
        ("0\n9\nt 0 700\n", 676),
        ("", 676),
    ],
)
@pytest.mark.parametrize("of_partition", [True, False])
def test_a_partition_starts_where_its_broker_has_noted_it(
    tmp_path: Path, noted: str, start: int, of_partition: bool
) -> None:
    for base in (676, 688):
        logs.write_log(tmp_path, logs.plain_batches(first_offset=base), base_offset=base)
    (tmp_path / "log-start-offset-checkpoint").write_text(noted)
    (found,) = overview(FS, resolve_paths(FS, [tmp_path / "t-0" if of_partition else tmp_path]))
    assert (found.start_offset, found.end_offset) == (start, 712)
    assert found.segments[0].base_offset == 676
    (plain,) = overview(FS, resolve_paths(FS, [tmp_path / "t-0"]), log_starts=False)
    assert plain.start_offset == 676


def test_a_partition_that_is_set_aside_starts_at_its_first_segment(tmp_path: Path) -> None:
    path = logs.write_log(tmp_path, logs.plain_batches(first_offset=676), base_offset=676)
    path.parent.rename(tmp_path / ("t-0." + 32 * "a" + "-stray"))
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nt 0 690\n")
    (found,) = overview(FS, resolve_paths(FS, [tmp_path]))
    assert (found.state, found.start_offset) == ("stray", 676)
