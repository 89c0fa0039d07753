"""Several directories of one partition on one broker: which one it serves, and what only the others hold.

A move between log directories (kafka-reassign-partitions) fills a `-future` copy, tells the controller, and then gives
the copy the partition's name. A broker that stopped in between goes by the controller's record when it starts:

1. A future copy in the recorded directory becomes the partition, whatever it holds. The other copy is deleted a minute
   later. It cannot become the partition where a directory of that name lies beside it: the broker then stops.
2. Any other future copy is cut to the end of the partition that the broker serves, filled from there, and takes its
   place. Without such a partition the broker first creates an empty one.
3. A `-delete` copy is deleted a minute later, also if the topic still exists and no other copy holds its records. A
   `-stray` copy stays, but is not served.

Kafka: LogManager.recoverAbandonedFutureLogs, ReplicaManager.maybeAddLogDirFetchers, ReplicaAlterLogDirsThread.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from seglog.configuration.cluster_metadata import ClusterMetadata
from seglog.escaping import command_line
from seglog.format.filenames import PartitionState
from seglog.model import TopicPartition
from seglog.units import count_text
from seglog.verification.codes import ASIDE
from seglog_rescue.doctor.cases import Diagnosis, diagnosis
from seglog_rescue.doctor.mends import restore_command


@dataclass(frozen=True, slots=True)
class Copy:
    """A directory of a partition, and the offsets that it holds after a start (`end` is exclusive).

    `directory_id` is that of its log directory, `topic_id` that of its `partition.metadata`.
    """

    path: Path
    key: TopicPartition
    state: PartitionState
    topic_id: str | None
    directory_id: str | None
    start: int
    end: int

    @property
    def holds(self) -> int:
        """The number of offsets that it spans."""
        return max(0, self.end - self.start)


def examine_copies(copies: Sequence[Copy], metadata: ClusterMetadata, node_id: int) -> Iterator[Diagnosis]:
    """Yields a diagnosis for each copy whose records only it holds, and which the broker cuts, replaces or deletes."""
    by_key: dict[TopicPartition, list[Copy]] = defaultdict(list)
    for copy in copies:
        by_key[copy.key].append(copy)
    for key, group in by_key.items():
        if all(copy.state is PartitionState.LIVE for copy in group):
            continue
        for topic_id in {copy.topic_id for copy in group if copy.topic_id is not None}:
            assignment = metadata.assignment(topic_id, key.partition)
            if assignment is not None and node_id in assignment.replicas:
                ours = [copy for copy in group if copy.topic_id == topic_id]
                yield from _Partition(ours, assignment.directory_of(node_id)).diagnoses()


def unserved_strays(copies: Sequence[Copy], metadata: ClusterMetadata | None) -> Iterator[Diagnosis]:
    """Yields a diagnosis for each stray copy with records whose topic the metadata does not know."""
    served = {copy.key for copy in copies if copy.state.is_served and copy.holds}
    for copy in copies:
        if copy.state is not PartitionState.STRAY or not copy.holds or copy.key in served:
            continue
        known = None if metadata is None or copy.topic_id is None else metadata.partitions.get(copy.topic_id)
        if not known:
            message = f"nothing else here holds {copy.key}, offsets {copy.start} to {copy.end - 1}"
            yield _row("STRAY_UNSERVED", copy, message, restore_command(copy.path), (copy.start, copy.end - 1))


class _Partition:
    """The copies of a partition that belongs on this broker, in the log directory with the id `recorded`."""

    def __init__(self, copies: Sequence[Copy], recorded: str | None) -> None:
        self._aside = [copy for copy in copies if not copy.state.is_served]
        self._live = next((copy for copy in copies if copy.state is PartitionState.LIVE), None)
        self._future = next((copy for copy in copies if copy.state is PartitionState.FUTURE), None)
        self._recorded = recorded

    @property
    def _promoted(self) -> bool:
        """True if the future copy becomes the partition when the broker starts."""
        future = self._future
        return future is not None and self._recorded is not None and future.directory_id == self._recorded

    def diagnoses(self) -> Iterator[Diagnosis]:
        if self._future is not None:
            yield from self._of_future(self._future)
        served = self._future if self._promoted else self._live
        for copy in self._aside:
            yield from self._of_aside(copy, served)

    def _of_future(self, future: Copy) -> Iterator[Diagnosis]:
        live, home = self._live, future.path.with_name(str(future.key))
        if self._promoted and live is not None and live.path == home:
            least = live if live.end < future.end else future
            command = _moved(least.path, ASIDE)
            if least is live:
                command += f" && {_moved(future.path, home)}"
            message = f"a move was cut short: {home.name} lies beside it, in the directory that the controller recorded"
            yield _row("FUTURE_BESIDE_PARTITION", future, message, command)
        elif self._promoted and live is not None:
            if missing := _beyond(live, future):
                message = f"the controller has recorded its directory for {future.key}, but only {live.path} holds"
                message += f" {_offsets(missing)}"
                yield _row("FUTURE_PROMOTED", future, message, _moved(future.path, ASIDE), missing)
        elif not self._promoted and (missing := _beyond(future, live)):
            command = _moved(future.path, home)
            if live is None:
                message = f"no other directory of {future.key} is here; it holds {_offsets(missing)}"
            else:
                message = f"{live.path} ends at {live.end}; only this copy holds {_offsets(missing)}"
                command = f"{_moved(live.path, ASIDE)} && {command}"
            yield _row("FUTURE_CUT", future, message, command, missing)

    def _of_aside(self, copy: Copy, served: Copy | None) -> Iterator[Diagnosis]:
        missing = _beyond(copy, served)
        if missing is None:
            return
        code = "DELETED_HOLDS_RECORDS" if copy.state is PartitionState.DELETED else "STRAY_HOLDS_RECORDS"
        message = f"the topic still exists, and only this directory holds {_offsets(missing)}"
        command = _moved(copy.path, copy.path.with_name(str(copy.key)))
        if self._live is not None or self._future is not None:
            command = command_line("seglog", "restore", copy.path, "-o", ASIDE)
        yield _row(code, copy, message, command, missing)


def _beyond(copy: Copy, other: Copy | None) -> tuple[int, int] | None:
    """Returns the offsets (first, last) that `copy` holds and `other` does not."""
    if not copy.holds:
        return None
    if other is None or not other.holds or other.start >= copy.end:
        return copy.start, copy.end - 1
    if other.end < copy.end:
        return max(copy.start, other.end), copy.end - 1
    return None


def _offsets(span: tuple[int, int]) -> str:
    return f"{count_text(span[1] - span[0] + 1, 'offset')}, {span[0]} to {span[1]}"


def _moved(path: Path, to: Path) -> str:
    return command_line("mv", path, to)


def _row(code: str, copy: Copy, message: str, command: str, missing: tuple[int, int] | None = None) -> Diagnosis:
    where = {} if missing is None else {"first_offset": missing[0], "last_offset": missing[1]}
    return diagnosis(code, copy.path.parent, copy.path, copy.path, message, command=command, **where)
