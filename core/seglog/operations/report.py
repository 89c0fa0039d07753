"""Gathers the figures of `seglog report`: what `ls`, `explain`, `cleaner`, `retain`, `doctor` and `config` know, of all
partitions at once.

Without `verify` no log file is opened, except the controller's own, from which the configuration of topics comes. The
doctor then examines names, checkpoints and identities; with `verify` it reads all data.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from seglog.cleaner.dirtiness import policy_problem
from seglog.clock import Clock
from seglog.configuration.cluster_metadata import read_cluster_metadata
from seglog.configuration.precedence import DEFAULT
from seglog.configuration.settings import DirectorySettings
from seglog.doors import door
from seglog.errors import NotALogError, SeglogError
from seglog.escaping import command_line
from seglog.format.filenames import PartitionState
from seglog.log.stateful_topics import state_deleted
from seglog.look.report.concerns import directory_concerns, partition_concerns
from seglog.look.report.figures import (
    Concern,
    DirectoryFigures,
    PartitionFigures,
    PastRound,
    Report,
    SettingFigures,
    compared,
)
from seglog.look.report.growth import Growth, bytes_of_last_day, growth_of_all
from seglog.look.report.partition_figures import Surrounding, TopicRules, partition_figures
from seglog.operations.retain import retention_config
from seglog.operations.stats import kept_rounds
from seglog.operations.workspace import Round, by_log_directory
from seglog.progress import DoneOfAll
from seglog.remote_path import RemotePath
from seglog.scan.announcing import announced, small_files
from seglog.scan.listing import (
    PartitionDirectory,
    Target,
    TargetKind,
    list_log_directory,
    refuse_file,
)
from seglog.storage.filesystem import FileSystem
from seglog.storage.lock import holder_of
from seglog.verification.codes import Severity
from seglog.verification.surroundings import Surroundings, read_surroundings
from seglog.verification.verify import Verification, VerifyOptions

if TYPE_CHECKING:
    from seglog_rescue.doctor.cases import Diagnosis

_SEVERITIES = {Severity.ERROR: "danger", Severity.WARNING: "danger", Severity.INFO: "note"}
_GRAVEST_FIRST = ("blocker", "danger", "note")
_ROUNDS = 20  # of a partition

SettingsOf = Callable[[Path], DirectorySettings]


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """What to gather. With `verify` all data is read. `environment` finds the recorded cleaning rounds."""

    verify: bool = False
    environment: Mapping[str, str] | None = None


@dataclass(frozen=True)
class _Place:
    """A log directory, the partitions in it that were asked for, and whether all were."""

    path: Path
    partitions: tuple[PartitionDirectory, ...]
    whole: bool
    around: Surroundings
    settings: DirectorySettings
    running: bool

    @property
    def broker(self) -> str:
        """The broker's label: its node id, or the directory where nobody knows that."""
        node = self.around.node_id
        return str(self.path) if node is None else f"broker {node}"


def report(
    fs: FileSystem,
    targets: Sequence[Target],
    settings_of: SettingsOf,
    clock: Clock,
    request: ReportRequest,
    *,
    progress: DoneOfAll | None = None,
    tell: Callable[[str], None] = lambda _sentence: None,
) -> Report:
    """Gathers a report on partitions and log directories. Changes and locks nothing.

    `settings_of` returns a log directory's configuration, `progress` is called with (partitions done, in all), `tell`
    with a sentence about what could not be read. Raises NotALogError for a file, and OSError for a log directory.
    """
    known_settings = cache(settings_of)
    places = _places(fs, targets, known_settings)
    environment = os.environ if request.environment is None else request.environment
    now_ms = clock.now_ms()
    total, done = sum(len(place.partitions) for place in places), 0
    partitions: list[PartitionFigures] = []
    for place in places:
        around = _surrounding(place, kept_rounds(fs, environment, place.path, tell), now_ms)
        for partition in announced(fs, place.partitions, attrgetter("path"), small_files):
            figures = _figures(fs, partition, around)
            partitions += [] if figures is None else [figures]
            done += 1
            if progress is not None:
                progress(done, total)
    directories = tuple(_directory(fs, place, partitions) for place in places)
    day_bytes = {
        directory.path: bytes_of_last_day(_grown(partitions, directory.path), now_ms)
        for directory in directories
        if directory.partitions
    }
    concerns = [concern for partition in partitions for concern in partition_concerns(partition, now_ms)]
    concerns += directory_concerns(directories, day_bytes)
    concerns += _examined(fs, places, known_settings, clock, request)
    growth, before = growth_of_all(_grown(partitions), now_ms)
    return Report(
        made_ms=now_ms,
        paths=tuple(str(target.path) for target in targets),
        verified=request.verify,
        directories=directories,
        partitions=tuple(partitions),
        concerns=tuple(sorted(concerns, key=lambda concern: _GRAVEST_FIRST.index(concern.severity))),
        comparisons=tuple(compared(partitions, _leaders(fs, places))),
        settings=tuple(setting for place in places for setting in _settings(place)),
        growth=growth,
        growth_before=before,
        day_bytes=day_bytes,
    )


def _places(fs: FileSystem, targets: Sequence[Target], settings_of: SettingsOf) -> list[_Place]:
    """Returns the log directories of the targets in order, each once, with the partitions to look at."""
    for target in targets:
        refuse_file(target)
    places = []
    for named in by_log_directory(targets):
        path = named.log_directory
        around = read_surroundings(fs, path, ask_readers=False, goes_on=lambda _error: True)
        if named.whole:
            partitions = tuple(p for p in list_log_directory(fs, path).partitions if not p.is_cluster_metadata)
        else:
            partitions = tuple(filter(None, map(PartitionDirectory.at, named.partitions)))
        places.append(_Place(path, partitions, named.whole, around, settings_of(path), _is_running(path)))
    return places


def _is_running(path: Path) -> bool:
    try:
        return holder_of(path) is not None
    except OSError:
        return False  # the lock file may not be read: nobody knows


def _surrounding(place: _Place, saved: Sequence[Round], now_ms: int) -> Surrounding:
    rounds: dict[str, list[PastRound]] = {}
    for round_ in saved:
        figures = (round_["time"], round_["buffer_utilization"], round_["bytes_read"], round_["bytes_written"])
        rounds.setdefault(round_["partition"], []).append(PastRound(*figures))
    rules = cache(lambda topic: topic_rules(place.settings, topic))
    return Surrounding(
        str(place.path),
        place.broker,
        rules,
        place.around.offsets,
        now_ms,
        {name: past[-_ROUNDS:] for name, past in rounds.items()},
    )


def topic_rules(settings: DirectorySettings, topic: str) -> TopicRules:
    """Returns the rules by which a topic's logs are cleaned and deleted, as far as they are known."""
    resolved = settings.resolve(topic)
    problem = policy_problem(resolved, topic)
    if not problem and not resolved.cleaner.enable:
        problem = f"log.cleaner.enable is false ({resolved.settings['log.cleaner.enable'].origin})"
    deleted = state_deleted(topic, resolved.log) if resolved.policy_known else ""
    return TopicRules(retention_config(resolved), problem, resolved.policy_known, deleted)


def _figures(fs: FileSystem, partition: PartitionDirectory, around: Surrounding) -> PartitionFigures | None:
    """Returns a partition's figures, or with the reason why it cannot be read; None if it is gone by now."""
    try:
        return partition_figures(fs, partition, around)
    except (OSError, SeglogError) as error:
        if isinstance(error, FileNotFoundError | NotALogError) and fs.status(partition.path, follow=False) is None:
            return None
        state = partition.state.value.removeprefix("-") or "live"
        name, topic = partition.path.name, partition.topic_partition.topic
        return PartitionFigures(name, topic, around.broker, around.path, state, "kafka", problem=str(error))


def _directory(fs: FileSystem, place: _Place, partitions: Sequence[PartitionFigures]) -> DirectoryFigures:
    inside = [partition for partition in partitions if partition.directory == str(place.path)]
    free = None
    if not isinstance(place.path, RemotePath):
        try:
            free = fs.free_bytes(place.path)
        except OSError:
            free = None
    meta = place.around.meta
    return DirectoryFigures(
        path=str(place.path),
        broker=place.broker,
        node_id=place.around.node_id,
        cluster_id=None if meta is None else meta.cluster_id,
        running=place.running,
        clean_shutdown=place.around.clean,
        free_bytes=free,
        partitions=len(inside),
        bytes=sum(partition.bytes for partition in inside),
    )


def _grown(partitions: Sequence[PartitionFigures], directory: str | None = None) -> list[Growth]:
    return [
        partition.growth
        for partition in partitions
        if partition.growth is not None and partition.state == "live" and directory in (None, partition.directory)
    ]


# --- what is wrong


def _examined(
    fs: FileSystem, places: Sequence[_Place], settings_of: SettingsOf, clock: Clock, request: ReportRequest
) -> Iterator[Concern]:
    """Yields what the doctor says of whole log directories, and with `verify` what is wrong with named partitions."""
    for directories in _by_broker([place for place in places if place.whole]):
        paths = [place.path for place in directories]
        rows = door("diagnoses")(fs, paths, clock, settings_of, deep=request.verify)
        yield from (_of_doctor(row) for row in rows)
    named = [place for place in places if not place.whole]
    if not request.verify or not named:
        return
    targets = [Target(partition.path, TargetKind.PARTITION) for place in named for partition in place.partitions]
    for finding in Verification(fs, targets, VerifyOptions(), clock):
        place = next(p for p in named if any(inside.path.name == finding.partition for inside in p.partitions))
        path = place.path / finding.partition
        mend = command_line("seglog", "repair", "--dry-run", path) if finding.repair else ""
        where = f"{finding.file}: {finding.message}"
        yield Concern(_SEVERITIES[finding.severity], finding.code, str(place.path), finding.partition, where, "", mend)


def _by_broker(places: Sequence[_Place]) -> list[list[_Place]]:
    """Groups log directories by broker: equal cluster and node. Others stand alone."""
    groups: dict[object, list[_Place]] = {}
    for place in places:
        meta = place.around.meta
        is_known = meta is not None and meta.node_id is not None
        groups.setdefault((meta.cluster_id, meta.node_id) if is_known and meta else place.path, []).append(place)
    return list(groups.values())


def _of_doctor(row: Diagnosis) -> Concern:
    message = f"{row.file}: {row.message}" if row.file and row.file != row.partition else row.message
    where = (row.log_directory, row.partition, message)
    return Concern(row.gravity.value, row.code, *where, row.broker, row.command, row.count)


# --- configuration and metadata


def _settings(place: _Place) -> Iterator[SettingFigures]:
    """Yields the broker's values that differ from Kafka's defaults, then those of its topics."""
    served = (PartitionState.LIVE, PartitionState.FUTURE)
    topics = sorted({partition.topic_partition.topic for partition in place.partitions if partition.state in served})
    broker: dict[str, str] = {}
    for topic in (None, *topics):
        for setting in place.settings.resolve(topic).settings.values():
            if setting.origin == DEFAULT or (topic is not None and not setting.key.topic_level):
                continue
            if topic is None:
                broker[setting.key.name] = setting.text
            elif broker.get(setting.key.name) == setting.text:
                continue  # it is the broker's own
            yield SettingFigures(topic, str(place.path), setting.key.name, setting.text, setting.origin)


def _leaders(fs: FileSystem, places: Sequence[_Place]) -> dict[str, int]:
    """Returns the leaders by partition, from the newest metadata beside the logs, if several brokers are compared."""
    if len({place.broker for place in places}) < 2:
        return {}
    directories = {place.settings.metadata_directory for place in places} - {None}
    images = [read_cluster_metadata(fs, path, assignments=True) for path in directories if path is not None]
    newest = max((image for image in images if image is not None), key=lambda image: image.end_offset, default=None)
    if newest is None:
        return {}
    return {
        f"{topic}-{number}": assigned.leader
        for topic, topic_id in newest.topic_ids.items()
        for number, assigned in newest.partitions.get(topic_id, {}).items()
        if assigned.leader >= 0
    }
