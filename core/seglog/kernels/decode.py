"""Kernels over a whole table of batches: find the payloads, bound the number of rows, decode the records."""

from __future__ import annotations

import numpy as np

from seglog import layout
from seglog.kernels._jit import kernel
from seglog.kernels.arrays import Batches, Bytes, Int64s, WritableInt8s, WritableInt64s, WritableRecords
from seglog.kernels.legacy import LEAST_ENTRY, decode_entry, value_span
from seglog.kernels.records import ENTRY_INVALID, LEAST_RECORD_SIZE, RECORDS_VALID, decode_batch

_CODEC_MASK = layout.CODEC_MASK
_RECORD_BATCH_OVERHEAD = layout.RECORD_BATCH_OVERHEAD


@kernel
def payload_spans(
    data: Bytes,
    batches: Batches,
    file_position: int,
    starts: WritableInt64s,
    ends: WritableInt64s,
    status: WritableInt8s,
) -> bool:
    """Fills `starts` and `ends` with the span of each batch's payload in `data`; `data[0]` lies at `file_position`.

    The payload of a v2 batch follows its header. That of a legacy entry is the value of a wrapper, or the whole entry
    of a plain message. A batch that does not lie in `data`, or a wrapper without a value, gets status ENTRY_INVALID and
    an empty span. Returns True if any batch is marked as compressed.
    """
    codecs = 0
    for i in range(len(batches)):
        start = batches[i]["position"] - file_position
        end = start + batches[i]["size"]
        least = _RECORD_BATCH_OVERHEAD if batches[i]["magic"] >= 2 else LEAST_ENTRY
        status[i] = RECORDS_VALID
        codecs |= np.int64(batches[i]["attributes"]) & _CODEC_MASK
        if start < 0 or end > len(data) or end - start < least:
            start, end = 0, 0
            status[i] = ENTRY_INVALID
        elif batches[i]["magic"] >= 2:
            start += _RECORD_BATCH_OVERHEAD
        elif np.int64(batches[i]["attributes"]) & _CODEC_MASK != 0:
            position, size = value_span(data, start, end)
            if size < 0:
                status[i] = ENTRY_INVALID
                position, size = 0, 0
            start, end = position, position + size
        starts[i] = start
        ends[i] = end
    return codecs != 0


@kernel
def rows_needed(batches: Batches, starts: Int64s, ends: Int64s) -> int:
    """Returns an upper bound of the rows that `decode_batches` fills, whatever the headers' counts claim."""
    total = 0
    for i in range(len(batches)):
        if batches[i]["magic"] >= 2:
            count = np.int64(batches[i]["count"])
            total += max(0, min(count, (ends[i] - starts[i]) // LEAST_RECORD_SIZE))
        else:
            total += max(1, (ends[i] - starts[i]) // LEAST_ENTRY)
    return total


@kernel
def decode_batches(
    data: Bytes,
    starts: Int64s,
    ends: Int64s,
    batches: Batches,
    out: WritableRecords,
    status: WritableInt8s,
) -> int:
    """Decodes every batch, whose payload is `data[starts[i]:ends[i]]`, in order; returns the number of rows filled.

    Skips a batch whose `status` the decoder has already set. `out` must have room for `rows_needed` rows.
    """
    n = 0
    for i in range(len(batches)):
        if status[i] == RECORDS_VALID:
            if batches[i]["magic"] >= 2:
                n, status[i] = decode_batch(data, starts[i], ends[i], batches[i], i, out, n)
            else:
                n, status[i] = decode_entry(data, starts[i], ends[i], batches[i], i, out, n)
    return n
