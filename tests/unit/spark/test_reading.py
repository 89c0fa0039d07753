"""Files that may not be read, change or vanish, before and while they are read."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from seglog.errors import CorruptRecordError, RefusedError
from seglog.spark import reading
from seglog.spark.options import ReadOptions, parse_read_options
from seglog.spark.schema import default_projection
from seglog.spark.splits import Split, plan_splits
from seglog.spark.views import split_batches
from seglog.storage.filesystem import LocalFile, LocalFileSystem, OpenMode
from tests.support.naive import NaiveRecord, batch_v2

FS = LocalFileSystem()
BATCHES, RECORDS = 4, 10


class ForbiddingFileSystem(LocalFileSystem):
    """Some files may not be opened, some directories not be listed (root may do either, whatever their modes)."""

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
    from seglog.spark import stream

    last = f"{BATCHES * RECORDS:020}.log"
    monkeypatch.setattr(stream, "LocalFileSystem", lambda: ForbiddingFileSystem(last))
    followed = stream.FollowedLog(parse_read_options({"path": str(sealed.parent)}, streaming=True))
    for asked in (followed.starting_offsets, followed.ends):
        with pytest.raises(RefusedError, match=f"{last}: no permission to read it"):
            asked()


def test_a_file_that_may_not_be_read_is_named(sealed: Path) -> None:
    splits = planned(sealed)
    with pytest.raises(RefusedError, match=f"{sealed.name}: no permission to read it"):
        list(rows(ForbiddingFileSystem(sealed.name), splits, options(sealed)))


def grown(path: Path) -> None:
    path.write_bytes(path.read_bytes() + data(10_000))


def cleaned(path: Path) -> None:
    """Another file under the name, of the same size, as a cleaner's swap puts there."""
    other = path.with_suffix(".swap")
    other.write_bytes(path.read_bytes())
    os.utime(other, ns=(0, 0))
    other.rename(path)


def cut(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(len(data(0)) // BATCHES)


@pytest.mark.parametrize("change", [grown, cleaned, cut])
def test_a_file_that_changes_while_it_is_read_is_refused(
    sealed: Path, change: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    splits, chosen = planned(sealed), options(sealed)
    monkeypatch.setattr(reading, "CHUNK_BYTES", len(data(0)) // BATCHES)
    pieces = reading.walk_piece(FS, splits[0].pieces[0], chosen)
    assert isinstance(next(pieces), reading.Batches)
    change(sealed)
    with pytest.raises(RefusedError, match=f"{sealed.name}: the file changed since the query was planned"):
        for step in pieces:
            assert isinstance(step, reading.Batches | reading.Damage)


def test_a_file_that_vanishes_while_it_is_read_is_read_to_its_end(sealed: Path) -> None:
    splits, chosen = planned(sealed), options(sealed)
    pieces = reading.walk_piece(FS, splits[0].pieces[0], chosen)
    found = [next(pieces)]
    sealed.unlink()
    found += list(pieces)
    assert sum(len(step.batches) for step in found if isinstance(step, reading.Batches)) == BATCHES


def test_a_file_that_is_gone_is_data_loss_that_may_be_passed_over(sealed: Path, caplog) -> None:
    splits = planned(sealed)
    sealed.unlink()
    with pytest.raises(RefusedError, match=f"{sealed.name}: the file is gone since the query was planned"):
        list(rows(FS, splits, options(sealed)))
    left = list(rows(FS, splits, options(sealed, failOnDataLoss="false")))
    assert sum(batch.num_rows for batch in left) == BATCHES * RECORDS
    assert f"{sealed.name}: the file is gone" in caplog.text


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
