"""Reading an open log: one fetch, or on from an offset to where it is readable now (Kafka: UnifiedLog.read, and a
consumer that polls).

Readers work on the log's `view`. Where a file is gone because segments were replaced or deleted since, the newer view
does without it. Reading on goes by position, not by offset (`read_order` says why). Damage is never taken for the end
of a log: where good batches follow, or bytes that no crash leaves, reading ends with an error that names the place.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from seglog.arguments import integer
from seglog.format.columns import Records
from seglog.log import reader
from seglog.log.read_order import Disorder, SeenOffsets
from seglog.log.reader import FetchResult, LogView
from seglog.log.unreadable import Unreadable
from seglog.model import Isolation, member

_logger = logging.getLogger(__name__)


class Viewed(Protocol):
    """What of a log is needed here: its state, which a writer may replace at any time."""

    @property
    def view(self) -> LogView: ...


class LogReader:
    """Reads one log. `disorders` are the places, one a segment, where what was read so far does not ascend."""

    def __init__(self, log: Viewed) -> None:
        self._log = log
        self.disorders: dict[Path, Disorder] = {}

    def read(
        self, offset: int, max_bytes: int, isolation: Isolation | str | None, min_one_message: bool = True
    ) -> FetchResult:
        """One fetch; OffsetOutOfRangeError with the valid range, CorruptRecordError where damage may hold `offset`."""
        offset, max_bytes = integer("offset", offset), integer("max_bytes", max_bytes)
        level = None if isolation is None else member(Isolation, isolation)
        while True:
            view = self._log.view
            if offset >= view.log_end_offset:
                self._require_end(view)
            try:
                return reader.fetch(view, offset, max_bytes, level, min_one_message=min_one_message)
            except FileNotFoundError:
                if self._log.view is view:
                    raise

    def unreadable_end(self) -> Unreadable | None:
        """Bytes after the log end that are not a batch: a torn end, or damage."""
        return reader.unreadable_end(self._log.view)

    def _require_end(self, view: LogView) -> None:
        """CorruptRecordError where the log ends because of damage, not because nothing more was written."""
        found = reader.unreadable_end(view)
        if found is not None and not found.is_torn_end:
            raise found.error()

    def columns(self, offset: int | None, isolation: Isolation | str | None, max_bytes: int) -> Iterator[Records]:
        """Everything from `offset` (default: log start) on that is readable now, a span of `max_bytes` at a time."""
        level = None if isolation is None else member(Isolation, isolation)
        start = self._log.view.log_start_offset if offset is None else integer("offset", offset)
        return self._columns(start, level, integer("max_bytes", max_bytes))

    def _columns(self, offset: int, isolation: Isolation | None, max_bytes: int) -> Iterator[Records]:
        view = self._log.view
        limit = view.limit(isolation)
        first = fetched = self.read(offset, max_bytes, isolation)
        seen = SeenOffsets(offset, lambda position: reader.ranges_before(view, first, fetched, position))
        while fetched.size:
            yield from fetched.columns(seen)
            self._note(seen)
            self._require_open()
            try:
                fetched = reader.fetch_on(view, fetched, limit, max_bytes)
            except FileNotFoundError:
                newest = self._log.view
                if newest is view:
                    raise
                view = newest
                following = max(seen.end + 1, view.log_start_offset)
                if following >= min(limit, view.log_end_offset):
                    return
                first = fetched = self.read(following, max_bytes, isolation)
        if limit >= view.log_end_offset:
            self._require_end(view)

    def _require_open(self) -> None:
        """RefusedError where the log was closed since: its files are not opened again."""
        _ = self._log.view

    def _note(self, seen: SeenOffsets) -> None:
        for path, disorder in seen.disorders.items():
            if path not in self.disorders:
                _logger.warning("%s: position %d: offsets do not ascend", path, disorder.position)
            self.disorders[path] = disorder
