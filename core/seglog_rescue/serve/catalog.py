"""The catalog of served partitions, read-only: which there are is known at once, and each is opened when first read.

A path is a partition directory or a log directory. A cluster's disks have ten thousand partitions, of which clients
read a few: opening takes two milliseconds, and its view of the files keeps 24 KB. Only partitions that are named
themselves are opened at once, so that an error in what was asked for ends the command.

If a partition lies in several directories (replicas, backups), the copy with the highest leader epoch is served, and of
several the longest: the one that Kafka would elect. Directories left by a deletion, a move or a stray topic (`-delete`,
`-future`, `-stray`) are served only if named directly.

The high watermark of a partition is its log end. The checkpointed one lags by up to five seconds, and records above it
may have been acknowledged; a broker that leads this log alone raises it to the log end, too.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Self
from uuid import NAMESPACE_URL, UUID, uuid5

from seglog.clock import Clock
from seglog.configuration.keys import LogConfig
from seglog.configuration.settings import identity_of
from seglog.errors import CorruptionError, NotALogError, SeglogError, UnsupportedError
from seglog.format import filenames
from seglog.format.checkpoint import parse_partition_metadata
from seglog.log.checkpoints import LeaderEpochCache
from seglog.log.directory import LogDirectory
from seglog.log.loader import RecoveryReport
from seglog.log.log import Log
from seglog.model import NO_LEADER_EPOCH, TopicPartition
from seglog.scan.listing import TargetKind, is_07, log_directory_of, refuse_file, resolve_paths
from seglog.scan.view import require_no_run
from seglog.storage.filesystem import FileSystem
from seglog.storage.lock import holder_of, partition_path
from seglog_rescue.serve.spans import SpanEnds

MAX_PARTITION_NUMBER = 1 << 16  # metadata answers list every number up to the highest one

_logger = logging.getLogger("seglog.serve.catalog")

ConfigOf = Callable[[Path], Callable[[str], LogConfig]]  # log directory, topic → configuration


class Copy(NamedTuple):
    """A directory of a partition, in its log directory."""

    owner: LogDirectory
    directory: Path


@dataclass(slots=True, eq=False)
class ServedPartition:
    """A partition with its copies, of which one is served. `ends` are the ends of its last spans. For any thread."""

    topic: str
    number: int
    copies: list[Copy]
    catalog: Catalog
    ends: SpanEnds = field(default_factory=SpanEnds)
    _log: Log | None = None
    _told_epoch: int | None = None  # by the checkpoints of the copies
    _committed_epoch: int = 0
    _guard: threading.Lock = field(default_factory=threading.Lock)

    @property
    def log(self) -> Log:
        """The log of the served copy, opened at the first question, as it was then. Raises SeglogError and OSError."""
        if self._log is None:
            with self._guard:
                if self._log is None:
                    self._log = self.catalog.choose(self)
        return self._log

    @property
    def is_open(self) -> bool:
        """True if asking for the log reads nothing."""
        return self._log is not None

    @property
    def directory(self) -> Path:
        """The directory of the served copy; of the first one until the log is opened."""
        return self.copies[0].directory if self._log is None else self._log.directory

    @property
    def leader_epoch(self) -> int:
        """The highest leader epoch that the checkpoints of the copies, commits or the opened log name; 0 without any.

        Java's clients (4.3.0) wait for ever where metadata tell a lower epoch than a commit or a record. librdkafka
        (2.16.0) reads nothing from a partition whose epoch is unknown, -1: without a checkpoint the log is opened.
        """
        if self._told_epoch is None:
            self._told_epoch = self.catalog.highest_epoch(self)
        if self._told_epoch == NO_LEADER_EPOCH and self._log is None:
            try:
                return max(self._committed_epoch, self.log.leader_epoch)
            except (SeglogError, OSError) as error:
                _logger.info("%s: its leader epoch is unknown: %s", self.directory, error)
        opened = 0 if self._log is None else self._log.leader_epoch
        return max(self._told_epoch, self._committed_epoch, opened)

    def note_committed(self, leader_epoch: int) -> None:
        """Takes note of the leader epoch of a commit: there was such a leader."""
        self._committed_epoch = max(self._committed_epoch, leader_epoch)


@dataclass(frozen=True, slots=True)
class UnservedPartition:
    """A partition directory that is not served, and the reason."""

    directory: Path
    reason: str


LeftOut = Callable[[UnservedPartition], None]


def _log_left_out(copy: UnservedPartition) -> None:
    _logger.warning("%s: not served: %s", copy.directory, copy.reason)


class Catalog:
    """The served partitions by topic and number; close it when done.

    It tells `left_out` (default: logs) of each directory that is not served: copies worse than the served one and, with
    `skip_damage`, those that cannot be opened.
    """

    def __init__(self, fs: FileSystem, cluster_id: str | None, *, skip_damage: bool, left_out: LeftOut) -> None:
        self.cluster_id = cluster_id
        self._fs, self._skip_damage, self._tell_left_out = fs, skip_damage, left_out
        self._owners: dict[Path, LogDirectory] = {}
        self._configs: dict[Path, Callable[[str], LogConfig]] = {}
        self._topics: dict[str, dict[int, ServedPartition]] = {}
        self._left_out: dict[Path, str] = {}
        self._ids: dict[str, UUID] = {}
        self._names: dict[UUID, str] = {}

    @classmethod
    def open(
        cls,
        paths: Sequence[Path],
        *,
        fs: FileSystem,
        clock: Clock,
        config_of: ConfigOf,
        skip_damage: bool = False,
        left_out: LeftOut = _log_left_out,
    ) -> Self:
        """Lists the partitions at `paths`, and opens those that are named.

        Raises NotALogError if there are none, UnsupportedError for a log of Kafka 0.7, and RefusedError during a run
        that changes the logs: clients would see a part of its changes. Without `skip_damage` it also raises the
        CorruptionError or OSError of the first named partition that cannot be opened.
        """
        wanted = _wanted(fs, paths)
        identities = (identity_of(fs, log_directory) for log_directory in wanted)
        cluster_id = next((known for each in identities if (known := each.get("cluster.id"))), None)
        catalog = cls(fs, cluster_id, skip_damage=skip_damage, left_out=left_out)
        try:
            for log_directory, part in wanted.items():
                require_no_run(fs, log_directory)
                config = catalog._configs[log_directory] = config_of(log_directory)
                owner = LogDirectory.open(log_directory, fs=fs, clock=clock, config_of=config, writable=False)
                catalog._owners[log_directory] = owner
                live = (found.path for found in owner.listing.live) if part.whole else ()
                for directory in dict.fromkeys((*live, *part.named)):
                    if not owner.is_broker_directory:  # a broker of 0.7 has no checkpoints
                        _refuse_07(fs, directory)
                    catalog._add(Copy(owner, directory))
            named = {directory for part in wanted.values() for directory in part.named}
            catalog.open_now([each for each in catalog if any(copy.directory in named for copy in each.copies)])
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

    @property
    def log_directories(self) -> Iterable[Path]:
        """The log directories that the partitions lie in."""
        return self._owners.keys()

    def find(self, topic: str, number: int) -> ServedPartition | None:
        """Returns the partition, or None."""
        return self._topics.get(topic, {}).get(number)

    def open_now(self, partitions: Iterable[ServedPartition]) -> list[Log]:
        """Opens partitions before anybody asks; returns their logs.

        Raises the SeglogError or OSError of the first that cannot be opened. With `skip_damage` a damaged or unreadable
        one leaves the catalog.
        """
        logs = []
        for partition in partitions:
            try:
                logs.append(partition.log)
            except (CorruptionError, NotALogError, OSError) as error:
                if not self._skip_damage:
                    raise
                self._leave_out(partition.copies[-1].directory, str(error))  # `choose` has told of the others
                del self._topics[partition.topic][partition.number]
                if not self._topics[partition.topic]:
                    del self._topics[partition.topic]
        return logs

    def config_of(self, partition: ServedPartition) -> LogConfig:
        """Returns the configuration of a partition's topic."""
        return self._configs[partition.copies[0].owner.path](partition.topic)

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
            copies = (copy for partition in self._topics[topic].values() for copy in partition.copies)
            ids = (_topic_id(self._fs, copy.directory) for copy in copies)
            own = next((topic_id for topic_id in ids if topic_id is not None), None)
            topic_id = uuid5(NAMESPACE_URL, f"seglog:{topic}") if own is None or own in self._names else own
            self._ids[topic], self._names[topic_id] = topic_id, topic

    def __iter__(self) -> Iterator[ServedPartition]:
        return (partition for topic in self._topics.values() for partition in topic.values())

    def losses(self, go_on: Callable[[], None]) -> Iterator[RecoveryReport]:
        """Plans, for each copy whose log was not closed properly, the recovery that a starting broker would do; yields
        those that cut bytes off. Changes nothing. `go_on` is called before each log and segment, and may raise.

        Skips the log directories of running brokers, and copies that cannot be read: serving one reports the error.
        """
        copies: dict[Path, list[Path]] = {}
        for partition in list(self):
            for owner, directory in partition.copies:
                is_closed = owner.is_broker_directory and owner.is_known(directory) and owner.clean_shutdown
                if not is_closed:
                    copies.setdefault(owner.path, []).append(directory)
        for path, directories in copies.items():
            if holder_of(path) is None:
                yield from self._losses_in(path, directories, go_on)

    def _losses_in(
        self, log_directory: Path, directories: Sequence[Path], go_on: Callable[[], None]
    ) -> Iterator[RecoveryReport]:
        """Plans with views of its own, one at a time, while clients read through theirs."""
        config_of, clock = self._configs[log_directory], self._owners[log_directory].clock
        try:
            owner = LogDirectory.open(log_directory, fs=self._fs, clock=clock, config_of=config_of)
        except (SeglogError, OSError) as error:  # it has changed since it was opened for clients
            _logger.info("%s: no recovery can be planned there: %s", log_directory, error)
            return
        with owner:
            for directory in directories:
                go_on()
                try:
                    if not owner.load_options(directory).clean_shutdown:
                        report = owner.plan_recovery_in(directory, lambda *_: go_on())
                        if report.truncated_bytes:
                            yield report
                except (SeglogError, OSError) as error:
                    _logger.info("%s: its recovery cannot be planned: %s", directory, error)
                finally:
                    owner.let_go(directory)

    def close(self) -> None:
        """Closes all files."""
        for owner in self._owners.values():
            owner.close(clean=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _add(self, copy: Copy) -> None:
        topic, number = _name_of(copy.directory)
        numbers = self._topics.setdefault(topic, {})
        if number in numbers:
            numbers[number].copies.append(copy)
        else:
            numbers[number] = ServedPartition(topic, number, [copy], self)

    def highest_epoch(self, partition: ServedPartition) -> int:
        """Returns the highest leader epoch that the checkpoints of a partition's copies name; -1 without any."""
        return max(_epoch_of(self._fs, copy.directory) for copy in partition.copies)

    def choose(self, partition: ServedPartition) -> Log:
        """Opens the copies of a partition; returns the best one's log. Raises the error of one that cannot be opened,
        or with `skip_damage` of the last one if none can.
        """
        logs: list[Log] = []
        for copy in partition.copies:
            try:
                _refuse_07(self._fs, copy.directory)
                logs.append(copy.owner.log_in(copy.directory))
            except (CorruptionError, NotALogError, OSError) as error:
                is_last = copy is partition.copies[-1]
                if not self._skip_damage or (is_last and not logs):
                    raise
                self._leave_out(copy.directory, str(error))
        best = max(logs, key=lambda log: (log.leader_epoch, log.log_end_offset))
        for log in logs:
            if log is not best:
                self._leave_out(log.directory, f"{best.directory} is served instead, an equal or better copy")
        return best

    def _leave_out(self, directory: Path, reason: str) -> None:
        if directory not in self._left_out:
            self._left_out[directory] = reason
            self._tell_left_out(UnservedPartition(directory, reason))


@dataclass(slots=True)
class _Wanted:
    """What is served of a log directory: all its live partitions, and those that are named."""

    whole: bool = False
    named: list[Path] = field(default_factory=list)


def _wanted(fs: FileSystem, paths: Sequence[Path]) -> dict[Path, _Wanted]:
    wanted: dict[Path, _Wanted] = {}
    for target in resolve_paths(fs, paths):
        refuse_file(target)
        part = wanted.setdefault(log_directory_of(target), _Wanted())
        if target.kind is TargetKind.LOG_DIRECTORY:
            part.whole = True
        else:
            part.named.append(partition_path(target.directory))
    return wanted


def _refuse_07(fs: FileSystem, directory: Path) -> None:
    """Raises UnsupportedError for a log of Kafka 0.7. Opening a log reports a directory that cannot be listed."""
    with suppress(OSError):
        if is_07(fs, directory):
            raise UnsupportedError(
                f"{directory}: no client reads a log of Kafka 0.7; pipe `seglog read --json` into `seglog append"
                " --create --input-format jsonl` to make a newer log"
            )


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


def _epoch_of(fs: FileSystem, directory: Path) -> int:
    """Returns the highest epoch of a leader-epoch checkpoint; -1 without one, also if it cannot be read: opening the
    log reports that.
    """
    try:
        return LeaderEpochCache(fs, directory, tolerant=True).highest_epoch
    except (SeglogError, OSError) as error:
        _logger.info("%s: its leader epochs are unknown: %s", directory, error)
        return NO_LEADER_EPOCH


def _topic_id(fs: FileSystem, directory: Path) -> UUID | None:
    path = directory / filenames.PARTITION_METADATA
    try:
        status = fs.status(path)
        if status is None or status.is_directory:
            return None
        return parse_partition_metadata(fs.read_bytes(path), path).topic_id
    except (CorruptionError, OSError) as error:  # a directory that cannot be read, or is gone by now
        _logger.warning("%s: no topic id: %s", path, error)
        return None
