"""Stretches of a partition whose statistics are measured apart, each in a task of its own.

Only the number of out-of-order records (older than an earlier record) depends on the records before a stretch. A
stretch that was measured apart therefore has its leaders, the records that are not older than an earlier one in the
stretch: leaders older than the newest record before the stretch are out of order too.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from seglog.format.columns import Records
from seglog.format.compression import compress, decompress
from seglog.kernels import sketch
from seglog.look.inspect.statistics import Gathering, Stretch
from seglog.model import Compression
from seglog.storage.filesystem import FileSystem
from seglog_ask.spark.parts import stamp_of

_MOST_LEADERS = 1 << 16  # timestamps of a stretch's first leaders; if they do not suffice, it is read again
_PACKED_LIMIT = 64 << 20  # bytes of one stretch's counts, expanded


@dataclass(frozen=True, slots=True)
class MeasuredStretch:
    """The packed counts of a stretch, and the stamps of its logs before they were read."""

    logs: Stretch
    stamps: tuple[tuple[int, int, str], ...]
    packed: bytes


MeasuredStretches = Mapping[Stretch, MeasuredStretch]


def measure_stretch(fs: FileSystem, logs: Stretch) -> MeasuredStretch | None:
    """Measures a stretch separately. Returns None if a log is gone. Raises OSError if one cannot be read."""
    stamps = _stamps(fs, logs)
    if stamps is None:
        return None
    gathering = _LedGathering()
    gathering.walk(fs, logs)
    return MeasuredStretch(logs, stamps, compress(Compression.ZSTD, pickle.dumps(gathering), level=1))


def known_stretch(every: MeasuredStretches, fs: FileSystem, logs: Stretch, newest: int) -> Gathering | None:
    """Unpacks a measured stretch that follows records with the newest timestamp `newest`.

    Returns None if it is not measured, has changed, or has too few leaders for that timestamp.
    """
    measured = every.get(logs)
    if measured is None or _stamps(fs, logs) != measured.stamps:
        return None
    gathering: _LedGathering = pickle.loads(decompress(Compression.ZSTD, measured.packed, limit=_PACKED_LIMIT))
    older = gathering.leaders.older_than(newest)
    if older is None:
        return None
    gathering.counters[sketch.OUT_OF_ORDER] += older
    return gathering


def _stamps(fs: FileSystem, logs: Stretch) -> tuple[tuple[int, int, str], ...] | None:
    """Returns the logs' stamps, None if a log is gone."""
    statuses = [fs.status(log) for log in logs]
    stamps = tuple(stamp_of(status) for status in statuses if status is not None)
    return stamps if len(stamps) == len(logs) else None


class Leaders:
    """The timestamps, with counts, of a stretch's first leaders: records not older than any before them."""

    def __init__(self) -> None:
        self.times, self.counts = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        self.newest, self.is_whole = -1, True

    def __getstate__(self) -> tuple[np.ndarray, np.ndarray, int, bool]:
        """Stores differences instead of timestamps, which ascend: they compress better."""
        return np.diff(self.times, prepend=0), self.counts, self.newest, self.is_whole

    def __setstate__(self, state: tuple[np.ndarray, np.ndarray, int, bool]) -> None:
        steps, self.counts, self.newest, self.is_whole = state
        self.times = np.cumsum(steps)

    def take(self, times: np.ndarray) -> None:
        """Adds the timestamps of the next records."""
        times = times[times >= 0]
        if not self.is_whole or not len(times):
            return
        before = np.maximum.accumulate(np.concatenate(([self.newest], times)))
        self.newest = int(before[-1])
        distinct, counts = np.unique(times[times >= before[:-1]], return_counts=True)
        self.times, self.counts = np.append(self.times, distinct), np.append(self.counts, counts)
        if len(self.times) > _MOST_LEADERS:
            self.times, self.counts, self.is_whole = self.times[:_MOST_LEADERS], self.counts[:_MOST_LEADERS], False

    def older_than(self, time: int) -> int | None:
        """Returns the number of leaders older than `time`; None if the known leaders do not reach that far."""
        if not self.is_whole and time > self.times[-1]:
            return None
        return int(self.counts[self.times < time].sum())


class _LedGathering(Gathering):
    """The counts of a stretch, and its leaders."""

    def __init__(self) -> None:
        super().__init__()
        self.leaders = Leaders()

    def count(self, records: Records) -> None:
        super().count(records)
        self.leaders.take(records.rows["timestamp"])
