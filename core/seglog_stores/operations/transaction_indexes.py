"""Compares the transaction indexes of copied files with the records, and makes those anew that differ (`seglog fetch`).

A broker that starts on copied files after a clean shutdown trusts its transaction indexes: without the right entries a
consumer with read_committed gets aborted records. A tier has an index only where a segment has aborted transactions,
and nobody notices one that was lost or cut on its way there.

Kafka: LogSegment.sanityCheck, TransactionIndex.sanityCheck, RemoteIndexCache.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from seglog import layout
from seglog.errors import CorruptIndexError
from seglog.format.filenames import FileKind, segment_file_name
from seglog.log.indexes import AbortedTransaction, TransactionIndex
from seglog.scan.listing import SegmentFiles, list_partition
from seglog.scan.log_walk import LogWalk, WalkedEntries
from seglog.storage.filesystem import Access, FileSystem
from seglog.verification.semantics import SemanticObserver


@dataclass(frozen=True, slots=True)
class WrongIndex:
    """A transaction index that differs from the records, or is missing: its name, the `entries` that it should have,
    and what is wrong with it first."""

    name: str
    entries: tuple[AbortedTransaction, ...]
    problem: str


def wrong_indexes(fs: FileSystem, directory: Path) -> Iterator[WrongIndex]:
    """Yields the transaction indexes of a partition that do not list what its records show. Reads every log. Raises
    OSError.
    """
    listing = list_partition(fs, directory)
    observer = SemanticObserver(fs, listing, None, live=False)
    for segment in listing.segments:
        _drain(observer.begin(segment))
        for step in LogWalk(fs, segment.log, check=False):
            if isinstance(step, WalkedEntries):
                _drain(observer.take(step))
        problem = next((found.message for found in observer.finish()), "")
        if problem:
            name = segment_file_name(segment.base_offset, FileKind.TRANSACTION_INDEX)
            yield WrongIndex(name, _entries(fs, segment, observer), problem)


def has_transactions(piece: WalkedEntries) -> bool:
    """True if any of the batches is transactional."""
    return bool((piece.batches["attributes"] & layout.TRANSACTIONAL_MASK).any())


def make_anew(fs: FileSystem, directory: Path, wrong: WrongIndex) -> None:
    """Writes the index, durably but for its name; one without entries is removed, as a broker has none then."""
    path, place = directory / wrong.name, fs.status(directory)
    if not wrong.entries:
        fs.remove(path)
        return
    with fs.open(path, "create") as file:
        if place is not None:
            file.give(Access.within(place))
    index = TransactionIndex(fs, path, int(path.stem))
    for entry in wrong.entries:
        index.append(entry)
    index.flush()
    index.close_file()


def _entries(fs: FileSystem, segment: SegmentFiles, observer: SemanticObserver) -> tuple[AbortedTransaction, ...]:
    """Returns the transactions that the records show, and in their place those listed that began earlier, in segments
    that are not here."""
    entries = {entry.last_offset: entry for entry in observer.aborted}
    for listed in _listed(fs, segment):
        derived = entries.get(listed.last_offset)
        ends_here = (listed.producer_id, listed.last_offset) in observer.abort_markers
        if ends_here and not observer.shows_all and (derived is None or listed.first_offset < derived.first_offset):
            entries[listed.last_offset] = listed
    return tuple(entries[offset] for offset in sorted(entries))


def _listed(fs: FileSystem, segment: SegmentFiles) -> list[AbortedTransaction]:
    if segment.transaction_index is None:
        return []
    try:
        return TransactionIndex(fs, segment.transaction_index, segment.base_offset).entries
    except CorruptIndexError:
        return []


def _drain(findings: Iterable[object]) -> None:
    """Lets an observer do its work; what it finds besides is `verify`'s."""
    for _ in findings:
        pass
