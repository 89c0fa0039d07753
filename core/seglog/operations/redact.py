"""Erases named records from partitions, and says what it did: the answer to an erasure request (`seglog redact`).

1. Every log directory is locked and every partition opened and searched, those that a broker set aside too, before
   anything is changed. Whatever cannot be searched, or must not be rewritten, refuses the whole request.
2. The plan is shown (`Redaction.found`, `.elsewhere`), and an operator agrees.
3. Segments with such records are written anew and take the old ones' places; no other file is opened for writing.
4. On request every file below the log directories and their quarantines is searched for copies.

There is no undo, and no file of seglog's own keeps what is erased: a quarantine would be one more copy.
"""

from __future__ import annotations

import getpass
import os
import secrets
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import compress
from pathlib import Path

from seglog.clock import Clock
from seglog.configuration.cluster_metadata import read_cluster_metadata
from seglog.configuration.keys import COMPACT
from seglog.configuration.precedence import KAFKAS_OWN_TOPICS
from seglog.configuration.settings import DirectorySettings, identity_of
from seglog.errors import RefusedError, UnsupportedError
from seglog.escaping import command_line
from seglog.format.filenames import (
    CLUSTER_METADATA_TOPIC,
    PartitionState,
    topic_partition_of,
)
from seglog.log.checkpoints import check_checkpoints
from seglog.log.directory import LogDirectory, require_room_to_recover
from seglog.log.loader import refuse_losses
from seglog.log.log import Log
from seglog.log.read_loader import ViewingFileSystem
from seglog.model import TopicPartition
from seglog.operations.undo import concerns
from seglog.operations.workspace import by_log_directory
from seglog.redaction.applying import RewrittenFile, apply_found
from seglog.redaction.finding import FoundRecords, SearchOrder, find_records, require_erasable
from seglog.redaction.rewriting import Erasure
from seglog.redaction.searching import CopySearch, Remembered, SearchReport, Trace
from seglog.redaction.selection import RecordsToErase
from seglog.repairs.undo.journal import RunRecord
from seglog.repairs.undo.places import quarantines
from seglog.repairs.undo.quarantine import runs_in
from seglog.scan.listing import Target, TargetKind, list_log_directory, list_partition, log_directory_of
from seglog.storage.filesystem import FileSystem
from seglog.storage.overlay import OverlayFileSystem, TrialFileSystem

SearchResult = tuple[FoundRecords, Remembered]
# Searches logs, each with something empty to remember with; returns the results in the same order.
SearchAll = Callable[[Sequence[SearchOrder], Remembered], Iterable[SearchResult]]

ASIDE = (PartitionState.DELETED, PartitionState.STRAY, PartitionState.FUTURE)


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A place outside the partitions where copies may lie, and the command or deed that deals with it."""

    what: str
    remedy: str


@dataclass(frozen=True)
class RedactionRequest:
    """What to erase, and what the operator answers for.

    `replicas` is how many copies of the partitions the cluster keeps, None if nobody said; `tiers_done`: copies in
    tiered storage are dealt with. `reference` is the request's name in the operator's books. `elsewhere` are places
    that the caller knows of, for the report.
    """

    selection: RecordsToErase
    erasure: Erasure
    replicas: int | None = None
    tiers_done: bool = False
    dry_run: bool = False
    reference: str = ""
    elsewhere: tuple[Elsewhere, ...] = ()

    @classmethod
    def of(
        cls,
        selection: RecordsToErase,
        *,
        whole_record: bool = False,
        zeros: bool = False,
        digest_keys: bool = False,
        drop_headers: bool = False,
        replicas: int | None = None,
        tiers_done: bool = False,
        dry_run: bool = False,
        reference: str = "",
    ) -> RedactionRequest:
        """Returns a request; makes the secret of its key digests, which nobody ever sees. Raises ValueError."""
        if whole_record and (zeros or digest_keys or drop_headers):
            raise ValueError("a record that goes as a whole has no value, key or headers left to treat")
        secret = secrets.token_bytes(32) if digest_keys else None
        return cls(
            selection, Erasure(whole_record, zeros, drop_headers, secret), replicas, tiers_done, dry_run, reference
        )


@dataclass(slots=True)
class RedactionReport:
    """What was done: by whom, when, by what rule; each file before and after; what was left, and why."""

    reference: str
    rule: str
    erased: str
    user: str
    host: str
    started_ms: int
    ended_ms: int
    found: tuple[FoundRecords, ...]
    files: list[RewrittenFile] = field(default_factory=list)
    elsewhere: tuple[Elsewhere, ...] = ()
    searched: SearchReport | None = None
    traces: tuple[Trace, ...] = ()

    @property
    def complete(self) -> bool:
        """True if nothing was found that is not erased; only a search can say so."""
        return self.searched is not None and not self.traces and not self.searched.unread


@dataclass(frozen=True, slots=True)
class _Searched:
    """A log that was opened on trial, and what was found in it."""

    directory: LogDirectory
    tried: Log
    found: FoundRecords


class Redaction:
    """A request whose partitions are open and searched. `apply` changes them; a dry run ends without."""

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        request: RedactionRequest,
        logs: Sequence[_Searched],
        elsewhere: Sequence[Elsewhere],
        roots: Sequence[Path],
        search: CopySearch,
    ) -> None:
        self._fs, self._clock, self.request, self._logs = fs, clock, request, logs
        self._roots, self._search, self._started_ms = roots, search, clock.now_ms()
        self.found = tuple(log.found for log in logs)
        self.elsewhere = tuple(elsewhere)
        self.files: list[RewrittenFile] = []

    @property
    def records(self) -> int:
        """The number of records to erase."""
        return sum(records.records for records in self.found)

    def apply(self, done: Callable[[RewrittenFile], None] = lambda _: None) -> None:
        """Erases the records. Raises RefusedError before anything is written if a disk has no room."""
        if self.request.dry_run:
            raise RefusedError("a dry run changes nothing")
        for searched in self._logs:
            if searched.found.segments:
                log = searched.directory.keep(searched.tried)
                self.files += apply_found(log, searched.found, self.request.erasure, done)

    def search(self) -> tuple[Trace, ...]:
        """Searches every file below the log directories and their quarantines for copies."""
        return tuple(self._search.below(self._roots))

    def report(self, traces: tuple[Trace, ...] | None = None) -> RedactionReport:
        """Returns what was done; `traces` are those of a search, None without one."""
        searched = None if traces is None else self._search.searched
        report = made_report(self.request, self._started_ms, self._clock.now_ms(), self.found, self.files)
        return replace(report, elsewhere=self.elsewhere, searched=searched, traces=traces or ())


def made_report(
    request: RedactionRequest,
    started_ms: int,
    ended_ms: int,
    logs: Sequence[FoundRecords],
    files: Sequence[RewrittenFile],
) -> RedactionReport:
    """Returns the report of a request, without other places and a search."""
    erased, host = described(request.erasure), socket.gethostname()
    rule = request.selection.rule
    return RedactionReport(
        request.reference, rule, erased, _user(), host, started_ms, ended_ms, tuple(logs), list(files)
    )


def described(erasure: Erasure) -> str:
    """Says what an erasure takes from a record."""
    if erasure.whole_record:
        return "the whole record"
    value = "the value becomes as many zero bytes" if erasure.zeros else "the value becomes null"
    key = "" if erasure.secret is None else ", the key a digest by a secret that was not kept"
    return f"{value}{key}{', and the headers go' if erasure.drop_headers else ''}"


@contextmanager
def redaction(
    fs: FileSystem,
    targets: Sequence[Target],
    settings_of: Callable[[Path], DirectorySettings],
    clock: Clock,
    request: RedactionRequest,
    environment: Mapping[str, str],
    search_all: SearchAll | None = None,
) -> Iterator[Redaction]:
    """Opens and searches the partitions of the targets; the locks are held until the `with` ends.

    `search_all` searches logs as on a cluster (default: one after the other). A dry run works in memory and takes no
    lock. Raises, before anything is changed: LockedError, NotALogError, RefusedError, CorruptRecordError,
    UnsupportedError, CorruptCheckpointError.
    """
    by_directory = _partitions_of(fs, targets, request.selection)
    settings = {path: settings_of(path) for path in by_directory}
    with ExitStack() as opened:
        logs: list[tuple[LogDirectory, Log]] = []
        elsewhere: list[Elsewhere] = [*request.elsewhere]
        roots = list(by_directory)
        for path, partitions in by_directory.items():
            check_checkpoints(fs, path)
            directory = opened.enter_context(_opened(fs, path, settings[path], clock, dry_run=request.dry_run))
            for partition in partitions:
                _require_allowed(fs, partition, settings[path], request)
                log = opened.enter_context(directory.try_log(partition))
                refuse_losses(log.recovery)
                require_room_to_recover(directory, log.recovery)
                _require_no_tier(directory, log, request)
                logs.append((directory, log))
            copies = _Copies(fs, path, settings[path].metadata_directory, partitions, environment)
            elsewhere += copies.places(request, is_broker=directory.is_broker_directory)
            roots += [run.folder for run in copies.runs if not isinstance(run, Exception)]
        remembered = Remembered(request.selection, request.erasure, secrets.token_bytes(32))
        searched: list[_Searched] = []
        for (directory, log), (found, met) in zip(logs, _search(logs, request, remembered, search_all), strict=True):
            require_erasable(log, found, request.erasure)
            searched.append(_Searched(directory, log, found))
            remembered.merge(met)
        others = _others(fs, targets, by_directory)
        search = CopySearch(fs, request.selection, request.erasure, remembered, others)
        yield Redaction(fs, clock, request, searched, elsewhere, list(dict.fromkeys(roots)), search)


def concerns_topics(targets: Sequence[Target], selection: RecordsToErase) -> Callable[[TopicPartition], bool]:
    """Returns what tells for a partition anywhere whether the request concerns it: it was named, or a log directory."""
    places = by_log_directory(targets)
    every = any(place.whole for place in places)
    named = {topic_partition_of(path) for place in places for path in place.partitions}

    def concerned(key: TopicPartition) -> bool:
        return selection.concerns(key) and (key in named or (every and not is_kafkas_own(key.topic)))

    return concerned


def search_order(fs: FileSystem, order: SearchOrder, remembered: Remembered) -> SearchResult:
    """Searches one log; `remembered` is empty before."""
    return find_records(fs, order, remembered.take), remembered


def _search(
    logs: Sequence[tuple[LogDirectory, Log]],
    request: RedactionRequest,
    empty: Remembered,
    search_all: SearchAll | None,
) -> Iterator[SearchResult]:
    """Yields the result for each log. One that opening has changed is searched here: only this process sees it so."""
    orders = [SearchOrder.of(log, request.selection.of(log.topic_partition), request.erasure) for _, log in logs]
    sent = [isinstance(log.fs, TrialFileSystem) and log.fs.unchanged and search_all is not None for _, log in logs]
    elsewhere = iter(search_all(list(compress(orders, sent)), empty) if search_all is not None else ())
    for (_, log), order, is_sent in zip(logs, orders, sent, strict=True):
        yield next(elsewhere) if is_sent else search_order(log.fs, order, empty.fresh())


def _partitions_of(fs: FileSystem, targets: Sequence[Target], selection: RecordsToErase) -> dict[Path, list[Path]]:
    """Returns the partition directories to search by log directory: those named and, beside each, what a broker set
    aside of the same partition; in a log directory all but Kafka's own topics.

    Raises NotALogError for a file, RefusedError for a partition of the selection that is not among them.
    """
    concerned: dict[Path, list[Path]] = {}
    for place in by_log_directory(targets, "records are erased from a partition or a log directory, not from a file"):
        listed = list_log_directory(fs, place.log_directory).partitions
        chosen = dict.fromkeys(place.partitions)
        named = set(map(topic_partition_of, chosen))
        for partition in listed:
            is_asked = place.whole and not is_kafkas_own(partition.topic_partition.topic)
            if is_asked or (partition.topic_partition in named and partition.state in ASIDE):
                chosen[partition.path] = None
        concerned[place.log_directory] = [path for path in chosen if selection.concerns(topic_partition_of(path))]
    there = {topic_partition_of(path) for partitions in concerned.values() for path in partitions}
    missing = [str(key) for key in selection.offsets if key not in there]
    if missing:
        raise RefusedError(
            f"{missing[0]} is among the offsets to erase, but not among the paths ({len(missing)} such partitions);"
            " nothing was changed. Name its log directory, or leave it out of the file"
        )
    return {path: partitions for path, partitions in concerned.items() if partitions}


def _others(fs: FileSystem, targets: Sequence[Target], asked: Mapping[Path, Sequence[Path]]) -> list[Path]:
    """Returns the partition directories beside those that were named one by one."""
    whole = {log_directory_of(target) for target in targets if target.kind is TargetKind.LOG_DIRECTORY}
    return [
        partition.path
        for path, partitions in asked.items()
        if path not in whole
        for partition in list_log_directory(fs, path).partitions
        if partition.path not in partitions
    ]


def is_kafkas_own(topic: str) -> bool:
    """True for a topic whose records are the cluster's state, which no request concerns."""
    return topic in KAFKAS_OWN_TOPICS or topic == CLUSTER_METADATA_TOPIC


def _opened(fs: FileSystem, path: Path, settings: DirectorySettings, clock: Clock, *, dry_run: bool) -> LogDirectory:
    """Opens a log directory for writing and takes its lock; in a dry run in memory, and without."""
    if dry_run:
        fs = OverlayFileSystem(ViewingFileSystem(fs, path))
    return LogDirectory.open(path, fs=fs, clock=clock, config_of=settings, writable=True, take_lock=not dry_run)


def _require_allowed(fs: FileSystem, partition: Path, settings: DirectorySettings, request: RedactionRequest) -> None:
    topic = topic_partition_of(partition).topic
    if is_kafkas_own(topic):
        raise RefusedError(
            f"{partition}: one of Kafka's own topics: its records are the cluster's state; nothing was changed"
        )
    if list_partition(fs, partition).format != "kafka":
        raise UnsupportedError(f"{partition}: a log of Kafka 0.7 cannot be rewritten; `seglog convert` copies it first")
    resolved = settings.resolve(topic)
    if request.erasure.zeros and (not resolved.policy_known or COMPACT in resolved.log.cleanup_policy):
        why = "is compacted" if resolved.policy_known else "has no cleanup policy that is known"
        raise RefusedError(
            f"{partition}: {topic} {why}, and a value of zeros would count as the newest of its key; nothing was"
            " changed. Erase to null, which is a tombstone there, or state the policy with --set cleanup.policy=delete"
        )


def _require_no_tier(directory: LogDirectory, log: Log, request: RedactionRequest) -> None:
    is_tiered = log.config.remote_storage_enable or directory.begins_before(
        log.directory, log.segments.first.base_offset
    )
    if is_tiered and not request.tiers_done:
        raise RefusedError(
            f"{log.directory}: the topic has copies in tiered storage, and a segment there cannot be written anew;"
            " nothing was changed. `seglog tiers` lists the objects; say --tiers-done when they are dealt with"
        )


@dataclass(frozen=True, slots=True)
class _Copies:
    """Where copies of the partitions of one log directory may lie outside of it. `metadata_directory` is the log
    directory with the cluster's metadata, None if it is not known."""

    fs: FileSystem
    log_directory: Path
    metadata_directory: Path | None
    partitions: Sequence[Path]
    environment: Mapping[str, str]

    @property
    def runs(self) -> list[RunRecord | Exception]:
        """The runs that changed this log directory, and in place of one an error if it cannot be read."""
        every = quarantines(self.fs, self.environment, self.log_directory)
        runs = (run for place in every for run in runs_in(self.fs, place))
        return [run for run in runs if isinstance(run, Exception) or run.log_directory == self.log_directory]

    def places(self, request: RedactionRequest, *, is_broker: bool) -> list[Elsewhere]:
        """Returns the places, with what deals with each. Raises RefusedError if nobody said how many replicas there
        are, and the cluster's metadata does not know."""
        return [*self._runs(), *self._replicas(request, is_broker=is_broker), *self._tiers(request)]

    def _runs(self) -> Iterator[Elsewhere]:
        for run in self.runs:
            if isinstance(run, Exception):
                yield Elsewhere(str(run), "look at it by hand")
            elif any(concerns(run, partition) for partition in self.partitions):
                what = f"{run.folder}: what `seglog {run.command}` removed, for its undo"
                yield Elsewhere(what, command_line("seglog", "quarantine", "purge", run.folder, "--yes"))

    def _replicas(self, request: RedactionRequest, *, is_broker: bool) -> Iterator[Elsewhere]:
        if not is_broker:
            yield Elsewhere(f"{self.log_directory} is not a broker's; its original", "redact it there, too")
            return
        assigned = None if request.replicas is not None else self._assigned()
        if request.replicas is None and assigned is None:
            raise RefusedError(
                f"{self.log_directory}: how many replicas the cluster keeps is not known; nothing was changed. Say it"
                " with --replicas N (1: this is the only copy)"
            )
        if assigned is None:
            others = "" if request.replicas == 1 else f"the other {(request.replicas or 1) - 1} replicas"
        else:
            others = ", ".join(f"broker {node}" for node in assigned)
        if others:
            yield Elsewhere(others, "stop that broker, run the same command on its log directories, start it")

    def _assigned(self) -> list[int] | None:
        """Returns the other brokers with replicas of the partitions, by the cluster's metadata; None if unknown."""
        path = self.metadata_directory
        metadata = None if path is None else read_cluster_metadata(self.fs, path, assignments=True)
        if metadata is None or metadata.problems:
            return None
        own = identity_of(self.fs, self.log_directory).get("node.id", "")
        brokers: set[int] = set()
        for partition in self.partitions:
            key = topic_partition_of(partition)
            assignment = metadata.assignment(metadata.topic_ids.get(key.topic, ""), key.partition)
            if assignment is not None:
                brokers.update(assignment.replicas)
        return sorted(brokers - ({int(own)} if own.isdigit() else set()))

    def _tiers(self, request: RedactionRequest) -> Iterator[Elsewhere]:
        if request.tiers_done:
            yield Elsewhere("copies in tiered storage", "the request says that they are dealt with")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name
        return str(os.getuid())
