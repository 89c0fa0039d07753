"""The live value of each key, found by the tasks: only the live rows pass the JVM.

A split's pieces of one partition are a *share*. Shares are numbered by partition and offset, so that among equal keys
of a partition the one in the highest share is the newest. A record is identified by its offset, counted from the start
of its share: that still finds it if its file is cleaned between the two reads.

1. `index_split`, one task per split: finds the newest record of each key in each share. Keys go to the partition's
   reducers by hash, as blobs (`seglog_ask.spark.keys`).
2. `merge_shares`, one task per reducer: finds the newest record of each key over all shares (`key_merge`, in bounded
   memory). The offsets of those records go back to their splits.
3. `live_rows`, one task per split: reads its records again; those with such an offset and a value become rows.

A partition that lies in one split needs no exchange: step 3 does all the work for it. Keys are compared by their bytes.
Reading records twice costs less than passing a row for each through the JVM. A task is only sent its own split's
shares.
"""

from __future__ import annotations

import json
import logging
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from seglog.cleaner.round import CleanerOptions
from seglog.errors import IncompleteError
from seglog.format.columns import Records
from seglog.kernels.hashing import SEED_WORDS
from seglog.layout import INT32_MAX
from seglog.storage.filesystem import FileSystem
from seglog.storage.local import LocalFileSystem
from seglog_ask.spark.key_merge import KeyMerge, MergeSpace
from seglog_ask.spark.keys import ENTRIES, Bytes, DirtyKeys, Keys, by_reducer, object_blob, opened
from seglog_ask.spark.read_options import parse_read_options
from seglog_ask.spark.tasks import ROW, blobs_of, cores_of, distributed, in_batches, local_directory, settle
from seglog_ask.table.plan.files import files_of, sendable
from seglog_ask.table.plan.options import ReadOptions
from seglog_ask.table.plan.schema import Field, ddl, default_projection
from seglog_ask.table.plan.splits import SegmentPiece, Split, plan_splits
from seglog_ask.table.read.records import records_of
from seglog_ask.table.values.columns import ColumnBuilder, spark_outputs

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp")
BYTES_PER_REDUCER = 1 << 30

_logger = logging.getLogger("seglog.spark.latest")

_MOST_OFFSET = (1 << 32) - 1  # a blob's ordinals are uint32
_NO_OFFSETS = np.zeros(0, dtype=np.uint32)

Message = tuple[int, bytes]  # target (a reducer, or a split), blob


@dataclass(frozen=True, slots=True)
class Share:
    """A split's pieces of one partition, with its `number` among all shares.

    Its keys go to the `reducers` from `first_reducer` on; with no reducers it is the whole partition. Offsets in it are
    counted from `base`.
    """

    number: int
    pieces: tuple[SegmentPiece, ...]
    base: int
    first_reducer: int = 0
    reducers: int = 0

    @property
    def subject(self) -> str:
        """The name in messages."""
        return f"{self.pieces[0].topic}-{self.pieces[0].partition}"


@dataclass(frozen=True)
class LatestPlan:
    """What all tasks must know: the number of reducers, and how to find a share's split. It is the keys' `Exchange`.

    `seeds` are the words that key the hashes; `memory` limits the size of a task's offset map.
    """

    reducers: int
    share_bits: int
    options: ReadOptions
    seeds: bytes
    memory: CleanerOptions = field(default_factory=CleanerOptions)

    @property
    def subject(self) -> str:
        return ", ".join(self.options.paths)

    @property
    def hash_seeds(self) -> np.ndarray:
        return np.frombuffer(self.seeds, dtype=np.int64)

    @property
    def hash_mask(self) -> int:
        return self.memory.hash_mask

    @property
    def projection(self) -> tuple[Field, ...]:
        """The columns of the result."""
        return default_projection("records", COLUMNS, False)

    def split_of(self, share: int) -> int:
        """Returns the split that holds a share."""
        return share >> self.share_bits


@dataclass(frozen=True, slots=True)
class SplitShares:
    """The shares of one split: the work of a task."""

    split: int
    shares: tuple[Share, ...]


@dataclass(frozen=True, slots=True)
class _Tombstones:
    """The offsets of each share's newest records without a value, by share number. They need not exist any more."""

    split: int
    offsets: dict[int, np.ndarray]


def plan_latest(
    splits: Sequence[Split], options: ReadOptions, cores: int, seeds: bytes
) -> tuple[LatestPlan, list[SplitShares]]:
    """Plans the tasks. `splits` must be ordered by partition and offset, as `plan_splits` returns them."""
    held = [(number, pieces) for number, split in enumerate(splits) for pieces in _shares_of(split)]
    sizes: dict[tuple[str, int], list[int]] = defaultdict(list)
    for _, pieces in held:
        sizes[pieces[0].topic, pieces[0].partition].append(sum(piece.bytes for piece in pieces))
    reducers: dict[tuple[str, int], tuple[int, int]] = {}
    total = 0
    for partition, parts in sizes.items():
        count = 0 if len(parts) == 1 else max(min(cores, len(parts)), -(-sum(parts) // BYTES_PER_REDUCER))
        reducers[partition] = total, count
        total += count
    by_split: list[list[tuple[SegmentPiece, ...]]] = [[] for _ in splits]
    for number, pieces in held:
        by_split[number].append(pieces)
    bits = max((len(shares) - 1).bit_length() for shares in by_split) if splits else 0
    work = [
        SplitShares(
            number,
            tuple(
                Share(number << bits | i, pieces, pieces[0].share[0], *reducers[pieces[0].topic, pieces[0].partition])
                for i, pieces in enumerate(shares)
            ),
        )
        for number, shares in enumerate(by_split)
    ]
    return LatestPlan(total, bits, options, seeds), work


def _shares_of(split: Split) -> Iterator[tuple[SegmentPiece, ...]]:
    """Yields the pieces of each partition, in groups whose offsets are within 32 bits of the first one's."""
    for _, pieces in groupby(split.pieces, key=lambda piece: (piece.topic, piece.partition)):
        found: list[SegmentPiece] = []
        for piece in pieces:
            if found and piece.base_offset + INT32_MAX - found[0].share[0] > _MOST_OFFSET:
                yield tuple(found)
                found = []
            found.append(piece)
        yield tuple(found)


def index_split(fs: FileSystem, plan: LatestPlan, work: SplitShares) -> Iterator[Message]:
    """Step 1: yields the keys of a split's shares by reducer, and for reducer 0 which of them are tombstones.

    Raises the errors of reading: CorruptRecordError, IncompleteError, RefusedError.
    """
    tombstones: dict[int, np.ndarray] = {}
    for share in work.shares:
        if share.reducers:
            found = _ShareKeys(plan, share)
            for keys in found.read(fs):
                for target, blob in _by_reducer(plan, share, keys, share.reducers):
                    yield share.first_reducer + target, blob
            tombstones[share.number] = found.tombstones
    yield 0, object_blob(_Tombstones(work.split, tombstones))


def merge_shares(plan: LatestPlan, blobs: Iterable[Bytes], space: MergeSpace) -> Iterator[Message]:
    """Step 2: yields the offsets of the newest records, by split. Reducer 0 also passes on the tombstones of step 1."""
    with closing(KeyMerge(plan, space)) as merge:
        for data in blobs:
            found = opened(data)
            if isinstance(found, _Tombstones):
                yield found.split, object_blob(found)
            else:
                merge.add(found)
        for share, blob in merge.answers():
            yield plan.split_of(share), blob


def live_rows(fs: FileSystem, plan: LatestPlan, blobs: Iterable[Bytes], space: MergeSpace) -> Iterator[pa.RecordBatch]:
    """Step 3: yields the live records of a split, with the columns of `plan.projection`.

    One of the blobs is the split's `SplitShares`. Raises IncompleteError if a live record no longer exists, and the
    errors of reading.
    """
    newest: dict[int, list[np.ndarray]] = defaultdict(list)
    tombstones: dict[int, np.ndarray] = {}
    work: SplitShares | None = None
    for data in blobs:
        found = opened(data)
        if isinstance(found, SplitShares):
            work = found
        elif isinstance(found, _Tombstones):
            tombstones = found.offsets
        else:
            newest[found.group].append(found.ordinals)
    if work is None:
        raise IncompleteError(f"{plan.subject}: a task was not sent its split")
    for share in work.shares:
        offsets, without_value = newest[share.number], tombstones.get(share.number, _NO_OFFSETS)
        if not share.reducers:
            offsets, without_value = _alone(fs, plan, share, space)
        yield from _rows(fs, plan, share, np.unique(np.concatenate([_NO_OFFSETS, *offsets])), without_value)


class _ShareKeys:
    """The newest record of each key of a share, identified by its offset counted from the share's base."""

    def __init__(self, plan: LatestPlan, share: Share) -> None:
        self._plan, self._share = plan, share
        self._offsets: list[np.ndarray] = []  # of every record read
        self._valueless: list[np.ndarray] = []
        self._found: list[np.ndarray] = []

    def read(self, fs: FileSystem) -> Iterator[Keys]:
        """Yields the keys. Their ordinals are offsets."""
        keys_of = DirtyKeys(self._plan.memory, 0)
        for piece in self._share.pieces:
            for records in records_of(fs, piece, self._plan.options):
                self._offsets.append(_counted_from(self._share, records.rows["offset"]))
                self._valueless.append(records.rows["value_size"] < 0)
                for keys in keys_of.add_rows(records.arena, records.rows):
                    yield self._by_offset(keys)
        yield self._by_offset(keys_of.rest())

    @property
    def tombstones(self) -> np.ndarray:
        """The offsets of the newest records without a value, ascending."""
        return np.unique(np.concatenate([_NO_OFFSETS, *self._found]))

    def _by_offset(self, keys: Keys) -> Keys:
        offsets = np.concatenate([_NO_OFFSETS, *self._offsets])
        valueless = np.concatenate([np.zeros(0, dtype=bool), *self._valueless])
        self._offsets, self._valueless = [offsets], [valueless]
        found = offsets[keys.ordinals]
        self._found.append(found[valueless[keys.ordinals]])
        return replace(keys, ordinals=found.astype(np.int64))


def _counted_from(share: Share, offsets: np.ndarray) -> np.ndarray:
    """Returns offsets as uint32, counted from the share's base."""
    counted = offsets - share.base
    if len(counted) and not 0 <= counted.min() <= counted.max() <= _MOST_OFFSET:
        wrong = int(offsets[np.flatnonzero((counted < 0) | (counted > _MOST_OFFSET))[0]])
        raise IncompleteError(f"{share.subject}: offset {wrong} is among records whose offsets begin at {share.base}")
    return counted.astype(np.uint32)


def _by_reducer(plan: LatestPlan, share: Share, keys: Keys, reducers: int) -> Iterator[Message]:
    return by_reducer(ENTRIES, share.number, keys, plan.hash_seeds, plan.hash_mask, reducers)


def _alone(fs: FileSystem, plan: LatestPlan, share: Share, space: MergeSpace) -> tuple[list[np.ndarray], np.ndarray]:
    """Returns the offsets of a whole partition's newest records, and of those among them without a value."""
    found = _ShareKeys(plan, share)
    with closing(KeyMerge(plan, space)) as merge:
        for keys in found.read(fs):
            for _, blob in _by_reducer(plan, share, keys, 1):
                merge.add(opened(blob))
        return [opened(blob).ordinals for _, blob in merge.answers()], found.tombstones


def _rows(
    fs: FileSystem, plan: LatestPlan, share: Share, newest: np.ndarray, tombstones: np.ndarray
) -> Iterator[pa.RecordBatch]:
    live = np.setdiff1d(newest, tombstones, assume_unique=True)
    count = 0
    for piece in share.pieces:
        shown = ColumnBuilder(spark_outputs(plan.projection), piece.topic, piece.partition, piece.path)
        for records in records_of(fs, piece, plan.options):
            chosen = records.rows[_is_in(_counted_from(share, records.rows["offset"]), live)]
            count += len(chosen)
            if len(chosen):
                yield from shown.of(Records(records.arena, chosen, records.batches, records.status))
    if count < len(live):
        text = f"{share.subject}: {len(live) - count} of the newest records are gone since they were found"
        if plan.options.fail_on_data_loss:
            raise IncompleteError(f"{text}: newer records superseded them, or they were deleted; run it again")
        _logger.warning("%s; going on", text)


def _is_in(offsets: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Returns a mask of the offsets that are in `wanted`, which must ascend."""
    if not len(wanted):
        return np.zeros(len(offsets), dtype=bool)
    found: np.ndarray = wanted[np.minimum(np.searchsorted(wanted, offsets), len(wanted) - 1)] == offsets
    return found


# --- the Spark job --------------------------------------------------------------------------------------------


def latest(spark: SparkSession, paths: Sequence[Path], options: dict[str, str] | None = None) -> DataFrame:
    """Returns the live value of each key: key, value, topic, partition, offset, timestamp of its last record.

    Keys whose last record is a tombstone are left out. Only committed records count, unless `options` (those of the
    data source) say otherwise. Like every DataFrame of seglog, it is a snapshot of the logs as they are now.
    """
    from pyspark.sql.functions import col

    given = {"paths": json.dumps([str(path) for path in paths]), "isolationLevel": "read_committed", **(options or {})}
    read = sendable(parse_read_options(given))
    splits = plan_splits(files_of(read.store), read)
    plan, work = plan_latest(splits, read, cores_of(spark), os.urandom(8 * SEED_WORDS))
    schema = ddl(plan.projection)
    if not splits:
        return spark.createDataFrame([], schema)
    shares = distributed(spark, [object_blob(one) for one in work])
    if not plan.reducers:
        return shares.mapInArrow(partial(_live_of_split, plan), schema)
    keys = shares.mapInArrow(partial(_keys_of_splits, plan), ROW)
    newest = keys.repartitionById(plan.reducers, col("target")).mapInArrow(partial(_newest_of_keys, plan), ROW)
    both = newest.unionAll(shares).repartitionById(len(splits), col("target"))
    return both.mapInArrow(partial(_live_of_split, plan), schema)


def _keys_of_splits(plan: LatestPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    settle()
    for _, blob in blobs_of(batches):
        yield from in_batches(index_split(files_of(plan.options.store), plan, opened(blob)))


def _newest_of_keys(plan: LatestPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    settle()
    space = MergeSpace(LocalFileSystem(), local_directory())
    yield from in_batches(merge_shares(plan, (blob for _, blob in blobs_of(batches)), space))


def _live_of_split(plan: LatestPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    settle()
    blobs = [blob for _, blob in blobs_of(batches)]
    if blobs:
        space = MergeSpace(LocalFileSystem(), local_directory())
        yield from live_rows(files_of(plan.options.store), plan, blobs, space)
