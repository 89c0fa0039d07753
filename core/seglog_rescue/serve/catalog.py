"""The catalog of served partitions, opened once and read-only.

A path is a partition directory or a log directory. If a partition lies in several directories (replicas, backups), the
copy with the highest leader epoch is served, and of several the longest: the one that Kafka would elect. Directories
left by a deletion, a move or a stray topic (`-delete`, `-future`, `-stray`) are served only if named directly.

The high watermark of a partition is its log end. The checkpointed one lags by up to five seconds, and records above it
may have been acknowledged; a broker that leads this log alone raises it to the log end, too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from uuid import NAMESPACE_URL, UUID, uuid5

from seglog.clock import Clock
from seglog.configuration.keys import LogConfig
from seglog.configuration.settings import identity_of
from seglog.errors import CorruptionError, NotALogError, UnsupportedError
from seglog.format import filenames
from seglog.format.checkpoint import parse_partition_metadata
from seglog.log.directory import LogDirectory
from seglog.log.loader import RecoveryProgress, RecoveryReport
from seglog.log.log import Log
from seglog.model import TopicPartition
from seglog.scan.listing import (
    list_partition,
    log_directory_of,
    partition_directories,
    refuse_file,
    resolve_paths,
)
from seglog.scan.view import require_no_run
from seglog.storage import links
from seglog.storage.filesystem import FileSystem
from seglog.storage.lock import holder_of
from seglog_rescue.serve.spans import SpanEnds

MAX_PARTITION_NUMBER = 1 << 16  # metadata answers list every number up to the highest one

_logger = logging.getLogger("seglog.serve.catalog")

ConfigOf = Callable[[Path], Callable[[str], LogConfig]]  # log directory, topic → configuration


@dataclass(frozen=True, slots=True)
class ServedPartition:
    """An open partition. `topic_id` is None if the directory has none; `ends` are the ends of its last spans."""

    topic: str
    number: int
    log: Log
    topic_id: UUID | None
    leader_epoch: int
    ends: SpanEnds = field(default_factory=SpanEnds, compare=False)

    @property
    def directory(self) -> Path:
        return self.log.directory


@dataclass(frozen=True, slots=True)
class UnservedPartition:
    """A partition directory that is not served, and the reason."""

    directory: Path
    reason: str


class Catalog:
    """The served partitions by topic and number; close it when done.

    `left_out` lists directories that could not be opened (with `skip_damage`), and copies worse than the served one.
    """

    def __init__(self, owners: Sequence[LogDirectory], cluster_id: str | None) -> None:
        self._owners, self.cluster_id = list(owners), cluster_id
        self._topics: dict[str, dict[int, ServedPartition]] = {}
        self.left_out: list[UnservedPartition] = []
        self._ids: dict[str, UUID] = {}
        self._names: dict[UUID, str] = {}

    @classmethod
    def open(
        cls, paths: Sequence[Path], *, fs: FileSystem, clock: Clock, config_of: ConfigOf, skip_damage: bool = False
    ) -> Self:
        """Opens all partitions at `paths`.

        Raises NotALogError if there are none, UnsupportedError for a 0.7 log, and RefusedError during a run that
        changes the logs: clients would see a part of its changes. Without `skip_damage` it also raises the
        CorruptionError or OSError of the first partition that cannot be opened.
        """
        found = _directories(fs, paths)
        identities = (identity_of(fs, log_directory) for log_directory in found)
        catalog = cls([], next((known for each in identities if (known := each.get("cluster.id"))), None))
        try:
            for log_directory, directories in found.items():
                require_no_run(fs, log_directory)
                owner = LogDirectory.open(
                    log_directory, fs=fs, clock=clock, config_of=config_of(log_directory), writable=False
                )
                catalog._owners.append(owner)
                for directory in directories:
                    catalog._open(fs, owner, directory, skip_damage=skip_damage)
            if not catalog._topics:
                raise NotALogError(paths[0], "it holds no partition that could be served")
            catalog._name_topics()
        except BaseException:
            catalog.close()
            raise
        return catalog

    @property
    def topics(self) -> Mapping[str, Mapping[int, ServedPartition]]:
        """The partitions of each topic by number."""
        return self._topics

    def find(self, topic: str, number: int) -> ServedPartition | None:
        """Returns the partition, or None."""
        return self._topics.get(topic, {}).get(number)

    def topic_id(self, topic: str) -> UUID:
        """Returns the id of a served topic. One whose directories have none, or that of another topic, has one made
        from its name: members of the consumer protocol (KIP-848) know topics by nothing else.
        """
        return self._ids[topic]

    def topic_of(self, topic_id: UUID | None) -> str | None:
        """Returns the served topic with an id, or None."""
        return None if topic_id is None else self._names.get(topic_id)

    def _name_topics(self) -> None:
        for topic in sorted(self._topics):
            own = next((each.topic_id for each in self._topics[topic].values() if each.topic_id is not None), None)
            topic_id = uuid5(NAMESPACE_URL, f"seglog:{topic}") if own is None or own in self._names else own
            self._ids[topic], self._names[topic_id] = topic_id, topic

    def __iter__(self) -> Iterator[ServedPartition]:
        return (partition for topic in self._topics.values() for partition in topic.values())

    def unclean(self) -> Iterator[ServedPartition]:
        """Yields the partitions whose logs were not closed properly, except those of a running broker."""
        held = {owner.path: holder_of(owner.path) is not None for owner in self._owners}
        for partition in list(self):
            owner = self._owner_of(partition)
            if not held[owner.path] and not owner.load_options(partition.directory).clean_shutdown:
                yield partition

    def plan_recovery(self, partition: ServedPartition, progress: RecoveryProgress | None = None) -> RecoveryReport:
        """Plans the recovery that a starting broker would do on a partition; changes nothing."""
        return self._owner_of(partition).plan_recovery_in(partition.directory, progress)

    def _owner_of(self, partition: ServedPartition) -> LogDirectory:
        return next(owner for owner in self._owners if owner.path == partition.directory.parent)

    def close(self) -> None:
        """Closes all files."""
        for owner in self._owners:
            owner.close(clean=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self, fs: FileSystem, owner: LogDirectory, directory: Path, *, skip_damage: bool) -> None:
        listing = list_partition(fs, directory)
        if listing.format == "0.7":
            raise UnsupportedError(
                f"{directory}: no client reads a log of Kafka 0.7; pipe `seglog read --json` into `seglog append"
                " --create --input-format jsonl` to make a newer log"
            )
        topic, number = _name_of(directory)
        try:
            log = owner.log_in(directory)
            partition = ServedPartition(topic, number, log, _topic_id(fs, directory), log.leader_epoch)
        except (CorruptionError, OSError) as error:
            if not skip_damage:
                raise
            self._leave_out(directory, str(error))
            return
        known = self.find(topic, number)
        if known is None:
            self._topics.setdefault(topic, {})[number] = partition
            return
        worse, better = sorted((known, partition), key=lambda each: (each.leader_epoch, each.log.log_end_offset))
        self._topics[topic][number] = better
        self._leave_out(worse.directory, f"{better.directory} is served instead, an equal or better copy")

    def _leave_out(self, directory: Path, reason: str) -> None:
        _logger.warning("%s: not served: %s", directory, reason)
        self.left_out.append(UnservedPartition(directory, reason))


def _directories(fs: FileSystem, paths: Sequence[Path]) -> dict[Path, list[Path]]:
    """Returns the partition directories to serve by log directory, each once."""
    found: dict[Path, list[Path]] = {}
    for target in resolve_paths(fs, paths):
        refuse_file(target)
        directories = found.setdefault(log_directory_of(target), [])
        for each in partition_directories(fs, target):
            directory = links.resolve(each)
            if directory not in directories:
                directories.append(directory)
    return found


def _name_of(directory: Path) -> tuple[str, int]:
    """Returns topic and number by the directory's name; a name of another form counts as a topic's partition 0."""
    name = filenames.parse_partition_directory(directory.name)
    known = TopicPartition(directory.name, 0) if name is None else name.topic_partition
    topic, number = known.topic, known.partition
    problem = filenames.topic_name_problem(topic)
    if problem is not None:
        raise NotALogError(directory, f"its name is not a valid topic name: {problem}")
    if number > MAX_PARTITION_NUMBER:
        raise NotALogError(directory, f"partition numbers above {MAX_PARTITION_NUMBER} are not served")
    return topic, number


def _topic_id(fs: FileSystem, directory: Path) -> UUID | None:
    path = directory / filenames.PARTITION_METADATA
    status = fs.status(path)
    if status is None or status.is_directory:
        return None
    try:
        return parse_partition_metadata(fs.read_bytes(path), path).topic_id
    except CorruptionError as error:
        _logger.warning("%s: no topic id: %s", path, error)
        return None
