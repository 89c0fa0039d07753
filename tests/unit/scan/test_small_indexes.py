"""Small indexes that are read together: listings and figures are those of reading one after the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.configuration.keys import LogConfig
from seglog.log import outline
from seglog.look.inspect import overview
from seglog.look.report.partition_figures import Surrounding, TopicRules, partition_figures
from seglog.scan.index_files import held_rows, read_index, small_indexes
from seglog.scan.listing import Target, TargetKind, list_log_directory, list_partition
from seglog.storage.filesystem import READ_BYTES_LIMIT, PassingFileSystem
from tests.support.broken.mutated_directories import mutated_directories
from tests.support.fixtures import fixture_copy, manifest
from tests.support.log_files import FS

ORDERS = "orders-none-0"


@pytest.fixture(params=["mutated", *manifest()])
def directories(request: pytest.FixtureRequest, tmp_path: Path) -> list[Path]:
    return [fixture_copy(request.param, tmp_path)] if request.param != "mutated" else mutated_directories(tmp_path)


def told(directory: Path) -> list[object]:
    """What `ls` and `report` know of each partition, or the error."""
    around = Surrounding("", "", lambda _: TopicRules(LogConfig(), "", True), {}, 1 << 41)
    rows: list[object] = list(overview.overview(FS, [Target(directory, TargetKind.LOG_DIRECTORY)]))
    for partition in list_log_directory(FS, directory).partitions:
        try:
            rows.append(partition_figures(FS, partition, around))
        except OSError as error:
            rows.append(error)
    return list(map(repr, rows))


def test_what_is_told_is_the_same(directories: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    together = [told(directory) for directory in directories]
    for module in (overview, outline):
        monkeypatch.setattr(module, "small_indexes", lambda *_, **__: {})
    assert together == [told(directory) for directory in directories]


def test_the_rows_are_those_of_each(tmp_path: Path) -> None:
    listing = list_partition(FS, fixture_copy("4.3.0/clean", tmp_path) / ORDERS)
    held, last = small_indexes(FS, listing, log_bytes=1 << 20), listing.segments[-1]
    assert held[last.log.name] == last.log.read_bytes()
    assert len(listing.segments) > 1 and len(held) == len(listing.segments) + 2
    for segment in listing.segments:
        for path in filter(None, (segment.time_index, segment.offset_index if segment is last else None)):
            rows = read_index(FS, path, segment.base_offset).rows
            assert held_rows(path, held[path.name], segment.base_offset).tolist() == rows.tolist()


def test_large_indexes_and_unreadable_ones_are_left_to_be_read_alone(tmp_path: Path) -> None:
    directory = fixture_copy("4.3.0/clean", tmp_path) / ORDERS
    listing = list_partition(FS, directory)
    small, last = small_indexes(FS, listing), listing.segments[-1]
    assert last.log.name not in small and last.time_index is not None
    with last.time_index.open("ab") as file:
        file.truncate(10 << 20)
    assert small_indexes(FS, list_partition(FS, directory)).keys() == small.keys() - {
        f"{last.log.stem}.index",
        f"{last.log.stem}.timeindex",
    }
    last.time_index.unlink()
    assert not small_indexes(FS, listing)

    class Refusing(PassingFileSystem):
        def read_bytes(self, path: Path, limit: int = READ_BYTES_LIMIT) -> bytes:
            raise PermissionError(path)

    assert not small_indexes(Refusing(FS), listing)
