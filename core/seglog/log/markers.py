"""Reading transaction markers: the one record of COMMIT and ABORT batches (Kafka: EndTransactionMarker).

Control batches are decoded in bulk. Control records of other types (a KRaft log's) are no markers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seglog.errors import InvalidRecordError
from seglog.format.columns import STATUS_REASONS, Records
from seglog.format.control import ControlRecordError, parse_control_type, parse_coordinator_epoch
from seglog.format.decoder import decode_records
from seglog.model import ControlType


@dataclass(frozen=True, slots=True)
class Marker:
    """A COMMIT or ABORT record. `timestamp` in epoch milliseconds."""

    aborted: bool
    coordinator_epoch: int
    timestamp: int


def read_markers(
    data: np.ndarray, batches: np.ndarray, file_position: int, path: Path
) -> Iterator[Marker | InvalidRecordError | None]:
    """What each control batch (layout.BATCH, bytes in `data`) says, in order.

    None for a batch without records or of another control type; an InvalidRecordError, not raised, for one
    that cannot be read.
    """
    for records in decode_records(data, batches, file_position):
        if records.rows_before:
            continue  # a later part of a batch that has been looked at
        first_rows = np.searchsorted(records.rows["batch"], np.arange(len(records.batches)))
        for i, row in enumerate(first_rows.tolist()):
            batch = records.batches[i]
            if int(batch["count"]) == 0:
                yield None
            elif row == len(records.rows) or records.rows[row]["batch"] != i:
                yield _invalid(path, batch, STATUS_REASONS.get(int(records.status[i]), "no record is there"))
            else:
                yield _marker(records, row, path, batch)


def _marker(records: Records, row: int, path: Path, batch: np.void) -> Marker | InvalidRecordError | None:
    try:
        kind, _ = parse_control_type(records.key(row))
        if kind not in (ControlType.ABORT, ControlType.COMMIT):
            return None
        epoch = parse_coordinator_epoch(records.value(row))
    except ControlRecordError as error:
        return _invalid(path, batch, str(error))
    return Marker(kind is ControlType.ABORT, epoch, int(records.rows[row]["timestamp"]))


def _invalid(path: Path, batch: np.void, reason: str) -> InvalidRecordError:
    base, last = int(batch["base_offset"]), int(batch["last_offset"])
    return InvalidRecordError(path, reason, int(batch["position"]), base, last)
