"""Which partitions, segments and pieces a filter can match, by what names and indexes guarantee about them.

Python cannot take an Arrow expression apart, and need not: Arrow itself compares a filter with the guarantee of each
fragment of a dataset. So partitions, then their segments, then pieces of about PIECE_BYTES of those segments become
fragments, and what the filter cannot match is never opened. No log file is opened to plan, except the two batches where
a run of pieces begins and ends: their headers must agree with the index, or the whole segment is read.

- A partition guarantees its topic and number.
- A segment guarantees offsets from its base offset to the next one's, by their names, and timestamps up to the last
  entry of its time index.
- A piece guarantees offsets between two entries of the offset index, and timestamps up to the entry of the time index
  that covers them.

With damage skipped, batches whose offsets belong elsewhere are rows, too. Then a segment guarantees no more than the
least offset and the offsets that an entry can express, and pieces are not made.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from operator import and_

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from seglog.layout import INT32_MAX, INT64_MAX
from seglog.scan.selection import Selection
from seglog_ask.table.plan.options import ReadOptions
from seglog_ask.table.plan.partition_log import PartitionLog, settled
from seglog_ask.table.plan.splits import OffsetRange, SegmentPiece, batch_range, pieces_of
from seglog_ask.table.values.columns import TIMESTAMPS, outputs_of, valid_text

PIECE_BYTES = 1 << 20

_PLACE = ("topic", "partition", "offset", "timestamp")
_MILLISECONDS = pa.timestamp("ms", "UTC")
_OFFSET, _TIMESTAMP = pc.field("offset"), pc.field("timestamp")
_WORD = re.compile(r"\w+")


class Question:
    """A filter over a table with the columns of `schema`; None matches everything.

    `mentioned` are the columns that it may need: a few too many if their names appear in its constants.
    """

    def __init__(self, condition: pc.Expression | None, schema: pa.Schema) -> None:
        self.condition = condition
        text = "" if condition is None else str(condition)
        words = set(schema.names) if "FieldPath(" in text else set(_WORD.findall(text))
        self.mentioned = tuple(name for name in schema.names if name in words)
        own = {output.field.name: output.field for output in outputs_of(_PLACE)}
        self._schema = pa.schema(list((own | {field.name: field for field in schema}).values()))

    def mentions(self, *names: str) -> bool:
        """True if the filter may depend on one of these columns."""
        return any(name in self.mentioned for name in names)

    def matching(self, guarantees: Sequence[Selection]) -> list[int]:
        """Returns the indexes of the guarantees that the filter does not contradict, ascending."""
        names = [str(i) for i in range(len(guarantees))]
        fragments = ds.FileSystemDataset.from_paths(
            names,
            schema=self._schema,
            format=ds.IpcFileFormat(),
            filesystem=LocalFileSystem(),
            partitions=list(map(_expression, guarantees)),
        )
        return sorted(int(fragment.path) for fragment in fragments.get_fragments(self.condition))


def matching_partitions(logs: Sequence[PartitionLog], question: Question) -> list[int]:
    """Returns the places in `logs` of the partitions that the filter does not contradict by their names, ascending."""
    if not question.mentions("topic", "partition"):
        return list(range(len(logs)))
    return question.matching([_of_partition(log) for log in logs])


def of_partition(log: PartitionLog, names: Sequence[str]) -> pc.Expression:
    """Returns what all rows of a partition meet, by columns of these names."""
    key = _of_partition(log)
    topics = key.topics if "topic" in names else None
    return _expression(Selection(topics=topics, partitions=key.partitions if "partition" in names else None))


def planned_pieces(
    logs: Sequence[PartitionLog], question: Question, options: ReadOptions
) -> Iterator[tuple[PartitionLog, tuple[SegmentPiece, ...]]]:
    """Yields the partitions that may hold matching records, as they are now, and the bytes of each to read, in order.

    Raises the errors of `batch_range`.
    """
    for i in matching_partitions(logs, question):
        yield settled(logs[i], lambda log: tuple(_pieces(log, question, options)))


def _pieces(log: PartitionLog, question: Question, options: ReadOptions) -> Iterator[SegmentPiece]:
    wanted = batch_range(log, options)
    segments = None
    if question.mentions("offset", "timestamp"):
        with_times = question.mentions("timestamp")
        chosen = [i for i in log.chosen if log.end_of(i) > wanted.first and log.names[i].base_offset < wanted.stop]
        guarantees = [_of_segment(log, i, wanted, options, with_times=with_times) for i in chosen]
        segments = {chosen[k] for k in question.matching(guarantees)}
    for piece in pieces_of(log, wanted, options, segments):
        is_cut = segments is not None and options.on_corrupt == "fail" and piece.bytes > PIECE_BYTES
        yield from _matching_runs(log, piece, question) if is_cut else [piece]


# --- guarantees: what each record in a place is known to meet -------------------------------------------------


def _of_partition(log: PartitionLog) -> Selection:
    key = log.topic_partition
    return Selection(topics=frozenset((key.topic,)), partitions=frozenset((key.partition,)))


def _of_segment(
    log: PartitionLog, index: int, wanted: OffsetRange, options: ReadOptions, *, with_times: bool
) -> Selection:
    base, stop = log.names[index].base_offset, log.end_of(index)
    first = max(base, wanted.first)
    if options.on_corrupt == "skip":
        stop = base + INT32_MAX + 1
    largest = log.largest_timestamp(index) if with_times else None
    return _within(log, first, max(min(stop, wanted.stop), first), largest)


def _within(log: PartitionLog, first: int, stop: int, largest: int | None) -> Selection:
    """Offsets from `first` to `stop` (exclusive; INT64_MAX: no end is known), and timestamps up to `largest`
    (None: any).
    """
    end, time_end = None if stop == INT64_MAX else stop, None if largest is None else largest + 1
    return _of_partition(log).within(Selection(first, end, end_timestamp=time_end))


def _expression(guarantee: Selection) -> pc.Expression:
    """Returns a guarantee (of one partition) as columns show it: a timestamp of -1 is null, one beyond TIMESTAMPS the
    nearest.
    """
    known = [pc.field("topic") == pa.scalar(valid_text(topic)) for topic in guarantee.topics or ()]
    known += [pc.field("partition") == pa.scalar(number, pa.int32()) for number in guarantee.partitions or ()]
    if guarantee.first_offset is not None:
        known.append(pa.scalar(guarantee.first_offset, pa.int64()) <= _OFFSET)
    if guarantee.end_offset is not None:
        known.append(pa.scalar(guarantee.end_offset, pa.int64()) > _OFFSET)
    if guarantee.end_timestamp is not None:
        nearest = min(max(guarantee.end_timestamp - 1, TIMESTAMPS.start), TIMESTAMPS.stop - 1)
        known.append((pa.scalar(nearest, _MILLISECONDS) >= _TIMESTAMP) | _TIMESTAMP.is_null())
    return reduce(and_, known) if known else pc.scalar(True)


# --- pieces ---------------------------------------------------------------------------------------------------


def _matching_runs(log: PartitionLog, piece: SegmentPiece, question: Question) -> Iterator[SegmentPiece]:
    """Yields the parts of a piece that the filter may match, as runs of bytes that begin and end at batches."""
    index = log.place_of(piece.base_offset)
    places = log.places(index)
    entries = places.entries
    cuts = _cuts(piece, entries)
    if not len(cuts):
        yield piece
        return
    firsts = [piece.share[0], *(entries[cuts - 1, 0] + 1).tolist()]
    stops = [*entries[cuts, 0].tolist(), piece.share[1]]
    largest: list[int | None] = [None] * len(stops)
    if question.mentions("timestamp"):
        largest = places.largest_timestamps(stops, log.largest_timestamp(index))
    guarantees = [_within(log, *known) for known in zip(firsts, stops, largest, strict=True)]
    runs = _runs(question.matching(guarantees))
    bounds: dict[int, tuple[int, int]] = {0: (piece.start, piece.share[0]), len(stops): (piece.end, piece.next_offset)}
    for at in {end for run in runs for end in run} - set(bounds):
        entry = cuts[at - 1]
        position = int(entries[entry, 1])
        offset = places.first_offset(position)
        if offset is None or not entries[entry - 1, 0] < offset <= entries[entry, 0]:
            yield piece  # the index does not tell where batches begin
            return
        bounds[at] = position, offset
    for first, stop in runs:
        (start, least), (end, following) = bounds[first], bounds[stop]
        yield replace(piece, start=start, end=end, least_offset=least, next_offset=following)


def _cuts(piece: SegmentPiece, entries: np.ndarray) -> np.ndarray:
    """Returns the rows of index entries at which parts of about PIECE_BYTES begin. None is the first row: the entry
    before tells which offsets cannot follow.
    """
    if len(entries) < 2 or not (np.diff(entries, axis=0) > 0).all():
        return np.empty(0, dtype=np.int64)
    wanted = np.arange(piece.start + PIECE_BYTES, piece.end, PIECE_BYTES)
    rows = np.unique(np.searchsorted(entries[:, 1], wanted))
    inside = (rows > 0) & (rows < len(entries))
    rows = rows[inside]
    positions, offsets = entries[rows, 1], entries[rows, 0]
    within = (positions > piece.start) & (positions < piece.end) & (entries[rows - 1, 0] >= piece.share[0])
    chosen: np.ndarray = rows[within & (offsets < piece.share[1])]
    return chosen


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Returns runs (first, after the last) of ascending numbers."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number:
            runs[-1] = runs[-1][0], number + 1
        else:
            runs.append((number, number + 1))
    return runs
