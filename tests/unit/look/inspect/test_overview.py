"""`ls`: sizes, offsets and times without reading logs from end to end."""

from __future__ import annotations

import struct
from pathlib import Path

from seglog.look.inspect.overview import overview
from seglog.scan.listing import resolve_paths
from seglog.storage.local import LocalFileSystem
from tests.support import logs_on_disk as logs

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


def test_a_wrong_index_does_not_mislead(tmp_path: Path) -> None:
    path = logs.write_log(tmp_path, logs.plain_batches())
    path.with_suffix(".index").write_bytes(struct.pack(">ii", 5, 10**8))
    (found,) = overview(FS, resolve_paths(FS, [path.parent]))
    assert found.end_offset == 24


def test_an_empty_segment_ends_where_it_begins(tmp_path: Path) -> None:
    path = logs.write_log(tmp_path, [], base_offset=7)
    (found,) = overview(FS, resolve_paths(FS, [path.parent]))
    assert (found.end_offset, found.segments[0].max_timestamp) == (7, None)
