"""The offset map: runs of old and new offsets in a CSV file that grows with the replay.

A line is `topic,partition,first_offset,last_offset,new_topic,new_partition,new_first_offset`: a run in which both sides
ascend by one. Lines are appended and fsynced before the state that counts their bytes is saved. A killed run thus
leaves at most extra lines, which the next one cuts off.
"""

from __future__ import annotations

import csv
import io
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from seglog.errors import RefusedError
from seglog.model import TopicPartition
from seglog.storage.filesystem import FileSystem

HEADER = b"topic,partition,first_offset,last_offset,new_topic,new_partition,new_first_offset\n"


@dataclass(slots=True)
class Run:
    """Offsets `first` to `last` of a partition, which became the offsets from `new_first` on."""

    first: int
    last: int
    new_first: int


class ReplayOffsetMap:
    """The runs of offsets of a replay: those loaded from the file, and new ones."""

    def __init__(self, fs: FileSystem, path: Path) -> None:
        self._fs, self._path = fs, path
        self._runs: defaultdict[TopicPartition, list[Run]] = defaultdict(list)
        self._targets: dict[TopicPartition, TopicPartition] = {}
        self._open: dict[TopicPartition, Run] = {}
        self._new: list[tuple[TopicPartition, Run]] = []
        self._size = 0

    def load(self, size: int) -> None:
        """Loads the file's first `size` bytes, and cuts off the rest.

        Raises RefusedError if the file is not an offset map or is shorter, or if it has runs and `size` is 0: it is
        then another replay's, because a replay writes runs only after its state counts the header.
        """
        if self._fs.status(self._path) is None:
            if size:
                raise RefusedError(f"{self._path} is missing, but the state of the replay counts {size} bytes of it")
            self._fs.open(self._path, "create_new").close()
        with self._fs.open(self._path, "r+") as file:
            if file.size() < size:
                raise RefusedError(f"{self._path} has {file.size()} bytes, but the state of the replay counts {size}")
            front = file.read_at(0, len(HEADER) + 1)
            if not size and not HEADER.startswith(front):
                what = "the offset map of another replay" if front.startswith(HEADER) else "not an offset map"
                raise RefusedError(f"{self._path} exists already and is {what}: name another file")
            data = file.read_at(0, size) or HEADER
            file.write_at(0, data[: len(HEADER)])
            file.truncate(len(data))
            file.sync()
        self._size = len(data)
        try:
            rows = list(csv.reader(io.StringIO(data.decode())))[1:]
            for topic, number, first, last, new_topic, new_number, new_first in rows:
                source = TopicPartition(topic, int(number))
                self._targets[source] = TopicPartition(new_topic, int(new_number))
                self._runs[source].append(Run(int(first), int(last), int(new_first)))
        except ValueError as error:
            raise RefusedError(f"{self._path} is not an offset map: {error}") from error

    def add(self, source: TopicPartition, offset: int, target: TopicPartition, new_offset: int) -> None:
        """Adds a record that moved from `offset` to `new_offset`; the offsets of a partition must ascend."""
        run = self._open.get(source)
        if run is not None and offset == run.last + 1 and new_offset == run.new_first + (offset - run.first):
            run.last = offset
            return
        self._open[source] = run = Run(offset, offset, new_offset)
        self._targets[source] = target
        self._runs[source].append(run)
        self._new.append((source, run))

    def save(self) -> int:
        """Appends the new runs, fsyncs, and returns the file's size. After an error, the next save writes them again,
        in the same place."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        for source, run in self._new:
            new = self._targets[source]
            writer.writerow(
                (source.topic, source.partition, run.first, run.last, new.topic, new.partition, run.new_first)
            )
        data = out.getvalue().encode()
        with self._fs.open(self._path, "r+") as file:
            file.write_at(self._size, data)
            file.sync()
        self._open.clear()
        self._new.clear()
        self._size += len(data)
        return self._size

    def translated(self, source: TopicPartition, offset: int) -> int | None:
        """Returns the new offset of the first record at or after `offset`; None if none was replayed."""
        runs = self._runs.get(source, [])
        at = bisect_right(runs, offset, key=lambda run: run.first) - 1
        if at >= 0 and offset <= runs[at].last:
            return runs[at].new_first + offset - runs[at].first
        return runs[at + 1].new_first if at + 1 < len(runs) else None
