"""Small logs that are read at once: the same statistics as through a view, of the `.log` files alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from seglog.errors import SeglogError
from seglog.look.inspect import statistics
from seglog.look.inspect.statistics import view_statistics
from seglog.scan import small_log
from seglog.scan.listing import list_log_directory
from seglog.scan.small_log import small_log_at_rest
from seglog.storage.filesystem import File, OpenMode, PassingFileSystem
from seglog.storage.local import LocalFileSystem
from tests.support import log_files as logs
from tests.support.broken.mutated_directories import mutated_directories
from tests.support.fixtures import fixture_copy, manifest

FS = LocalFileSystem()


def log_of(directory: Path, *segments: bytes) -> Path:
    """A partition with segments of these bytes, whatever they hold."""
    partition = directory / "t-0"
    partition.mkdir(parents=True)
    for number, data in enumerate(segments):
        (partition / f"{number * 100:020}.log").write_bytes(data)
    return partition


def outcome(partition: Path) -> object:
    try:
        return view_statistics(FS, partition)
    except (OSError, SeglogError) as error:
        return type(error), str(error)


def outcomes(directory: Path) -> Iterator[object]:
    yield from (outcome(found.path) for found in list_log_directory(FS, directory).partitions)


@pytest.fixture(params=["mutated", *(name for name in manifest() if name != "0.7")])
def directories(request: pytest.FixtureRequest, tmp_path: Path) -> list[Path]:
    return [fixture_copy(request.param, tmp_path)] if request.param != "mutated" else mutated_directories(tmp_path)


def test_statistics_are_those_of_a_view(directories: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    found = [list(outcomes(directory)) for directory in directories]
    monkeypatch.setattr(statistics, "small_log_at_rest", lambda *_: None)
    assert found == [list(outcomes(directory)) for directory in directories]


def test_only_the_logs_are_opened(tmp_path: Path) -> None:
    opened: list[str] = []

    class Noting(PassingFileSystem):
        def open(self, path: Path, mode: OpenMode) -> File:
            opened.append(path.name)
            return super().open(path, mode)

    directory = fixture_copy("4.3.0/clean", tmp_path) / "orders-none-0"
    found = small_log_at_rest(Noting(FS), directory)
    assert found is not None and len(found.entries.batches)
    assert opened == [segment.log.name for segment in found.listing.segments] and len(opened) > 1


def test_a_batch_belongs_to_one_segment(tmp_path: Path) -> None:
    first, second, third = logs.plain_batches(3, 4)
    assert small_log_at_rest(FS, log_of(tmp_path / "whole", first + second, b"", third)) is not None
    torn = log_of(tmp_path / "torn", first + second[:70], second[70:] + third)
    assert small_log_at_rest(FS, torn) is None
    found = view_statistics(FS, torn)
    assert (found.batches, found.damaged_bytes) == (2, len(second))


@pytest.mark.parametrize("what", ["a wrong byte", "zeros after it", "nothing", "too much"])
def test_any_other_log_is_left_to_a_view(tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytearray(b"".join(logs.plain_batches(3, 4)))
    if what == "a wrong byte":
        data[-1] ^= 1
    elif what == "zeros after it":
        data += bytes(100)
    elif what == "too much":
        monkeypatch.setattr(small_log, "_MOST_BYTES", len(data) - 1)
    partition = log_of(tmp_path, *([] if what == "nothing" else [bytes(data)]))
    assert small_log_at_rest(FS, partition) is None


def test_a_log_that_somebody_may_be_writing_is_left_to_a_view(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partition = log_of(tmp_path, b"".join(logs.plain_batches(3, 4)))
    assert small_log_at_rest(FS, partition) is not None
    monkeypatch.setattr(small_log, "is_live", lambda _partition: True)
    assert small_log_at_rest(FS, partition) is None
