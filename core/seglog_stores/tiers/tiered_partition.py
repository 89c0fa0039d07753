"""Presents one partition in tiered storage as a directory with Kafka's names, joined with its local part.

A segment's files are `<base>.log`, `.index`, `.timeindex`, `.txnindex`. The producer snapshot after it is
`<next offset>.snapshot`, and the leader epochs of the last segment are `leader-epoch-checkpoint`. This is how a
broker's partition directory looks, and a restored one. A file that the local directory also has comes from there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from seglog.errors import CorruptCheckpointError, RefusedError
from seglog.format.checkpoint import EpochEntry, parse_leader_epochs
from seglog.format.filenames import LEADER_EPOCH_CHECKPOINT, FileKind, segment_file_name
from seglog.scan.listing import list_partition
from seglog.storage.filesystem import FileSystem
from seglog_stores.formats.log_manifest import ManifestPartition
from seglog_stores.tiers.contents import CACHE_BYTES, ChunkCache, PartOfObject, Stored
from seglog_stores.tiers.lineage import LineageSegment, Local, choose, is_ascending, lineage_of
from seglog_stores.tiers.manifests import files_of_partition
from seglog_stores.tiers.metadata import RemoteLogs, checked_against
from seglog_stores.tiers.recognition import TierPlace
from seglog_stores.tiers.relocation import Relocation
from seglog_stores.tiers.segments import Inventory, KeyPairs, Problem, Remark, TierSegment, cut_position, unreadable
from seglog_stores.tiers.snapshots import files_of_kept


@dataclass(frozen=True, slots=True)
class TierOptions:
    """The options of a tier reader: the log directory with the local parts, key pairs, and the contents of
    `__remote_log_metadata`.
    """

    local: Path | None = None
    keys: KeyPairs = field(default_factory=KeyPairs)
    metadata: RemoteLogs | None = None
    cache: ChunkCache = field(default_factory=lambda: ChunkCache(CACHE_BYTES))


@dataclass(frozen=True, slots=True)
class TieredPartition:
    """A partition as it is shown: `files` of the tier by name, `chosen` segments, `local` part (None: none), and
    `remarks` about it.
    """

    place: TierPlace
    inventory: Sequence[TierSegment]
    chosen: Sequence[LineageSegment]
    local: Local | None
    files: Mapping[str, Stored]
    remarks: Sequence[Remark]


def load_partition(
    fs: FileSystem, place: TierPlace, options: TierOptions, *, is_survey: bool = False
) -> TieredPartition:
    """Loads a partition: its objects, manifests, and the names of the local part. Raises OSError.

    For a survey (`is_survey`) an unreadable object is a remark, and `files` stays empty. A reader gets everything, or
    the OSError. Raises RefusedError if a local part or a broker's metadata is given for logs that a manifest has
    committed.
    """
    if place.is_listed and (options.local is not None or options.metadata is not None):
        raise RefusedError(
            f"{place.directory}: a manifest describes this log completely; --local and --remote-metadata are for a"
            " broker's tiered storage"
        )
    if place.described is not None:
        return _committed(fs, place, place.described)
    if place.kept is not None:
        return TieredPartition(place, (), (), None, files_of_kept(fs, place.kept), ())
    moved = Relocation(fs, place, options.metadata or RemoteLogs())
    inventory = Inventory(fs, place, options.keys, options.cache, moved.objects, is_survey=is_survey)
    remarks, segments = [*inventory.remarks, *moved.remarks()], list(inventory.segments)
    if options.metadata is not None:
        segments, more = checked_against(options.metadata, place, segments, inventory.ids)
        remarks += more
    local = None if options.local is None else _local_part(fs, options.local / str(place.topic_partition), remarks)

    def note(segment: TierSegment, error: OSError) -> None:
        subject = f"the leader epochs of the segment at offset {segment.start_offset}"
        remarks.append(unreadable(place, error, subject, segment.start_offset))

    lineage = local.epochs if local is not None and local.epochs else lineage_of(segments, note if is_survey else None)
    choice = choose(str(place.topic_partition), segments, local, lineage)
    remarks += [_qualified(remark, remarks) for remark in choice.remarks]
    files = {} if is_survey else _files(fs, choice.chosen)
    return TieredPartition(place, segments, choice.chosen, local, files, remarks)


def _qualified(remark: Remark, remarks: Sequence[Remark]) -> Remark:
    """Returns the remark; for a gap that begins with an unreadable segment, says so."""
    first = remark.first_offset
    is_hidden = any(each.problem is Problem.UNREADABLE and each.first_offset == first for each in remarks)
    if remark.problem is not Problem.GAP or not is_hidden:
        return remark
    return replace(remark, message=f"{remark.message} that can be read")


def _committed(fs: FileSystem, place: TierPlace, described: ManifestPartition) -> TieredPartition:
    found = files_of_partition(fs, place.directory, described)
    chosen = tuple(LineageSegment(one, one.end_offset) for one in found.segments)
    return TieredPartition(place, found.segments, chosen, None, found.files, found.remarks)


def _local_part(fs: FileSystem, directory: Path, remarks: list[Remark]) -> Local | None:
    if fs.status(directory) is None:
        return None
    listing = list_partition(fs, directory)
    if not listing.segments:
        return None
    epochs: tuple[EpochEntry, ...] = ()
    if listing.leader_epoch_checkpoint is not None:
        path = listing.leader_epoch_checkpoint
        try:
            epochs = parse_leader_epochs(fs.read_bytes(path), path)
        except CorruptCheckpointError as error:
            remarks.append(Remark(Problem.BAD_OBJECT, directory.name, f"the lineage is the tier's: {error}", path=path))
    if not is_ascending(epochs):
        message = f"the lineage is the tier's: the epochs in {listing.leader_epoch_checkpoint} do not ascend"
        remarks.append(Remark(Problem.BAD_OBJECT, directory.name, message))
        epochs = ()
    return Local(listing.segments[0].base_offset, listing.segments[-1].base_offset, epochs)


def _files(fs: FileSystem, chosen: Sequence[LineageSegment]) -> dict[str, Stored]:
    files: dict[str, Stored] = {}
    for found in chosen:
        one = found.segment
        for kind, stored in one.files.items():
            if kind is FileKind.PRODUCER_SNAPSHOT:
                if not found.is_cut:
                    files[segment_file_name(one.end_offset + 1, kind)] = stored
            elif kind is FileKind.LOG and found.is_cut:
                end = cut_position(fs, stored, one.path, found.end_offset + 1)
                files[segment_file_name(one.start_offset)] = PartOfObject(
                    stored, 0, stored.status._replace(size=min(end, stored.status.size))
                )
            elif not found.is_cut:
                files[segment_file_name(one.start_offset, kind)] = stored
    last = chosen[-1].segment.checkpoint if chosen else None
    if last is not None:
        files[LEADER_EPOCH_CHECKPOINT] = last
    return files
