"""The rules that the records of each batch must keep (`kernels.validate.judge_rows`), also where one comes in parts."""

from __future__ import annotations

import numpy as np

from seglog import layout
from seglog.format.columns import Records
from seglog.kernels.validate import judge_rows

UNKNOWN_OFFSET = -(2**63)  # as that of the batch before: any offset may follow


class RowRules:
    """Judges `Records` in the order in which a decoder gives them."""

    def __init__(self) -> None:
        self._next = 0  # the least offset that the next part of a batch may begin with
        self._bits = 0

    def judge(self, records: Records, last_offset: int = UNKNOWN_OFFSET) -> np.ndarray:
        """The rules (`kernels.validate`) that each batch breaks, int64; of one in parts with its last part.

        `last_offset` is that of the batch before, which messages of magic 0 and 1 must exceed.
        """
        bits = np.zeros(len(records.batches), dtype=np.int64)
        if not records.rows_before and not records.rows_after:
            judge_rows(records.rows, records.batches, records.status, last_offset, bits)
            return bits
        row = records.batches.copy()
        row["count"] = len(records.rows)  # the decoder has counted
        if records.rows_before:
            row["base_offset"], last_offset = self._next, self._next - 1
        else:
            self._bits = 0
        judge_rows(records.rows, row, records.status, last_offset, bits)
        self._next = min(int(records.rows["offset"][-1]), layout.INT64_MAX - 1) + 1
        self._bits |= int(bits[0])
        bits[0] = 0 if records.rows_after else self._bits
        return bits
