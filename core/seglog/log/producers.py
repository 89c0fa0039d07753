"""A leader's checks on a producer's batch (Kafka: ProducerAppendInfo, ProducerStateEntry; specification §7.3).

Replaying a log accepts any sequences and epochs (`producer_state`); a leader does not:

1. A client's batch that is one of the last five in the same epoch is a duplicate: nothing is written.
2. An older epoch is fenced; a marker also by its coordinator's epoch.
3. A client's first sequence must follow the last one, or be 0 in a new epoch; unknown producers may begin anywhere.
4. A batch outside transactions must not come while the producer has one open.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seglog import layout
from seglog.arguments import flag, instance, integer, within
from seglog.errors import (
    InvalidTransactionStateError,
    OutOfOrderSequenceError,
    ProducerFencedError,
)
from seglog.format.builder import BatchOptions, columns_of, encode_all
from seglog.format.control import encode_control_key, encode_transaction_marker
from seglog.format.record_batch import RecordBatchHeader, encode_batch
from seglog.log.producer_state import BatchMetadata, ProducerState, ProducerStateManager
from seglog.log.validator import AppendOrigin
from seglog.model import NO_PRODUCER_EPOCH, ControlType, Record


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """An idempotent or transactional producer (KIP-98).

    With `base_sequence` None its batch continues after the producer's last one, or begins at 0. A `transactional` batch
    opens the producer's transaction, which `Log.append_end_txn_marker` ends.
    """

    producer_id: int
    producer_epoch: int = 0
    base_sequence: int | None = None
    transactional: bool = False

    def __post_init__(self) -> None:
        for name in ("producer_id", "producer_epoch", "base_sequence"):
            if getattr(self, name) is not None or name != "base_sequence":
                object.__setattr__(self, name, integer(name, getattr(self, name)))
        flag("transactional", self.transactional)
        if not 0 <= self.producer_id <= layout.INT64_MAX or not 0 <= self.producer_epoch < 2**15:
            raise ValueError(f"producer {self.producer_id} with epoch {self.producer_epoch} cannot be")
        if self.base_sequence is not None and not 0 <= self.base_sequence <= layout.INT32_MAX:
            raise ValueError(f"sequence {self.base_sequence} is not in 0 to 2147483647")


def check_batch(
    producers: ProducerStateManager, batch: np.ndarray, origin: AppendOrigin, coordinator_epoch: int | None
) -> BatchMetadata | None:
    """Returns None if the batch (one row of layout.BATCH) may be written, or the batch that it duplicates.

    `coordinator_epoch` is a marker's. Raises ProducerFencedError, OutOfOrderSequenceError or
    InvalidTransactionStateError.
    """
    header = RecordBatchHeader.of_row(batch[0])
    state = producers.producers.get(header.producer_id)
    if state is None:
        _check_epoch(ProducerState(header.producer_id), header, coordinator_epoch)
        return None
    if origin == AppendOrigin.CLIENT:
        known = state.duplicate_of(header.producer_epoch, header.base_sequence, header.last_sequence)
        if known is not None:
            return known
    _check_epoch(state, header, coordinator_epoch)
    if header.is_control:
        return None
    if origin == AppendOrigin.CLIENT:
        _check_sequence(state, header)
    if state.in_transaction and not header.is_transactional:
        raise InvalidTransactionStateError(
            f"producer {header.producer_id} has a transaction open since offset"
            f" {state.transaction_first_offset}; a batch outside transactions cannot follow"
        )
    return None


def _check_epoch(state: ProducerState, header: RecordBatchHeader, coordinator_epoch: int | None) -> None:
    if header.producer_epoch < state.epoch:
        raise ProducerFencedError(
            f"producer {state.producer_id} is at epoch {state.epoch}; epoch {header.producer_epoch} is over"
        )
    if coordinator_epoch is not None and coordinator_epoch < state.coordinator_epoch:
        raise ProducerFencedError(
            f"producer {state.producer_id} had a marker of coordinator epoch {state.coordinator_epoch};"
            f" epoch {coordinator_epoch} is over"
        )


def _check_sequence(state: ProducerState, header: RecordBatchHeader) -> None:
    if state.epoch == NO_PRODUCER_EPOCH:
        return
    same_epoch = header.producer_epoch == state.epoch
    expected = state.next_sequence if same_epoch else 0
    if header.base_sequence != expected:
        raise OutOfOrderSequenceError(
            f"producer {state.producer_id} (epoch {header.producer_epoch}): sequence {header.base_sequence} came"
            f" where {expected} must follow"
        )


def encode_end_txn_marker(producer: ProducerIdentity, commit: bool, coordinator_epoch: int, timestamp: int) -> bytes:
    """Encodes the control batch that ends a transaction, as a coordinator sends it (Kafka: EndTransactionMarker)."""
    instance("producer", producer, ProducerIdentity, "a seglog.ProducerIdentity")
    coordinator_epoch = within("coordinator_epoch", coordinator_epoch, 0, layout.INT32_MAX)
    timestamp = within("timestamp", timestamp, 0, layout.INT64_MAX)
    kind = ControlType.COMMIT if flag("commit", commit) else ControlType.ABORT
    record = Record(encode_transaction_marker(coordinator_epoch), encode_control_key(kind), timestamp)
    payload = encode_all(columns_of([record]), 0, BatchOptions())[layout.RECORD_BATCH_OVERHEAD :]
    header = RecordBatchHeader(
        attributes=layout.TRANSACTIONAL_MASK | layout.CONTROL_MASK,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        count=1,
    )
    return encode_batch(header, payload)
