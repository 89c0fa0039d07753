"""The live value of each key, found in the tasks, without a word of Spark: only the rows asked for pass the JVM.

What a split holds of one partition is a *share*. Shares are numbered by partition and offset, so that of equal keys of
a partition the one in the highest share is the newest.

1. `index_split`, a task a split: the newest record of each key in each share; keys go to the partition's reducers by
   hash, as blobs (`cleaning_blobs`).
2. `merge_shares`, a task a reducer: the newest of each key over all shares (`cleaning_merge`, in bounded memory); the
   ordinals of those records go back to their splits.
3. `live_rows`, a task a split: its records once more; those with such an ordinal and a value become rows.

A partition that lies in one split needs no exchange: step 3 does the others' work for it. Keys are compared by their
bytes. Records are read twice, which costs less than a row through the JVM for each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from seglog.cleaner.options import CleanerOptions
from seglog.errors import IncompleteError
from seglog.format.columns import Records
from seglog.spark.arrow import ArrowRows, records_of
from seglog.spark.cleaning_blobs import ENTRIES, Bytes, Keys, by_reducer, object_blob, opened
from seglog.spark.cleaning_keys import DirtyKeys
from seglog.spark.cleaning_merge import KeyMerge, MergeSpace
from seglog.spark.options import ReadOptions
from seglog.spark.schema import Field, default_projection
from seglog.spark.splits import Piece, Split
from seglog.storage.filesystem import FileSystem

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp")
BYTES_PER_REDUCER = 1 << 30

Message = tuple[int, bytes]  # target (a reducer, or a split), blob


@dataclass(frozen=True, slots=True)
class Share:
    """What a split holds of a partition. Its keys meet in the `reducers` from `first_reducer` on; without any it is
    the whole partition."""

    number: int
    pieces: tuple[Piece, ...]
    first_reducer: int = 0
    reducers: int = 0


@dataclass(frozen=True)
class LatestPlan:
    """The shares of each split; `split_of` says where each share lies. It is the `Exchange` of its keys.

    `seeds` are the words that key the hashes; `memory` says how large a task's offset map may get.
    """

    splits: tuple[tuple[Share, ...], ...]
    split_of: tuple[int, ...]
    reducers: int
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


@dataclass(frozen=True, slots=True)
class _Indexed:
    """How many records step 1 saw in each share of a split that takes part in the exchange, by number."""

    split: int
    records: dict[int, int]


def plan_latest(splits: Sequence[Split], options: ReadOptions, cores: int, seeds: bytes) -> LatestPlan:
    """Who does what. `splits` are in the order of partition and offset, as `plan_splits` gives them."""
    held = [
        (number, tuple(pieces))
        for number, split in enumerate(splits)
        for _, pieces in groupby(split.pieces, key=lambda piece: (piece.topic, piece.partition))
    ]
    sizes: dict[tuple[str, int], list[int]] = defaultdict(list)
    for _, pieces in held:
        sizes[pieces[0].topic, pieces[0].partition].append(sum(piece.bytes for piece in pieces))
    reducers: dict[tuple[str, int], tuple[int, int]] = {}
    total = 0
    for partition, parts in sizes.items():
        count = 0 if len(parts) == 1 else max(min(cores, len(parts)), -(-sum(parts) // BYTES_PER_REDUCER))
        reducers[partition] = total, count
        total += count
    shares: list[list[Share]] = [[] for _ in splits]
    for number, (split, pieces) in enumerate(held):
        shares[split].append(Share(number, pieces, *reducers[pieces[0].topic, pieces[0].partition]))
    return LatestPlan(tuple(map(tuple, shares)), tuple(split for split, _ in held), total, options, seeds)


def index_split(fs: FileSystem, plan: LatestPlan, split: int) -> Iterator[Message]:
    """Step 1: the keys of a split's shares by reducer, and for reducer 0 how many records they had.

    Raises what reading raises: CorruptRecordError, RefusedError.
    """
    counts: dict[int, int] = {}
    for share in plan.splits[split]:
        if share.reducers:
            found = DirtyKeys(plan.memory, 0)
            for keys in _newest(fs, plan, share, found):
                for target, blob in _blobs(plan, share, keys, share.reducers):
                    yield share.first_reducer + target, blob
            counts[share.number] = found.records
    yield 0, object_blob(_Indexed(split, counts))


def merge_shares(plan: LatestPlan, blobs: Iterable[Bytes], space: MergeSpace) -> Iterator[Message]:
    """Step 2: the ordinals of the newest records, to their splits; from reducer 0 also what step 1 saw of each."""
    with closing(KeyMerge(plan, space)) as merge:
        for data in blobs:
            found = opened(data)
            if isinstance(found, _Indexed):
                yield found.split, object_blob(found)
            else:
                merge.add(found)
        for share, blob in merge.answers():
            yield plan.split_of[share], blob


def live_rows(
    fs: FileSystem, plan: LatestPlan, split: int, blobs: Iterable[Bytes], space: MergeSpace
) -> Iterator[pa.RecordBatch]:
    """Step 3: the live records of a split, as batches with `plan.projection`.

    Raises IncompleteError when it does not hold the records that step 1 saw, and what reading raises.
    """
    survivors: dict[int, list[np.ndarray]] = defaultdict(list)
    indexed = _Indexed(split, {})
    for data in blobs:
        found = opened(data)
        if isinstance(found, _Indexed):
            indexed = found
        else:
            survivors[found.group].append(found.ordinals)
    for share in plan.splits[split]:
        count, ordinals = indexed.records.get(share.number, 0), survivors[share.number]
        if not share.reducers:
            count, ordinals = _alone(fs, plan, share, space)
        live = np.zeros(count, dtype=bool)
        for part in ordinals:
            live[part] = True
        yield from _rows(fs, plan, share, live)


def _newest(fs: FileSystem, plan: LatestPlan, share: Share, found: DirtyKeys) -> Iterator[Keys]:
    for piece in share.pieces:
        for records in records_of(fs, piece, plan.options):
            yield from found.add_rows(records.arena, records.rows)
    yield found.rest()


def _blobs(plan: LatestPlan, share: Share, keys: Keys, reducers: int) -> Iterator[Message]:
    return by_reducer(ENTRIES, share.number, keys, plan.hash_seeds, plan.hash_mask, reducers)


def _alone(fs: FileSystem, plan: LatestPlan, share: Share, space: MergeSpace) -> tuple[int, list[np.ndarray]]:
    """How many records a whole partition has, and the ordinals of the newest."""
    found = DirtyKeys(plan.memory, 0)
    with closing(KeyMerge(plan, space)) as merge:
        for keys in _newest(fs, plan, share, found):
            for _, blob in _blobs(plan, share, keys, 1):
                merge.add(opened(blob))
        return found.records, [opened(blob).ordinals for _, blob in merge.answers()]


def _rows(fs: FileSystem, plan: LatestPlan, share: Share, live: np.ndarray) -> Iterator[pa.RecordBatch]:
    at = 0
    for piece in share.pieces:
        shown = ArrowRows(piece, plan.projection)
        for records in records_of(fs, piece, plan.options):
            start, at = at, at + len(records.rows)
            if at > len(live):
                break
            chosen = records.rows[live[start:at] & (records.rows["value_size"] >= 0)]
            if len(chosen):
                yield from shown.of(Records(records.arena, chosen, records.batches, records.status))
    if at != len(live):
        raise IncompleteError(
            f"{share.pieces[0].path}: the log changed while it was read ({len(live)} records, then {at})"
        )
