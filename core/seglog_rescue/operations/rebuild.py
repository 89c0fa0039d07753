"""Rebuilds a cluster's lost metadata from the log directories that are left (`seglog rebuild`).

1. Read every directory, and all metadata that is still readable (`rebuild.directories`, `known`).
2. Plan the cluster (`rebuild.planner`); report all obstacles at once.
3. Write the bootstrap snapshot to a new directory, in both places where a controller may look for it, with the small
   files that some log directory lacks, each under `node-ID/` and its own path. The log directories are only read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from uuid import UUID

from seglog.clock import Clock
from seglog.configuration.cluster_metadata import METADATA_PARTITION
from seglog.errors import NotALogError, RefusedError
from seglog.format.filenames import BOOTSTRAP_CHECKPOINT
from seglog.format.uuids import random_uuid
from seglog.progress import BytesRead
from seglog.repairs.undo.beside import new_directory, require_free
from seglog.scan.listing import TargetKind, resolve_path
from seglog.storage import links
from seglog.storage.filesystem import PRIVATE, FileSystem
from seglog_rescue.rebuild.directories import read_directory
from seglog_rescue.rebuild.known import KnownMetadata, formatted_with, furthest, newest_voters, read_known
from seglog_rescue.rebuild.plan import RebuildPlan, RebuiltFile
from seglog_rescue.rebuild.planner import Choices, RebuildPlanner
from seglog_rescue.rebuild.shown_features import shown_features
from seglog_rescue.replicas.collecting import WholeReplicas


@dataclass(frozen=True, slots=True)
class RebuildRequest:
    """The log directories of a cluster. `metadata` lists further places with its metadata: log directories of
    controllers, their `__cluster_metadata-0`, snapshots. `nodes` are the node ids of directories whose
    `meta.properties` is lost, `features` levels by name, as `kafka-storage format --feature` takes them. `without` are
    brokers whose missing directories are given up, with the acknowledged records that only they have.
    """

    directories: Sequence[Path]
    metadata: Sequence[Path] = ()
    nodes: Mapping[Path, int] = field(default_factory=dict)
    cluster_id: str | None = None
    features: Mapping[str, int] = field(default_factory=dict)
    allow_missing: bool = False
    without: Sequence[int] = ()


def plan_rebuild(
    fs: FileSystem,
    clock: Clock,
    request: RebuildRequest,
    progress: BytesRead = lambda _size: None,
    new_id: Callable[[], UUID] = random_uuid,
) -> RebuildPlan:
    """Reads everything; changes nothing. Raises LockedError while a broker runs, NotALogError for a path that is no
    log directory, RefusedError or Obstacles for contradictions."""
    paths = [_log_directory(fs, path) for path in request.directories]
    for path in request.nodes:
        if links.resolve(path) not in paths:
            raise RefusedError(f"{path} is not one of the directories: name it, too, or leave out its node id")
    directories = [read_directory(fs, path, progress) for path in dict.fromkeys(paths)]
    nodes = {links.resolve(path): node for path, node in request.nodes.items()}
    choices = Choices(nodes, request.cluster_id, request.features, request.allow_missing, request.without)
    images = _known_metadata(fs, paths, request.metadata)
    formatted = formatted_with(fs, paths)
    shown = partial(shown_features, fs, [one.path for one in directories])
    quorum, now_ms = newest_voters(images), clock.now_ms()
    whole = WholeReplicas(fs, clock, progress).candidate
    planner = RebuildPlanner(directories, furthest(images), formatted, choices, new_id, now_ms, whole, shown, quorum)
    return planner.plan()


def write_rebuilt(fs: FileSystem, clock: Clock, plan: RebuildPlan, output: Path) -> list[Path]:
    """Makes `output` with the files of a plan, all or nothing; returns them. Raises RefusedError if it is not empty or
    lies in a log directory. Only this user can read the files: the records may hold credentials."""
    output = links.resolve(output)
    _require_outside(plan, output)
    made: list[Path] = []
    with new_directory(fs, output) as place:
        files = [(_relative(one), one.contents) for one in plan.files]
        for relative, contents in [*plan.snapshots(clock.now_ms()).items(), *files]:
            path = place / relative
            fs.make_directory(path.parent, parents=True)
            with fs.open(path, "create_new") as file:
                file.give(PRIVATE)
                file.write_at(0, contents)
                file.sync()
            fs.sync_directory(path.parent)
            made.append(output / relative)
    return made


def require_output(fs: FileSystem, plan: RebuildPlan, output: Path) -> None:
    """Raises RefusedError if `write_rebuilt` would refuse the place."""
    output = links.resolve(output)
    _require_outside(plan, output)
    require_free(fs, output)


def snapshot_places(output: Path) -> list[Path]:
    """Returns what a controller gets of `output`, a file and a directory, in its `metadata.log.dir`."""
    return [links.resolve(output) / name for name in (BOOTSTRAP_CHECKPOINT, METADATA_PARTITION)]


def copies(plan: RebuildPlan, output: Path) -> Iterator[tuple[Path, Path]]:
    """Returns (written file, its place) for each small file that a log directory lacks."""
    return ((links.resolve(output) / _relative(one), one.place) for one in plan.files)


def _relative(file: RebuiltFile) -> Path:
    return Path(f"node-{file.node}", *file.place.parts[1:])


def _require_outside(plan: RebuildPlan, output: Path) -> None:
    for path in plan.directories:
        if path == output or path in output.parents:
            raise RefusedError(f"{output} lies in the log directory {path}, which is only read: choose another place")


def _log_directory(fs: FileSystem, path: Path) -> Path:
    target = resolve_path(fs, path)
    if target.kind is not TargetKind.LOG_DIRECTORY:
        raise NotALogError(path, f"a {target.kind.value}; name the log directory that it lies in")
    return links.resolve(path)


def _known_metadata(fs: FileSystem, directories: Sequence[Path], stated: Sequence[Path]) -> list[KnownMetadata]:
    known = []
    for path in stated:
        found = read_known(fs, links.resolve(path))
        if found is None:
            raise NotALogError(path, "it holds neither a metadata log nor a snapshot of one")
        known.append(found)
    return known + [found for path in directories if (found := read_known(fs, path)) is not None]
