"""Appends a stream of records: in pieces, flushed by the configuration, acknowledged when flushed.

1. Pieces come as they arrive. With `batch_records` they are joined and cut so that batches hold exactly that many; the
   rest waits for more, or for the stream to pause.
2. Each append takes at most `flush.messages` records, so that the log flushes in time.
3. When the log has flushed, or the stream has paused for `flush.ms`, or at the end, an `Appended` is yielded.
   Everything that it names survives a crash.

Kafka: the original design's flush policy (after M messages or S milliseconds), UnifiedLog.append.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from seglog.errors import AppendCutShortError, AppendError, InvalidRecordError
from seglog.format.builder import columns
from seglog.format.columns import Records, joined
from seglog.layout import INT32_MAX
from seglog.log.append import AppendInfo
from seglog.log.log import Log
from seglog.model import Compression, TopicPartition


@dataclass(frozen=True, slots=True)
class Appended:
    """Offsets that have reached stable storage."""

    topic_partition: TopicPartition
    first_offset: int
    last_offset: int

    @property
    def count(self) -> int:
        """The number of records acknowledged."""
        return self.last_offset - self.first_offset + 1


class Ingest:
    """Appends pieces to `log`; iterating runs it and yields the acknowledged offsets.

    If the pieces end with an error, or the log refuses one of them (AppendError), the records appended before are
    flushed and acknowledged, then the error is raised. Raises AppendCutShortError if the system fails after the log has
    taken some records.
    """

    def __init__(
        self,
        log: Log,
        pieces: Iterable[Records | None],
        *,
        codec: Compression | None = None,
        batch_records: int | None = None,
    ) -> None:
        self._log, self._pieces = log, pieces
        self._codec, self._batch_records = codec, batch_records
        self._held: list[Records] = []
        self._begun_at = log.log_end_offset
        self._acknowledged = log.log_end_offset  # everything below is flushed
        self._failure: Exception | None = None

    def __iter__(self) -> Iterator[Appended]:
        try:
            try:
                yield from self._append_all()
            except AppendError as error:
                self._failure = error
            yield from self._flush()
        except OSError as error:
            end = self._log.log_end_offset
            if end == self._begun_at:
                raise
            raise AppendCutShortError(error, self._log.directory, self._begun_at, end, self._acknowledged) from error
        if self._failure is not None:
            raise self._failure

    def _append_all(self) -> Iterator[Appended]:
        pieces = iter(self._pieces)
        while True:
            try:
                piece = next(pieces)
            except StopIteration:
                break
            except Exception as error:  # noqa: BLE001 (earlier records are flushed first)
                self._failure = error
                break
            if piece is not None:
                self._held.append(piece)
            yield from self._append(everything=piece is None)
            if self._log.flush_if_due(self._log.clock.now_ms()):
                yield from self._acknowledge()
        yield from self._append(everything=True)

    def _append(self, everything: bool) -> Iterator[Appended]:
        held = sum(len(piece) for piece in self._held)
        if held == 0 or (self._batch_records is not None and held < self._batch_records and not everything):
            return
        records = joined(self._held)
        ready = held if everything or self._batch_records is None else held - held % self._batch_records
        self._held = [part(records, ready, held)] if ready < held else []
        step = min(self._log.config.flush_messages, ready)
        for start in range(0, ready, step):
            piece = part(records, start, min(start + step, ready))
            info = self._write(piece)
            if info.flushed:
                yield from self._acknowledge()

    def _write(self, piece: Records) -> AppendInfo:
        try:
            return self._log.append(
                piece,
                codec=self._codec,
                batch_records=self._batch_records,
                # a requested number of records is only bounded by max.message.bytes
                batch_bytes=None if self._batch_records is None else INT32_MAX,
            )
        except InvalidRecordError as error:
            # here an invalid record (Kafka's term) is input that the log does not take, not damage on disk
            raise AppendError(f"{self._log.topic_partition}: {error}") from error

    def _flush(self) -> Iterator[Appended]:
        if self._log.log_end_offset > self._acknowledged:
            self._log.flush()
            yield from self._acknowledge()

    def _acknowledge(self) -> Iterator[Appended]:
        first, end = self._acknowledged, self._log.log_end_offset
        self._acknowledged = end
        if end > first:
            yield Appended(self._log.topic_partition, first, end - 1)


def part(records: Records, start: int, end: int) -> Records:
    """Returns records `start` to `end`, over the same arena."""
    whole = start == 0 and end == len(records)
    return records if whole else columns(records.arena, records.rows[start:end])
