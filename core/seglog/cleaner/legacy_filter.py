"""Filters messages of magic 0 and 1 and turns them into batches of magic 2 (Kafka: MemoryRecords.filterTo).

Each log entry, a plain message or a compressed wrapper, becomes its own batch. Its base and last offset are those of
the first and last record kept; codec and timestamp type stay. The last entry of the range must stay. Kafka fails if
none of its records is left; here an empty batch of magic 2 keeps its offset (specification §15, gap 3).
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from seglog import layout
from seglog.cleaner.round import CleaningRound
from seglog.errors import InvalidRecordError
from seglog.format.checksum import byte_view
from seglog.format.columns import Records
from seglog.format.compression import compress
from seglog.kernels import filter_slots, filtering, rebuilding
from seglog.kernels.encode import ENCODE_COMPLETE, encode_batches, encoded_bound, seal_batch
from seglog.kernels.filtering import Place
from seglog.log.segments import LogSegments

_OVERHEAD = layout.RECORD_BATCH_OVERHEAD
_ALL = layout.INT32_MAX
_STAMP_GROWTH = 12  # bytes that a longer timestamp delta and length add to a record


def filter_legacy(
    round_: CleaningRound,
    batches: np.ndarray,
    records: Records,
    flags: np.ndarray,
    ordinals: np.ndarray,
    place: Place,
    counters: np.ndarray,
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns the rows (layout.BATCH) and bytes of the remaining batches. Advances `ordinals`."""
    keep = np.empty(len(records.rows), dtype=np.uint8)
    kinds = flags & (filter_slots.DIRTY | filter_slots.EXPIRED)
    borders = [0, *(np.flatnonzero(kinds[1:] != kinds[:-1]) + 1).tolist(), len(batches)]
    for first, last in pairwise(borders):
        start, stop = np.searchsorted(records.rows["batch"], (first, last))
        dirty, expired = bool(kinds[first] & filter_slots.DIRTY), bool(kinds[first] & filter_slots.EXPIRED)
        rows, marks = records.rows[start:stop], keep[start:stop]
        filtering.choose_rows(records.arena, rows, dirty, expired, ordinals, place, marks, counters)
    counters[filter_slots.BATCHES_READ] += len(batches)
    chosen = records.rows[keep != 0]
    edges = np.searchsorted(chosen["batch"], np.arange(len(batches) + 1)).tolist()
    targets: list[np.void] = []
    pieces: list[bytes] = []
    for i in range(len(batches)):
        rows = chosen[edges[i] : edges[i + 1]]
        if len(rows):
            target, data = _rebuilt(round_, batches[i], records.arena, rows, counters)
        elif flags[i] & filter_slots.RETAIN_EMPTY:
            target, data = _emptied(batches[i], counters)
        else:
            continue
        target["position"] = sum(map(len, pieces)) if not targets else targets[-1]["position"] + targets[-1]["size"]
        targets.append(target[0].copy())
        pieces.append(data)
    if not targets:
        return []
    return [(np.array(targets, dtype=layout.BATCH), np.frombuffer(b"".join(pieces), dtype=np.uint8))]


def _template(batch: np.void) -> np.ndarray:
    template = np.zeros(1, dtype=layout.BATCH)
    template["leader_epoch"] = template["producer_id"] = template["producer_epoch"] = -1
    template["base_sequence"] = -1
    template["magic"] = 2
    template["max_timestamp"] = batch["max_timestamp"]
    if batch["magic"] == 1:
        template["attributes"] = batch["attributes"] & layout.TIMESTAMP_TYPE_MASK
    return template


def _rebuilt(
    round_: CleaningRound, batch: np.void, arena: np.ndarray, rows: np.ndarray, counters: np.ndarray
) -> tuple[np.ndarray, bytes]:
    codec = int(batch["attributes"]) & layout.CODEC_MASK
    template = _template(batch)
    template["base_offset"] = rows[0]["offset"]
    out = np.empty(_OVERHEAD + int(encoded_bound(rows, 0, len(rows))), dtype=np.uint8)
    table = np.empty(1, dtype=layout.BATCH)
    _, size, count, status = encode_batches(arena, rows, 0, template, _ALL, layout.INT64_MAX, False, False, out, table)
    if status != ENCODE_COMPLETE or count != 1:
        segment = LogSegments(round_.sources).floor(int(batch["last_offset"])) or round_.sources[0]
        raise InvalidRecordError(
            segment.path,
            "a message has a negative timestamp or offsets out of order, which magic 2 cannot hold;"
            " nothing was changed",
            int(batch["position"]),
            int(rows[0]["offset"]),
            int(batch["last_offset"]),
        )
    payload = out[_OVERHEAD:size]
    if (rows["value_size"] < 0).any() and round_.plan.new_horizon_ms >= 0:
        payload = _stamped(payload, table, round_.plan.new_horizon_ms)
        counters[filter_slots.HORIZONS_SET] += 1
    table["attributes"] |= codec
    packed = compress(codec, byte_view(payload)) if codec else payload.tobytes()
    sealed = np.zeros(_OVERHEAD + len(packed), dtype=np.uint8)
    sealed[_OVERHEAD:] = np.frombuffer(packed, dtype=np.uint8)
    table["size"] = len(sealed)
    seal_batch(sealed, 0, table[0], True)
    counters[filter_slots.BATCHES_REBUILT] += 1
    return table, sealed.tobytes()


def _stamped(payload: np.ndarray, table: np.ndarray, horizon_ms: int) -> np.ndarray:
    """Returns the payload rewritten relative to a delete horizon, for its tombstones. Updates its row in `table`."""
    source = table.copy()
    count = int(source["count"][0])
    table["base_timestamp"] = horizon_ms
    table["attributes"] |= layout.DELETE_HORIZON_MASK
    kept = np.empty(count * rebuilding.KEPT_ROW_BYTES, dtype=np.uint8)
    out = np.empty(len(payload) + count * _STAMP_GROWTH, dtype=np.uint8)
    used, _ = rebuilding.stamp_records(payload, 0, len(payload), source[0], kept, out, table[0])
    return out[:used]


def _emptied(batch: np.void, counters: np.ndarray) -> tuple[np.ndarray, bytes]:
    target = _template(batch)
    target["base_offset"] = target["last_offset"] = batch["last_offset"]
    target["base_timestamp"] = -1
    target["size"] = _OVERHEAD
    sealed = np.zeros(_OVERHEAD, dtype=np.uint8)
    seal_batch(sealed, 0, target[0], True)
    counters[filter_slots.BATCHES_EMPTIED] += 1
    return target, sealed.tobytes()
