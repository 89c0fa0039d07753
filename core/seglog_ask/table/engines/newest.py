"""The newest record of a key, found from a log's end backwards; or of every key, in bounded memory.

The newest record of each key takes two passes or more: the cleaner's offset map marks, a bit per record, which records
are the newest of their keys (in as many index passes as its memory needs); the last pass yields those that have a
value. All passes must meet the same records, which is checked batch by batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest

import numpy as np

from seglog.cleaner.offset_map import KeyReader, OffsetMap
from seglog.cleaner.round import CleanerOptions
from seglog.errors import RefusedError
from seglog.format.columns import Records
from seglog.kernels.row_keys import match_keys
from seglog.model import TopicPartition
from seglog_ask.table.plan.partition_log import PartitionLog, permitted, settled
from seglog_ask.table.plan.splits import SegmentPiece, batch_range, cut, pieces_of
from seglog_ask.table.read.records import placed_records
from seglog_ask.table.read.source import Source

LEAST_BYTES = 1 << 20  # of the part that is read first
_GROWTH = 8

Newest = tuple[TopicPartition, Records]
_Stretch = tuple[int, int, int]  # records, first offset, last offset


@permitted()
def newest_of_key(source: Source, key: bytes) -> Iterator[Newest]:
    """Yields the newest record with this key of each partition that has one; reads no further back than that.

    Raises CorruptRecordError at damage that it meets, unless the source's options skip it.
    """
    wanted = np.frombuffer(key, dtype=np.uint8)
    for log in source.logs:
        parts = _backward(*_pieces(log, source))
        found = next(filter(None, (_last_in(source, part, wanted) for part in parts)), None)
        if found is not None:
            yield log.topic_partition, found


def _backward(log: PartitionLog, pieces: Sequence[SegmentPiece]) -> Iterator[SegmentPiece]:
    """Yields parts of the pieces from the end on. They grow, so that a key that is not there costs little more than a
    read in the usual order, and one near the end little more than its part.
    """
    least = LEAST_BYTES
    for piece in reversed(pieces):
        waiting: list[SegmentPiece] = []
        while piece.bytes > least:
            *fronts, last = cut(log, piece, -(-piece.bytes // 2))
            if not fronts:
                break
            waiting += fronts
            piece = last
        yield from (piece, *reversed(waiting))
        least *= _GROWTH


def _last_in(source: Source, piece: SegmentPiece, wanted: np.ndarray) -> Records | None:
    """Returns the last record with this key in a piece."""
    last = None
    for _, records in placed_records(source.fs, piece, source.options, source.left_out.add):
        same = np.empty(len(records), dtype=bool)
        if match_keys(records.arena, records.rows, wanted, same):
            row = int(np.flatnonzero(same)[-1])
            last = _kept(replace(records, rows=records.rows[row : row + 1]))
    return last


def _kept(records: Records) -> Records:
    """Returns one record with bytes of its own: those of a piece are overwritten at the next step."""
    row = records.rows.copy()
    start, end = int(row["position"][0]), int(row["position"][0] + row["size"][0])
    for name in ("position", "key_position", "value_position", "headers_position"):
        row[name] -= start
    return replace(records, arena=records.arena[start:end].copy(), rows=row, batches=records.batches.copy())


@permitted()
def newest_of_keys(source: Source, memory_bytes: int) -> Iterator[Newest]:
    """Yields, partition by partition and in the order of offsets, each record that is the newest of its key and has a
    value. The keys of a pass take at most about `memory_bytes`.

    Raises RefusedError if the log changes meanwhile, and CorruptRecordError as `newest_of_key` does.
    """
    for log in source.logs:
        _, pieces = _pieces(log, source)
        survivors, stretches = _survivors(source, pieces, CleanerOptions(dedupe_buffer_bytes=memory_bytes))
        ordinal = 0
        for records, stretch in zip_longest(_records(source, pieces), stretches):
            if records is None or _stretch(records) != stretch:
                raise RefusedError(f"{log.topic_partition}: its records changed while they were read; run this again")
            chosen = survivors[ordinal : ordinal + len(records)] & (records.rows["value_size"] >= 0)
            ordinal += len(records)
            if chosen.any():
                yield log.topic_partition, replace(records, rows=records.rows[chosen])


def _survivors(
    source: Source, pieces: tuple[SegmentPiece, ...], options: CleanerOptions
) -> tuple[np.ndarray, list[_Stretch]]:
    """Returns a mask of the records that are the newest of their keys, and what the first pass met."""
    keys = OffsetMap(options)
    reader = KeyReader(0, options.strategy, keys.seeds, keys.hash_mask)
    stretches: list[_Stretch] = []
    first = True
    while True:
        for records in _records(source, pieces):
            if first:
                stretches.append(_stretch(records))
            for table in reader.tables_of_rows(records.arena, records.rows):
                keys.put(table)
                reader.give_back(table)
        if not keys.is_full:
            break
        first = False
        keys.begin_pass(0)
    count = sum(records for records, _, _ in stretches)
    return np.unpackbits(keys.survivors, count=count, bitorder="little").astype(bool), stretches


def _stretch(records: Records) -> _Stretch:
    return len(records), int(records.rows["offset"][0]), int(records.rows["offset"][-1])


def _records(source: Source, pieces: tuple[SegmentPiece, ...]) -> Iterator[Records]:
    for piece in pieces:
        for _, records in placed_records(source.fs, piece, source.options, source.left_out.add):
            yield records


def _pieces(log: PartitionLog, source: Source) -> tuple[PartitionLog, tuple[SegmentPiece, ...]]:
    return settled(log, lambda log: tuple(pieces_of(log, batch_range(log, source.options), source.options)))
