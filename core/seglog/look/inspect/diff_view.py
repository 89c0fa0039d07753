"""Compares the views of several copies: the latest value of each key, as readers of committed records see it.

1. Counts the records of every copy by their batch headers. The count and the memory limit determine the number of
   passes, each over the keys of one hash class.
2. A pass keeps, for each key of its class, two 64-bit hashes of the key, two of the latest value, and the offset. It
   skips control records, records without a key and, unless uncommitted records are asked for, records of aborted and
   open transactions. A tombstone removes the key from the view.
3. Joins the copies' tables by sorting, and reads the keys that differ again for their bytes.

Two keyed hashes replace the bytes: two different keys or values collide with a probability of about 2^-128.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from seglog.format.decoder import control_batches
from seglog.kernels import row_keys
from seglog.look.inspect.diff import Difference
from seglog.model import Isolation
from seglog.scan.listing import PartitionListing
from seglog.scan.log_walk import Gap, LogWalk, WalkedEntries
from seglog.scan.selection import Selection
from seglog.storage.filesystem import FileSystem
from seglog.verification.unsettled import unsettled

DEFAULT_MEMORY_BYTES = 256 << 20
COMMITTED = Selection(isolation=Isolation.READ_COMMITTED)

_ROW = np.dtype(
    [("key", np.int64), ("key_2", np.int64), ("value", np.int64), ("value_2", np.int64), ("offset", np.int64)]
)
_SORTING = 3  # tables, sort order and join take about this many times the rows' size
_LEAST_KEPT = 1 << 16
_LEGACY_ENTRY_BYTES = 34
# Arbitrary odd constants: different keys make the two hashes of a pair independent.
_SEEDS = np.array([0x1F83D9ABFB41BD6B, 0x5BE0CD19137E2179, 0x6A09E667F3BCC909, 0x3C6EF372FE94F82B], dtype=np.int64)
_SEEDS_2 = np.array([0x428A2F98D728AE22, 0x7137449123EF65CD, 0x35C0FBCFEC4D3B2F, 0x69DBA5818189DBBC], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class ViewOptions:
    """`memory_bytes` bounds the tables of a pass. Only records in `selection` count. `limit` bounds the differences."""

    memory_bytes: int = DEFAULT_MEMORY_BYTES
    selection: Selection = COMMITTED
    limit: int = 10_000


def diff_view(fs: FileSystem, copies: Sequence[PartitionListing], options: ViewOptions) -> Iterator[Difference]:
    """Yields the keys whose latest value is not the same in all copies. Raises OSError."""
    sides = [_Side(fs, listing, options.selection) for listing in copies]
    count = sum(side.count() for side in sides)
    passes = max(1, -(-count * _ROW.itemsize * _SORTING // options.memory_bytes))
    reported = 0
    for number in range(passes):
        differing = _joined([side.table(number, passes) for side in sides])
        for difference in _with_keys(sides, differing[: options.limit - reported]):
            reported += 1
            yield difference
        if reported >= options.limit:
            return


class _Side:
    """One copy."""

    def __init__(self, fs: FileSystem, listing: PartitionListing, selection: Selection) -> None:
        self._fs, self._listing, self._selection = fs, listing, selection
        self._unsettled = unsettled(fs, listing) if selection.is_committed else None

    def pieces(self) -> Iterator[tuple[WalkedEntries, np.ndarray]]:
        """Yields each piece of the log with the batches that count."""
        for segment in self._listing.segments:
            for step in LogWalk(self._fs, segment.log):
                if not isinstance(step, Gap):
                    yield step, self._counting(step.batches[step.valid])

    def count(self) -> int:
        """Returns an upper bound of the number of records."""
        total = 0
        for segment in self._listing.segments:
            for step in LogWalk(self._fs, segment.log, check=False):
                if not isinstance(step, Gap):
                    modern = step.batches["magic"] >= 2
                    total += int(step.batches["count"][modern].clip(0).astype(np.int64).sum())
                    total += int(step.batches["size"][~modern].astype(np.int64).sum()) // _LEGACY_ENTRY_BYTES
        return total

    def table(self, number: int, passes: int) -> np.ndarray:
        """Returns the view of one hash class of keys (_ROW, sorted by key)."""
        kept, parts, waiting = np.zeros(0, dtype=_ROW), [], 0
        for piece, batches in self.pieces():
            for records in piece.records(batches):
                rows = self._selection.of(records, True).rows
                rows = rows[rows["key_size"] >= 0]
                found = _hashed(records.arena, rows, number, passes)
                parts.append(found)
                waiting += len(found)
            if waiting > max(_LEAST_KEPT, len(kept)):
                kept, parts, waiting = _latest(np.concatenate([kept, *parts])), [], 0
        kept = _latest(np.concatenate([kept, *parts]))
        view: np.ndarray = kept[kept["value"] != row_keys.NULL]
        return view

    def keys_at(self, offsets: np.ndarray) -> dict[int, bytes]:
        """Returns the keys of the records at some offsets (ascending)."""
        found: dict[int, bytes] = {}
        for piece, batches in self.pieces() if len(offsets) else ():
            beyond = np.searchsorted(offsets, batches["last_offset"], side="right")
            legacy = batches["magic"] < 2
            holding = (np.searchsorted(offsets, batches["base_offset"]) < beyond) | legacy
            for records in piece.records(batches[holding]):
                for i in np.flatnonzero(np.isin(records.rows["offset"], offsets)).tolist():
                    found[int(records.rows["offset"][i])] = records.key(i) or b""
        return found

    def _counting(self, good: np.ndarray) -> np.ndarray:
        counting = ~control_batches(good)
        if self._unsettled is not None:
            counting &= ~self._unsettled.transactions.mask(good)
        chosen: np.ndarray = good[counting]
        return chosen


def _hashed(arena: np.ndarray, rows: np.ndarray, number: int, passes: int) -> np.ndarray:
    out = np.empty(len(rows), dtype=_ROW)
    column = np.empty(len(rows), dtype=np.int64)
    for name, seeds in (("key", _SEEDS), ("key_2", _SEEDS_2)):
        row_keys.hash_spans(arena, rows["key_position"], rows["key_size"], seeds, column)
        out[name] = column
        if name == "key" and passes > 1:
            own = column.view(np.uint64) % np.uint64(passes) == np.uint64(number)
            rows, out, column = rows[own], out[own], column[own]
    for name, seeds in (("value", _SEEDS), ("value_2", _SEEDS_2)):
        row_keys.hash_spans(arena, rows["value_position"], rows["value_size"], seeds, column)
        out[name] = column
    out["offset"] = rows["offset"]
    return out


def _latest(rows: np.ndarray) -> np.ndarray:
    """Returns each key's row with the highest offset, sorted by key."""
    if len(rows) == 0:
        return rows
    rows = rows[np.lexsort((rows["offset"], rows["key_2"], rows["key"]))]
    last = np.ones(len(rows), dtype=bool)
    last[:-1] = (rows["key"][1:] != rows["key"][:-1]) | (rows["key_2"][1:] != rows["key_2"][:-1])
    kept: np.ndarray = rows[last]
    return kept


def _joined(tables: Sequence[np.ndarray]) -> list[tuple[tuple[int | None, ...], bool]]:
    """Returns, for every key that differs, (its offset in each copy or None, whether the existing values agree)."""
    rows = np.concatenate(list(tables))
    copy = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    if len(rows) == 0:
        return []
    order = np.lexsort((copy, rows["key_2"], rows["key"]))
    rows, copy = rows[order], copy[order]
    new = np.ones(len(rows), dtype=bool)
    new[1:] = (rows["key"][1:] != rows["key"][:-1]) | (rows["key_2"][1:] != rows["key_2"][:-1])
    starts = np.flatnonzero(new)
    sizes = np.diff(np.append(starts, len(rows)))
    agree = np.ones(len(starts), dtype=bool)
    for name in ("value", "value_2"):
        agree &= np.minimum.reduceat(rows[name], starts) == np.maximum.reduceat(rows[name], starts)
    found = []
    for i in np.flatnonzero((sizes < len(tables)) | ~agree).tolist():
        offsets: list[int | None] = [None] * len(tables)
        for k in range(starts[i], starts[i] + sizes[i]):
            offsets[copy[k]] = int(rows["offset"][k])
        found.append((tuple(offsets), bool(agree[i])))
    return sorted(found, key=lambda one: max(o for o in one[0] if o is not None))


def _with_keys(sides: Sequence[_Side], found: Sequence[tuple[tuple[int | None, ...], bool]]) -> Iterator[Difference]:
    names: list[dict[int, bytes]] = []
    for i, side in enumerate(sides):
        own = [at for offsets, _ in found if (at := offsets[i]) is not None and offsets[:i].count(None) == i]
        names.append(side.keys_at(np.array(sorted(own), dtype=np.int64)))
    for offsets, agree in found:
        has = tuple(offset is not None for offset in offsets)
        known = {offset for offset in offsets if offset is not None}
        first = has.index(True)
        at = offsets[first]
        key = None if at is None else names[first].get(at)
        kind = "missing" if agree else "differs"
        if agree:
            message = "the key has no value in every copy"
        elif len(known) == 1:
            message = "the values differ at the same offset"
        else:
            message = "the copies have values from different offsets"
        yield Difference(
            "view", kind, has, message, first_offset=min(known), last_offset=max(known), key=key, offsets=offsets
        )
