"""Which snapshots of a backup still hold records that are erased (`seglog redact --backups`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from seglog.errors import CorruptionError
from seglog.escaping import command_line
from seglog.model import TopicPartition
from seglog.operations.redact import Elsewhere
from seglog.redaction.finding import SearchOrder, find_records
from seglog.redaction.rewriting import Erasure
from seglog.redaction.selection import RecordsToErase
from seglog.remote_path import SNAPSHOT_MARK
from seglog.scan.listing import list_partition
from seglog.storage.filesystem import FileSystem
from seglog.units import count_text
from seglog_stores.formats.snapshot_manifest import Extent
from seglog_stores.tiers.recognition import TierPlace
from seglog_stores.tiers.snapshots import Snapshots, shown_snapshot
from seglog_stores.tiers.view import snapshot_files

_Logs = tuple[tuple[str, tuple[Extent, ...]], ...]


def snapshots_holding(
    fs: FileSystem,
    repository: Path,
    concerns: Callable[[TopicPartition], bool],
    selection: RecordsToErase,
    erasure: Erasure,
) -> Iterator[Elsewhere]:
    """Yields each snapshot with records of the selection that are not erased in it, or with a log of which that cannot
    be told. Partitions that do not concern anybody are not read, and no extent is read twice for the same log.

    Raises NotALogError if there is no repository, CorruptTierError for a damaged manifest, OSError.
    """
    snapshots = Snapshots(fs, repository)
    snapshots.require()
    snapshots = snapshots.pinned()
    known: dict[tuple[str, _Logs], int | None] = {}
    for identity in snapshots.ids():
        shown = shown_snapshot(fs, repository.with_name(f"{repository.name}{SNAPSHOT_MARK}{identity}"))
        files = snapshot_files(fs, shown)
        records, unread = 0, 0
        for place in shown.places():
            if not concerns(place.topic_partition):
                continue
            key = (place.directory.name, _logs_of(place))
            if key not in known:
                known[key] = _records_in(files, place, selection, erasure)
            count = known[key]
            records, unread = records + (count or 0), unread + (count is None)
        if records or unread:
            yield _elsewhere(repository, identity, records, unread)


def _logs_of(place: TierPlace) -> _Logs:
    files = () if place.kept is None else place.kept.partition.files
    return tuple((file.name, file.extents) for file in files if file.name.endswith(".log"))


def _records_in(files: FileSystem, place: TierPlace, selection: RecordsToErase, erasure: Erasure) -> int | None:
    """Returns how many selected records are not erased in a log, None if it is damaged or cannot be read."""
    listing = list_partition(files, place.directory)
    statuses = dict(files.entries(place.directory))
    segments = tuple((each.base_offset, statuses[each.log.name].size) for each in listing.segments)
    of_partition = selection.of(place.topic_partition)
    order = SearchOrder(place.directory, place.topic_partition, segments, of_partition, erasure)
    try:
        return find_records(files, order, lambda *_: None).records
    except (CorruptionError, OSError):
        return None


def _elsewhere(repository: Path, identity: str, records: int, unread: int) -> Elsewhere:
    held = [count_text(records, "record")] if records else []
    held += [f"{count_text(unread, 'log')} that cannot be searched"] if unread else []
    erase = command_line("seglog", "backup", "redact", repository)
    remedy = f"{erase}, with the same choice of records"
    if unread:
        remedy = f"back up the repaired log again, and prune this snapshot; then {remedy}"
    return Elsewhere(f"snapshot {identity} of {repository}: {' and '.join(held)}", remedy)
