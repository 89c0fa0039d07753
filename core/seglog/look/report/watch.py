"""What `seglog top` shows: the partitions of local log directories, looked at again and again, cheaply.

A look asks for the modification time of each partition directory and the size of each active segment. Only a directory
that changed (a segment was rolled or deleted) is listed again. What costs more, the state of compaction, retention and
transactions (`partition_figures`), is gathered for the partitions on the screen, a few at each look, and kept until
they change. Nothing is opened but indexes, snapshots and checkpoints, nothing is locked, and access times stay.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from seglog.clock import Clock, SystemClock
from seglog.errors import SeglogError
from seglog.storage.untouched import Glimpse, glance, modified_ns, names_of_directories, size_of

if TYPE_CHECKING:
    from seglog.look.report.figures import PartitionFigures

_UNSETTLED_MS = 50  # a directory that changed so shortly before it was listed may change in the same tick
_STALE_MS = 30_000  # after so long, details are gathered again although no file changed
_DETAILS_AGAIN_MS = 8_000  # a log that is always written to is not looked at closely each time


@dataclass(slots=True)
class WatchedPartition:
    """A partition as the last look saw it. `growth` is in bytes a second, None before a second look.

    `details` are None until they were gathered; `problem` says why they cannot be.
    """

    path: str
    directory: str
    name: str
    segments: list[Glimpse] = field(default_factory=list)
    growth: float | None = None
    details: PartitionFigures | None = None
    problem: str = ""
    listed_ns: int = -1  # the directory's modification time when it was listed; -1: list it again
    detailed_ms: int | None = None  # when details were last gathered
    detailed_as: tuple[int, int] = (-1, -1)

    @property
    def bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def modified_ms(self) -> int:
        """When the newest segment was last written."""
        return max((segment.modified_ns for segment in self.segments), default=0) // 1_000_000

    @property
    def stamp(self) -> tuple[int, int]:
        """Changes when the log does."""
        return self.listed_ns, self.segments[-1].size if self.segments else 0


Detailed = Callable[[WatchedPartition], "PartitionFigures | None"]


class Watch:
    """Log directories, and partitions in them, under watch. `named` are log directories with the partitions to watch in
    each, None for all. `is_partition` tells by a name; `detailed` gathers the details of one partition.
    """

    def __init__(
        self,
        named: Sequence[tuple[Path, Sequence[str] | None]],
        is_partition: Callable[[str], bool],
        detailed: Detailed,
        clock: Clock,
    ) -> None:
        self._named, self._is_partition, self._detailed, self._clock = named, is_partition, detailed, clock
        self._known: dict[str, WatchedPartition] = {}
        self._names: dict[str, tuple[int, list[str]]] = {}
        self._looked: float | None = None

    @property
    def partitions(self) -> list[WatchedPartition]:
        """The partitions of the last look."""
        return list(self._known.values())

    def look(self) -> None:
        """Looks once. Partitions that are gone by now are dropped. Raises OSError if a log directory is gone."""
        now = self._clock.monotonic()
        elapsed = None if self._looked is None else max(1e-6, now - self._looked)
        found: dict[str, WatchedPartition] = {}
        for directory, names in self._named:
            for name in self._present(str(directory)) if names is None else names:
                path = f"{directory}/{name}"
                one = self._known.get(path)
                if one is None:
                    one = WatchedPartition(path, str(directory), name)
                try:
                    self._refresh(one, elapsed)
                except (FileNotFoundError, NotADirectoryError):
                    continue  # a broker has just deleted it
                except OSError as error:
                    one.problem = error.strerror or str(error)
                found[path] = one
        self._known, self._looked = found, now

    def _present(self, directory: str) -> list[str]:
        """Returns the names of the partitions in a log directory, listed again only if it changed."""
        changed = modified_ns(directory)
        known = self._names.get(directory)
        if known is not None and known[0] == changed:
            return known[1]
        names = [name for name in names_of_directories(directory) if self._is_partition(name)]
        self._names[directory] = (_settled(changed), names)
        return names

    def _refresh(self, one: WatchedPartition, elapsed: float | None) -> None:
        before = one.bytes
        is_new = not one.segments and one.listed_ns == -1
        changed = modified_ns(one.path)
        if changed != one.listed_ns:
            one.segments = glance(one.path, ".log")
            one.listed_ns = _settled(changed)
        elif one.segments:
            active = one.segments[-1]
            active.size, active.modified_ns = size_of(f"{one.path}/{active.name}")
        one.problem = ""
        if elapsed is not None and not is_new:
            one.growth = (one.bytes - before) / elapsed

    def detail(self, wanted: Iterable[WatchedPartition], seconds: float) -> int:
        """Gathers the details of those that lack them or have old ones, for about so long; returns how many still do.

        At least one is gathered, so that every partition gets its turn.
        """
        now_ms, begun, done, left = self._clock.now_ms(), time.process_time(), 0, 0
        for one in wanted:
            if self._is_known(one, now_ms):
                continue
            if done and time.process_time() - begun > seconds:
                left += 1
                continue
            stamp = one.stamp
            try:
                one.details = self._detailed(one)
            except (OSError, SeglogError) as error:
                one.problem = str(error)
            one.detailed_ms, one.detailed_as = now_ms, stamp
            done += 1
        return left

    @staticmethod
    def _is_known(one: WatchedPartition, now_ms: int) -> bool:
        if one.detailed_ms is None:
            return False
        age = now_ms - one.detailed_ms
        return age < _DETAILS_AGAIN_MS or (age < _STALE_MS and one.detailed_as == one.stamp)


def _settled(changed_ns: int) -> int:
    """Returns the modification time under which a listing is kept, -1 if a change may still hide behind it."""
    now_ms = SystemClock().now_ms()  # the files' own clock, whatever time is pretended
    return changed_ns if now_ms - changed_ns // 1_000_000 > _UNSETTLED_MS else -1
