"""Tells which copy of each partition to start from, and what each choice loses (`seglog replicas`).

1. On each host, `collect` reads the log directories and makes facts of them: offsets, epochs and digests, no record.
2. Anywhere, `compare` puts facts and log directories together, and compares the copies of each partition.

Both only read, and both ways give the same verdicts: directories become facts first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from seglog.clock import Clock
from seglog.configuration.settings import identity_of
from seglog.errors import NotALogError, RefusedError
from seglog.progress import BytesRead
from seglog.remote_path import SNAPSHOT_MARK
from seglog.repairs.undo.beside import NewFile, new_directory
from seglog.scan.listing import TargetKind, resolve_path
from seglog.storage import links
from seglog.storage.filesystem import FileStatus, FileSystem
from seglog_rescue.operations.groups import read_groups
from seglog_rescue.replicas.cluster import Cluster, assembled
from seglog_rescue.replicas.collecting import read_directory, read_metadata
from seglog_rescue.replicas.comparison import PartitionVerdict, verdicts
from seglog_rescue.replicas.facts import DirectoryFacts, GroupFacts, HostFacts, MetadataFacts
from seglog_rescue.replicas.facts_file import MOST_BYTES, is_facts, parse_facts, write_facts
from seglog_rescue.replicas.order import Start, best_start
from seglog_rescue.replicas.steps import Step, steps

SCRIPT = "steps.sh"

_SNIFFED = 64


@dataclass(frozen=True, slots=True)
class ReplicasRequest:
    """What to compare: files of facts and log directories, in any order. `metadata` are further copies of the metadata
    log, or snapshots of it; `nodes` are the node ids of directories without a readable `meta.properties`."""

    sources: Sequence[Path]
    metadata: Sequence[Path] = ()
    nodes: Mapping[Path, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReplicasReport:
    """The cluster, a verdict for each partition, the order of starting, and what to do."""

    cluster: Cluster
    partitions: tuple[PartitionVerdict, ...]
    start: Start
    steps: tuple[Step, ...]

    @property
    def in_question(self) -> tuple[PartitionVerdict, ...]:
        """The partitions that need a decision."""
        return tuple(verdict for verdict in self.partitions if not verdict.agrees)

    @property
    def is_complete(self) -> bool:
        """False if some of the input could not be read."""
        return not self.cluster.unreadable


def collect(
    fs: FileSystem, clock: Clock, request: ReplicasRequest, progress: BytesRead = lambda _size: None
) -> HostFacts:
    """Reads the log directories of a request. Raises LockedError while a broker runs, NotALogError for a path that is
    no log directory, RefusedError if its broker is not known."""
    paths = list(dict.fromkeys(_log_directory(fs, path) for path in request.sources))
    nodes = {links.resolve(path): node for path, node in request.nodes.items()}
    for path in nodes:
        if path not in paths:
            raise RefusedError(f"{path} is not one of the directories: name it, too, or leave out its node id")
    owners = {path: _node_of(fs, path, nodes.get(path)) for path in paths}
    directories: list[DirectoryFacts] = []
    metadata: list[MetadataFacts] = []
    for path, node in owners.items():
        directories.append(read_directory(fs, path, node, clock, progress))
        metadata += filter(None, [read_metadata(fs, path, node)])
    for path in request.metadata:
        image = read_metadata(fs, links.resolve(path), -1)
        if image is None:
            raise NotALogError(path, "it holds neither a metadata log nor a snapshot of one")
        metadata.append(image)
    groups, problems = _groups(fs, owners)
    source = ", ".join(map(str, paths))
    return HostFacts(source, clock.now_ms(), tuple(directories), tuple(metadata), tuple(groups), tuple(problems))


def write_collected(fs: FileSystem, facts: HostFacts, output: Path, *, replace: bool = False) -> int:
    """Writes facts to a new file, whole or not at all; returns its size. Raises RefusedError if it is there already,
    unless `replace` is set."""
    data, file = write_facts(facts), NewFile(fs, links.resolve(output), replace=replace)
    try:
        file.file.write_at(0, data)
        file.keep()
    except BaseException:
        file.discard()
        raise
    return len(data)


def write_steps(fs: FileSystem, report: ReplicasReport, output: Path) -> list[Path]:
    """Makes the directory `output` with the steps as a script and the files that they need; returns them. Raises
    RefusedError if it is not empty."""
    output = links.resolve(output)
    files = {step.file: step.contents for step in report.steps if step.file}
    files[SCRIPT] = "".join(f"{line}\n" for line in step_lines(report))
    made = []
    with new_directory(fs, output) as place:
        for name, contents in files.items():
            with fs.open(place / name, "create_new") as file:
                file.write_at(0, contents.encode("utf-8", "surrogateescape"))
                file.sync()
            made.append(output / name)
    return made


def compare(
    fs: FileSystem, clock: Clock, request: ReplicasRequest, progress: BytesRead = lambda _size: None
) -> ReplicasReport:
    """Compares the copies. Raises what `collect` raises, CorruptionError for facts that were cut or edited,
    UnsupportedError for facts of a newer major version, RefusedError if the sources cannot belong to one cluster."""
    hosts, directories = [], []
    for path in dict.fromkeys(request.sources):
        data = _facts(fs, path)
        if data is None:
            directories.append(path)
        else:
            hosts.append(parse_facts(data, path))
    if directories or request.metadata:
        hosts.append(collect(fs, clock, ReplicasRequest(directories, request.metadata, request.nodes), progress))
    cluster = assembled(hosts)
    compared = tuple(verdicts(cluster))
    if not compared:
        raise NotALogError(request.sources[0], "neither a partition nor a topic is known there")
    unclean = cluster.unclean_topics
    missing = {missing.node for missing in cluster.missing if missing.is_whole}
    partitions = [verdict for verdict in compared if verdict.partition.topic not in cluster.unknown]
    in_question = [verdict for verdict in partitions if not verdict.agrees]
    start = best_start(in_question, cluster.brokers - missing, unclean)
    asked = {verdict.partition.topic for verdict in in_question}
    lines = steps(cluster, partitions, start, [topic for topic in unclean if topic in asked])
    return ReplicasReport(cluster, compared, start, tuple(lines))


def _facts(fs: FileSystem, path: Path) -> bytes | None:
    """Returns the contents of a file of facts, None for anything that is not a file. Raises NotALogError."""
    if _require_there(fs, path).is_directory:
        return None
    with fs.open(path, "r") as file:
        beginning = file.read_at(0, _SNIFFED)
    if not is_facts(beginning):
        raise NotALogError(path, "a file, and not one of facts (seglog replicas --collect writes them)")
    return fs.read_bytes(path, MOST_BYTES)


def _require_there(fs: FileSystem, path: Path) -> FileStatus:
    status = fs.status(path)
    if status is None and SNAPSHOT_MARK in str(path):
        raise NotALogError(path, "a snapshot is not compared in place: `seglog backup restore` it to a disk first")
    if status is None:
        raise NotALogError(path, "no such file or directory")
    return status


def _log_directory(fs: FileSystem, path: Path) -> Path:
    _require_there(fs, path)
    target = resolve_path(fs, path)
    if target.kind is not TargetKind.LOG_DIRECTORY:
        raise NotALogError(path, f"a {target.kind.value}; name the log directory that it lies in")
    return links.resolve(path)


def _node_of(fs: FileSystem, path: Path, stated: int | None) -> int:
    text = identity_of(fs, path).get("node.id", "")
    stored = int(text) if text.isascii() and text.isdigit() and len(text) < 11 else None
    if stored is None and stated is None:
        raise RefusedError(f"{path}: its meta.properties names no broker: say --node {path}=ID")
    if stored is not None and stated is not None and stored != stated:
        raise RefusedError(f"{path} belongs to the node {stored} by its meta.properties, not to {stated}")
    return stored if stored is not None else stated if stated is not None else -1


def _groups(fs: FileSystem, owners: Mapping[Path, int]) -> tuple[list[GroupFacts], list[str]]:
    """Returns what the groups had committed, by each broker's copy of their topic, and what could not be read."""
    rows: list[GroupFacts] = []
    problems: list[str] = []
    for node in sorted(set(owners.values())):
        targets = [resolve_path(fs, path) for path, owner in owners.items() if owner == node]
        try:
            report = read_groups(fs, targets)
        except NotALogError:
            continue  # this broker has no partition of the groups' topics
        problems += report.problems
        for group in report.groups:
            for row in group.partitions:
                if row.offset is not None and row.offset >= 0:
                    key = row.partition
                    rows.append(GroupFacts(node, group.name, key.topic, key.partition, row.offset))
    return rows, problems


def step_lines(report: ReplicasReport) -> Iterator[str]:
    """Yields all lines of the steps, as a shell takes them: sentences are comments."""
    for number, step in enumerate(report.steps, 1):
        where = f"{step.where}: " if step.where else ""
        yield f"# {number}. {where}{step.why}"
        yield from step.lines
