"""Files without read permission. `test_replaced` covers those that change or vanish."""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from seglog.errors import CorruptRecordError, RefusedError
from seglog.storage.filesystem import OpenMode
from seglog.storage.local import LocalFile, LocalFileSystem
from seglog_ask.spark.read_options import parse_read_options
from seglog_ask.table.engines.arrow import split_batches
from seglog_ask.table.plan.options import ReadOptions
from seglog_ask.table.plan.schema import default_projection
from seglog_ask.table.plan.splits import Split, plan_splits
from tests.support.naive import NaiveRecord, batch_v2
from tests.support.watched_files import routed

FS = LocalFileSystem()
BATCHES, RECORDS = 4, 10


class ForbiddingFileSystem(LocalFileSystem):
    """Forbids opening some files and listing some directories; root ignores file modes."""

    def __init__(self, forbidden: str) -> None:
        self.forbidden = forbidden

    def open(self, path: Path, mode: OpenMode) -> LocalFile:
        self._check(path)
        return super().open(path, mode)

    def list(self, directory: Path) -> list[str]:
        self._check(directory)
        return super().list(directory)

    def _check(self, path: Path) -> None:
        if path.name == self.forbidden:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))


def data(first: int) -> bytes:
    return b"".join(
        batch_v2(first + n * RECORDS, [NaiveRecord(i, i, b"k", b"v") for i in range(RECORDS)]) for n in range(BATCHES)
    )


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    """The first of two segments."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    for first in (0, BATCHES * RECORDS):
        (directory / f"{first:020}.log").write_bytes(data(first))
    return directory / f"{0:020}.log"


def options(path: Path, **given: str) -> ReadOptions:
    return parse_read_options({"path": str(path.parent), **given})


def planned(path: Path, **given: str) -> list[Split]:
    return plan_splits(FS, options(path, **given))


def rows(fs: LocalFileSystem, splits: list[Split], chosen: ReadOptions) -> Iterator[pa.RecordBatch]:
    for split in splits:
        yield from split_batches(fs, split, default_projection("records", ("offset",), False), chosen)


@pytest.mark.parametrize("forbidden", ["t-0", f"{BATCHES * RECORDS:020}.log"])
def test_what_may_not_be_looked_at_is_named_when_the_read_is_planned(sealed: Path, forbidden: str) -> None:
    with pytest.raises(RefusedError, match=f"{forbidden}: no permission to read it"):
        plan_splits(ForbiddingFileSystem(forbidden), options(sealed, endingOffsets='{"t":{"0":50}}'))


def test_a_stream_names_what_it_may_not_look_at(sealed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    from seglog_ask.spark import stream

    last = f"{BATCHES * RECORDS:020}.log"
    monkeypatch.setattr(stream, "files_of", lambda _: routed(ForbiddingFileSystem(last)))
    followed = stream.FollowedLog(parse_read_options({"path": str(sealed.parent)}, streaming=True))
    for asked in (followed.starting_offsets, followed.ends):
        with pytest.raises(RefusedError, match=f"{last}: no permission to read it"):
            asked()


def test_a_file_that_may_not_be_read_is_named(sealed: Path) -> None:
    splits = planned(sealed)
    with pytest.raises(RefusedError, match=f"{sealed.name}: no permission to read it"):
        list(rows(ForbiddingFileSystem(sealed.name), splits, options(sealed)))


@pytest.mark.parametrize("layout", ["in the next segment", "in the next task"])
def test_offsets_that_what_follows_claims_too_are_out_of_order(tmp_path: Path, layout: str) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    batches = [data(0)[: len(data(0)) // BATCHES * (n + 1)][len(data(0)) // BATCHES * n :] for n in range(BATCHES)]
    first = directory / f"{0:020}.log"
    first.write_bytes(b"".join(batches))
    if layout == "in the next segment":
        (directory / f"{20:020}.log").write_bytes(data(20))
    else:
        first.write_bytes(b"".join([*batches, *batches]))
        positions = [(n, len(batches[0]) * n) for n in range(1, 2 * BATCHES)]
        entries = b"".join(struct.pack(">ii", 10 * n + 9, at) for n, at in positions)
        (directory / f"{0:020}.index").write_bytes(entries)
    splits = planned(first, maxPartitionBytes=str(len(batches[0]) * 4))
    with pytest.raises(CorruptRecordError, match=r"begins at offset|do not follow"):
        list(rows(FS, splits, options(first)))
    kept = sum(len(each) for each in rows(FS, splits, options(first, onCorrupt="skip")))
    assert kept >= 60
