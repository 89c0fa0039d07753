"""Expands the user's paths into partitions on the driver, by file names only.

A path is a partition directory, a log directory (one of a broker's `log.dirs`), a `.log` file, or a glob of them; it
may lie in a broker's tiered storage or below a prefix of committed logs (`seglog_ask.table.plan.files`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from seglog.errors import ConfigError, NotALogError
from seglog.format import filenames
from seglog.format.checkpoint import parse_offset_checkpoint
from seglog.locations import parse_location
from seglog.model import TopicPartition
from seglog.remote_path import RemotePath
from seglog.scan.listing import TargetKind, list_log_directory, resolve_path
from seglog.scan.patterns import matching_paths
from seglog.scan.view import unfinished_run
from seglog.storage import links
from seglog.storage.filesystem import FileSystem
from seglog.storage.lock import partition_path
from seglog.storage.routing import RoutingFileSystem
from seglog.verification.absent_partitions import absent_partitions
from seglog.verification.surroundings import read_surroundings
from seglog_ask.table.plan.files import BrokersTiers, committed_files
from seglog_ask.table.plan.options import NO_TIER_NAMES, Offsets, ReadOptions
from seglog_ask.table.plan.partition_log import PartitionLog, list_segments, permitted
from seglog_stores.formats.tier_names import COMMITTED, is_of_a_tier, is_place_name
from seglog_stores.tiers.view import TierFileSystem


@permitted()
def find_partitions(fs: FileSystem, options: ReadOptions) -> list[PartitionLog]:
    """Returns the partitions that the options name, by topic and number.

    Raises NotALogError for a path without a log, ConfigError if a partition that was asked for is missing or found
    twice, RefusedError if permission is missing, and IncompleteError if a run of seglog is unfinished there or a
    partition that had records is gone.
    """
    return Finder(fs, options).find()


class Finder:
    """Finds the partitions that the options name; can search repeatedly, and resolves each path only once.

    A search lists each log directory once, and each wanted partition in it once. It looks at names, not at files.
    """

    def __init__(self, fs: FileSystem, options: ReadOptions) -> None:
        self._fs, self._options = fs, options
        self._kinds: dict[Path, TargetKind] = {}
        self._listed: dict[Path, bool] = {}  # log directory -> True if a manifest commits its contents
        self._tiers, self._names_in = BrokersTiers(fs, options), dict[Path, list[str]]()
        self._just_read: list[TierFileSystem] = []  # committed logs whose manifests this search has read
        self._searched: set[Path] = set()  # the log directories of this search
        self._chosen: dict[Path, set[str]] = {}  # object store directory -> the wanted names in it

    def find(self, *, require: bool = True) -> list[PartitionLog]:
        """Returns the partitions that exist now. Errors are those of `find_partitions`.

        Without `require`, partitions that were asked for may be missing.
        """
        found: dict[TopicPartition, PartitionLog] = {}
        seen: set[TopicPartition] = set()
        log_directories: set[Path] = set()
        checkpoints: dict[Path, tuple[Offsets, Offsets]] = {}
        committed: dict[Path, TierFileSystem] = {}
        self._just_read = []
        self._searched = set()
        for path, kind, tier in self._targets():
            if kind is TargetKind.LOG_DIRECTORY and tier is None:
                self._searched.add(path)
            if kind is TargetKind.LOG_DIRECTORY:
                self._check_runs(links.resolve(path), log_directories)
            for key, directory in self._directories(tier or self._fs, path, kind):
                if not self._options.chooses(key):
                    continue
                if not self._options.where.chooses(key):
                    seen.add(key)
                    continue
                fs = tier or self._committed(committed, directory)
                if fs is None:
                    continue  # the manifest does not name this partition
                seen.add(key)
                known = found.get(key)
                if known is not None and links.resolve(known.directory) != links.resolve(directory):
                    raise ConfigError(f"{known.directory} and {directory} both hold {key}: read replicas one by one")
                self._check_runs(log_directory := partition_path(directory).parent, log_directories)
                try:
                    names = list_segments(fs, directory)
                except NotALogError:
                    if kind is not TargetKind.LOG_DIRECTORY:
                        raise
                    continue  # a file, or removed since the log directory was listed
                if log_directory not in checkpoints:
                    checkpoints[log_directory] = _checkpoints(fs, log_directory)
                starts, marks = checkpoints[log_directory]
                only = path if kind is TargetKind.FILE else None
                log = PartitionLog(fs, key, directory, names, starts.get(key, 0), marks.get(key), only)
                if only is not None and not log.chosen:
                    raise NotALogError(path, "no segment's .log file")
                found[key] = log
        for log_directory in sorted(log_directories):
            self._check_run(log_directory)  # one may have begun during the search
        if require:
            self._check_absent(found, checkpoints)
            self._check_missing(seen)
        return [found[key] for key in sorted(found)]

    def _check_runs(self, log_directory: Path, known: set[Path]) -> None:
        """Checks a log directory for unfinished runs on first sight and adds it to `known`. URLs have no runs."""
        if log_directory not in known and not isinstance(log_directory, RemotePath):
            known.add(log_directory)
            self._check_run(log_directory)

    def _check_run(self, log_directory: Path) -> None:
        """Reports a run of seglog that is under way or was cut short: a plan would take a part for the whole."""
        problem = unfinished_run(self._fs, log_directory)
        if problem:
            self._options.report_loss(problem)

    def _check_absent(
        self, found: Mapping[TopicPartition, PartitionLog], checkpoints: Mapping[Path, tuple[Offsets, Offsets]]
    ) -> None:
        """Reports partitions that had acknowledged records by their log directory's checkpoints, and have no directory.

        More is read only if there seem to be such partitions: a deleted or a reassigned one is none.
        """
        directories = sorted(path for path in self._searched if not self._listed.get(path))
        missing: set[TopicPartition] = set()
        for path in directories:
            starts, marks = checkpoints.get(path) or _checkpoints(self._fs, path)
            missing |= {key for key, mark in marks.items() if mark > starts.get(key, 0) and self._wants(key)}
        missing -= set(found)
        if not missing:
            return
        around = [
            (list_log_directory(self._fs, p), read_surroundings(self._fs, p, ask_readers=False)) for p in directories
        ]
        for one in absent_partitions(around):
            if one.topic_partition in missing and one.first_offset is not None:
                which = f"offsets {one.first_offset} to {one.last_offset} are missing"
                self._options.report_loss(f"{one.path / str(one.topic_partition)}: {which}: {one.message}")

    def _wants(self, key: TopicPartition) -> bool:
        is_log = key.topic != filenames.CLUSTER_METADATA_TOPIC
        return is_log and self._options.chooses(key) and self._options.where.chooses(key)

    def _check_missing(self, found: Collection[TopicPartition]) -> None:
        missing = sorted((self._options.assign or frozenset()) - set(found))
        absent = sorted((self._options.subscribe or frozenset()) - {key.topic for key in found})
        if missing or absent:
            names = ", ".join([*map(str, missing), *absent])
            raise ConfigError(f"{names}: no such partition below {', '.join(self._options.paths)}")

    # paths

    def _targets(self) -> Iterator[tuple[Path, TargetKind, FileSystem | None]]:
        """Yields each path, its kind, and the file system to read it through if it lies in a broker's tier."""
        has_tier = False
        for text in self._options.paths:
            # a task has a working directory of its own
            expanded = [path.absolute() for path in matching_paths(self._fs, text)]
            count = 0
            for one in expanded:
                try:
                    target = self._target(one)
                except NotALogError:
                    if len(expanded) == 1:
                        raise
                    continue  # a glob also matches checkpoints and other files next to the partitions
                if target[1] is TargetKind.FILE and len(expanded) > 1 and not one.name.endswith(".log"):
                    continue
                has_tier, count = has_tier or target[2] is not None, count + 1
                yield target
            if not count:
                raise NotALogError(parse_location(text))
        if not has_tier and self._options.tier != NO_TIER_NAMES:
            raise ConfigError(
                "local, tierKey and remoteMetadata are for paths in tiered storage, and no path is in one"
            )

    def _target(self, path: Path) -> tuple[Path, TargetKind, FileSystem | None]:
        try:
            kind = self._kind(path)
        except NotALogError:
            shown = self._tiers.shown(path)
            if shown is None:
                raise
        else:
            shown = self._tiers.shown(path) if self._hints_at_tier(path, kind) else None
            if shown is None:
                return path, kind, None
        self._chosen.pop(path, None)  # a tier shows its partitions under other names
        return shown[1], resolve_path(*shown).kind, shown[0]

    def _hints_at_tier(self, path: Path, kind: TargetKind) -> bool:
        """True if names in the directory are a tier's. Keeps the names for the next user of them."""
        directory = path.parent if kind is TargetKind.FILE else path
        if path in self._chosen:
            return any(map(is_of_a_tier, self._chosen[path]))
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # listing its segments reports it
            self._names_in[directory] = self._fs.list(directory)
        return any(map(is_of_a_tier, self._names_in.get(directory, ())))

    def _kind(self, path: Path) -> TargetKind:
        self._chosen.pop(path, None)
        if self._kinds.get(path, TargetKind.LOG_DIRECTORY) is TargetKind.LOG_DIRECTORY and self._lists_chosen(path):
            self._kinds[path] = TargetKind.LOG_DIRECTORY
        if path not in self._kinds:
            try:
                self._kinds[path] = resolve_path(self._fs, path).kind
            except NotALogError:
                fs = committed_files(self._fs, path, self._options)
                if fs is None:
                    raise
                self._just_read.append(fs)
                self._kinds[path] = resolve_path(fs, path).kind
        return self._kinds[path]

    def _lists_chosen(self, path: Path) -> bool:
        """Lists only the chosen partitions of an object store directory; False if that is impossible or finds none."""
        beginnings = self._options.beginnings()
        if beginnings is None or not isinstance(self._fs, RoutingFileSystem):
            return False
        found: set[str] = set()
        for start in beginnings:
            names = self._fs.beginning(path, start)
            if names is None:
                return False
            found |= names
        if found:
            self._chosen[path] = found
        return bool(found)

    # partitions

    def _directories(self, fs: FileSystem, path: Path, kind: TargetKind) -> Iterator[tuple[TopicPartition, Path]]:
        """Yields the partitions of a target by their directories' names."""
        if kind is not TargetKind.LOG_DIRECTORY:
            directory = path.parent if kind is TargetKind.FILE else path
            name = links.resolve(directory).name
            parsed = filenames.parse_partition_directory(name)
            # a copy in a directory with another name is still a log; the name then serves as the topic
            yield (TopicPartition(name, 0) if parsed is None else parsed.topic_partition), directory
            return
        names: Iterable[str]
        if path in self._chosen:
            names = self._chosen[path]
        else:
            try:
                names = (self._names_in.pop(path, []) if fs is self._fs else []) or fs.list(path)
            except FileNotFoundError as error:
                raise NotALogError(path, "no such directory") from error
            self._listed[path] = COMMITTED in names
        for name in names:
            parsed = filenames.parse_partition_directory(name)
            if parsed is None or parsed.state is not filenames.PartitionState.LIVE:
                continue
            if self._options.with_metadata or parsed.topic_partition.topic != filenames.CLUSTER_METADATA_TOPIC:
                yield parsed.topic_partition, path / name

    def _committed(self, known: dict[Path, TierFileSystem], directory: Path) -> FileSystem | None:
        """Returns the file system to read a partition through: the committed log's, if a manifest commits logs there.

        Returns None if that manifest does not name the partition.
        """
        above = directory.parent
        if above not in known:
            if not self._may_be_committed(directory):
                return self._fs
            fs = next((one for one in self._just_read if one.shows(directory)), None)
            fs = fs or committed_files(self._fs, directory, self._options)
            if fs is None:
                return self._fs
            known[above] = fs
        return known[above] if known[above].shows(directory) else None

    def _may_be_committed(self, directory: Path) -> bool:
        """True if names say so: those in the log directory, if it was listed, else those in the partition."""
        if directory.parent in self._listed:
            return self._listed[directory.parent]
        try:
            return any(map(is_place_name, self._names_in.pop(directory, []) or self._fs.list(directory)))
        except (FileNotFoundError, NotADirectoryError):
            return False  # listing its segments reports it


def _checkpoints(fs: FileSystem, directory: Path) -> tuple[Offsets, Offsets]:
    """Returns the log start offsets and high watermarks in a log directory's checkpoints; empty without them."""
    found = []
    for name in (filenames.LOG_START_OFFSET_CHECKPOINT, filenames.HIGH_WATERMARK_CHECKPOINT):
        path = directory / name
        present = fs.status(path) is not None
        found.append(parse_offset_checkpoint(fs.read_bytes(path), path) if present else {})
    return found[0], found[1]
