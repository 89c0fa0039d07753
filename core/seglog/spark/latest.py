"""The live value of each key, found in the tasks, without a word of Spark: only the rows asked for pass the JVM.

What a split holds of one partition is a *share*. Shares are numbered by partition and offset, so that of equal keys of
a partition the one in the highest share is the newest. A record is known by its offset, counted from the beginning of
its share: a file that is cleaned between the two reads holds it all the same.

1. `index_split`, a task a split: the newest record of each key in each share; keys go to the partition's reducers by
   hash, as blobs (`cleaning_blobs`).
2. `merge_shares`, a task a reducer: the newest of each key over all shares (`cleaning_merge`, in bounded memory); the
   offsets of those records go back to their splits.
3. `live_rows`, a task a split: its records once more; those with such an offset and a value become rows.

A partition that lies in one split needs no exchange: step 3 does the others' work for it. Keys are compared by their
bytes. Records are read twice, which costs less than a row through the JVM for each. A task gets its own split's shares,
and of the others nothing.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from seglog.cleaner.round import CleanerOptions
from seglog.errors import IncompleteError
from seglog.format.columns import Records
from seglog.layout import INT32_MAX
from seglog.spark.arrow import ArrowRows, records_of
from seglog.spark.cleaning_blobs import ENTRIES, Bytes, Keys, by_reducer, object_blob, opened
from seglog.spark.cleaning_keys import DirtyKeys
from seglog.spark.cleaning_merge import KeyMerge, MergeSpace
from seglog.spark.options import ReadOptions
from seglog.spark.schema import Field, default_projection
from seglog.spark.splits import SegmentPiece, Split
from seglog.storage.filesystem import FileSystem

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp")
BYTES_PER_REDUCER = 1 << 30

_logger = logging.getLogger(__name__)

_MOST_OFFSET = (1 << 32) - 1  # what a blob's ordinals hold
_NO_OFFSETS = np.zeros(0, dtype=np.uint32)

Message = tuple[int, bytes]  # target (a reducer, or a split), blob


@dataclass(frozen=True, slots=True)
class Share:
    """What a split holds of a partition, `number` among all shares. Its keys meet in the `reducers` from
    `first_reducer` on; without any it is the whole partition. `base` is the offset that its others are counted from.
    """

    number: int
    pieces: tuple[SegmentPiece, ...]
    base: int
    first_reducer: int = 0
    reducers: int = 0

    @property
    def subject(self) -> str:
        """What messages call it."""
        return f"{self.pieces[0].topic}-{self.pieces[0].partition}"


@dataclass(frozen=True)
class LatestPlan:
    """What all tasks must know: how many reducers there are, and how to find a share's split. It is the `Exchange` of
    the keys. `seeds` are the words that key the hashes; `memory` says how large a task's offset map may get.
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
        """The columns of the rows."""
        return default_projection("records", COLUMNS, False)

    def split_of(self, share: int) -> int:
        """The split that holds a share."""
        return share >> self.share_bits


@dataclass(frozen=True, slots=True)
class SplitShares:
    """The work of one split."""

    split: int
    shares: tuple[Share, ...]


@dataclass(frozen=True, slots=True)
class _Tombstones:
    """Of each share's keys, the newest records without a value, by share number: they need not be there any more."""

    split: int
    offsets: dict[int, np.ndarray]


def plan_latest(
    splits: Sequence[Split], options: ReadOptions, cores: int, seeds: bytes
) -> tuple[LatestPlan, list[SplitShares]]:
    """Who does what. `splits` are in the order of partition and offset, as `plan_splits` gives them."""
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
    """The pieces of each partition; so many at once as have their offsets within 32 bits of the first one's."""
    for _, pieces in groupby(split.pieces, key=lambda piece: (piece.topic, piece.partition)):
        found: list[SegmentPiece] = []
        for piece in pieces:
            if found and piece.base_offset + INT32_MAX - found[0].share[0] > _MOST_OFFSET:
                yield tuple(found)
                found = []
            found.append(piece)
        yield tuple(found)


def index_split(fs: FileSystem, plan: LatestPlan, work: SplitShares) -> Iterator[Message]:
    """Step 1: the keys of a split's shares by reducer, and for reducer 0 which of them are tombstones.

    Raises what reading raises: CorruptRecordError, IncompleteError, RefusedError.
    """
    tombstones: dict[int, np.ndarray] = {}
    for share in work.shares:
        if share.reducers:
            found = _ShareKeys(plan, share)
            for keys in found.read(fs):
                for target, blob in _blobs(plan, share, keys, share.reducers):
                    yield share.first_reducer + target, blob
            tombstones[share.number] = found.tombstones
    yield 0, object_blob(_Tombstones(work.split, tombstones))


def merge_shares(plan: LatestPlan, blobs: Iterable[Bytes], space: MergeSpace) -> Iterator[Message]:
    """Step 2: the offsets of the newest records, to their splits; from reducer 0 also what step 1 said of each."""
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
    """Step 3: the live records of a split, as batches with `plan.projection`. One of the blobs is its `SplitShares`.

    Raises IncompleteError when a live record is not there any more, and what reading raises.
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
        raise IncompleteError(f"{plan.subject}: a task was not told what to read")
    for share in work.shares:
        offsets, without_value = newest[share.number], tombstones.get(share.number, _NO_OFFSETS)
        if not share.reducers:
            offsets, without_value = _alone(fs, plan, share, space)
        yield from _rows(fs, plan, share, np.unique(np.concatenate([_NO_OFFSETS, *offsets])), without_value)


class _ShareKeys:
    """The newest record of each key of a share, known by its offset from the share's base on."""

    def __init__(self, plan: LatestPlan, share: Share) -> None:
        self._plan, self._share = plan, share
        self._offsets: list[np.ndarray] = []  # of every record that was read
        self._valueless: list[np.ndarray] = []
        self._found: list[np.ndarray] = []

    def read(self, fs: FileSystem) -> Iterator[Keys]:
        """The keys. Their ordinals are offsets."""
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
        """The offsets of those without a value, ascending."""
        return np.unique(np.concatenate([_NO_OFFSETS, *self._found]))

    def _by_offset(self, keys: Keys) -> Keys:
        offsets = np.concatenate([_NO_OFFSETS, *self._offsets])
        valueless = np.concatenate([np.zeros(0, dtype=bool), *self._valueless])
        self._offsets, self._valueless = [offsets], [valueless]
        found = offsets[keys.ordinals]
        self._found.append(found[valueless[keys.ordinals]])
        return replace(keys, ordinals=found.astype(np.int64))


def _counted_from(share: Share, offsets: np.ndarray) -> np.ndarray:
    """Offsets as uint32 from the share's base on."""
    counted = offsets - share.base
    if len(counted) and not 0 <= counted.min() <= counted.max() <= _MOST_OFFSET:
        wrong = int(offsets[np.flatnonzero((counted < 0) | (counted > _MOST_OFFSET))[0]])
        raise IncompleteError(f"{share.subject}: offset {wrong} lies where offsets from {share.base} on belong")
    return counted.astype(np.uint32)


def _blobs(plan: LatestPlan, share: Share, keys: Keys, reducers: int) -> Iterator[Message]:
    return by_reducer(ENTRIES, share.number, keys, plan.hash_seeds, plan.hash_mask, reducers)


def _alone(fs: FileSystem, plan: LatestPlan, share: Share, space: MergeSpace) -> tuple[list[np.ndarray], np.ndarray]:
    """The offsets of the newest records of a whole partition, and of those among them without a value."""
    found = _ShareKeys(plan, share)
    with closing(KeyMerge(plan, space)) as merge:
        for keys in found.read(fs):
            for _, blob in _blobs(plan, share, keys, 1):
                merge.add(opened(blob))
        return [opened(blob).ordinals for _, blob in merge.answers()], found.tombstones


def _rows(
    fs: FileSystem, plan: LatestPlan, share: Share, newest: np.ndarray, tombstones: np.ndarray
) -> Iterator[pa.RecordBatch]:
    live = np.setdiff1d(newest, tombstones, assume_unique=True)
    count = 0
    for piece in share.pieces:
        shown = ArrowRows(piece, plan.projection)
        for records in records_of(fs, piece, plan.options):
            chosen = records.rows[_among(_counted_from(share, records.rows["offset"]), live)]
            count += len(chosen)
            if len(chosen):
                yield from shown.of(Records(records.arena, chosen, records.batches, records.status))
    if count < len(live):
        text = f"{share.subject}: {len(live) - count} of the newest records are gone since they were found"
        if plan.options.fail_on_data_loss:
            raise IncompleteError(f"{text}: cleaned in favour of newer ones, or deleted; run it again")
        _logger.warning("%s; going on", text)


def _among(offsets: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Which of the offsets are in `wanted`, which ascends (bool)."""
    if not len(wanted):
        return np.zeros(len(offsets), dtype=bool)
    found: np.ndarray = wanted[np.minimum(np.searchsorted(wanted, offsets), len(wanted) - 1)] == offsets
    return found
