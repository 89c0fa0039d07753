"""Finds the copies of each partition and compares them (`seglog diff`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from seglog.configuration.settings import differing_owner, identity_of
from seglog.errors import NotALogError, UnsupportedError
from seglog.log.read_loader import viewed_copies
from seglog.look.inspect.diff import Difference, diff_batches, diff_bytes, have_same_batches
from seglog.look.inspect.diff_view import ViewOptions, diff_view
from seglog.scan.listing import TargetKind, list_log_directory, resolve_path, topic_partitions
from seglog.storage import links
from seglog.storage.filesystem import FileSystem

LEVELS = ("bytes", "batches", "view")


def copies_by_partition(fs: FileSystem, copies: Sequence[Path]) -> list[tuple[str, list[Path]]]:
    """Returns each partition's name and its copies, which need not all exist. LOGDIR/TOPIC is a copy of all its
    partitions, and the log directories of one broker together are one copy of what it has (`_brokers`).

    Raises ValueError for fewer than two copies, for partitions mixed with log directories, and for files.
    """
    if len(copies) < 2:
        raise ValueError("needs at least two copies")
    topics = [topic_partitions(fs, copy) for copy in copies]
    if all(topics):
        names = {target.path.name for topic in topics for target in topic}
        return [(name, [copy.parent / name for copy in copies]) for name in sorted(names)]
    targets = [resolve_path(fs, copy) for copy in copies]
    kinds = {target.kind for target in targets}
    if kinds == {TargetKind.PARTITION}:
        return [(links.name_of(targets[0].path), [target.path for target in targets])]
    if kinds != {TargetKind.LOG_DIRECTORY}:
        raise ValueError("takes partition directories or log directories, not both, and no files")
    places = [
        (target.path, {partition.path.name for partition in list_log_directory(fs, target.path).live})
        for target in targets
    ]
    brokers = _brokers(fs, places)
    if len(brokers) < 2:
        raise ValueError("needs another broker's copies: these are the log directories of one broker")
    every = sorted(set().union(*(names for _, names in places)))
    return [(name, [_place_in(broker, name) for broker in brokers]) for name in every]


_OF_A_BROKER = {"cluster.id", "node.id", "directory.id"}  # what the identity of a broker's log directory has
_Place = tuple[Path, set[str]]  # a log directory, and the names of its partitions


def _brokers(fs: FileSystem, places: Sequence[_Place]) -> list[list[_Place]]:
    """Returns the log directories by the brokers that they belong to: those of one node with ids of their own, none of
    which has a partition of another one. Copies of a directory have its id, so they are others."""
    brokers: list[tuple[dict[str, str], set[str | None], list[_Place]]] = []
    for path, names in places:
        identity = identity_of(fs, path)
        own, is_whole = identity.get("directory.id"), identity.keys() >= _OF_A_BROKER
        for owner, ids, group in brokers:
            apart = all(names.isdisjoint(theirs) for _, theirs in group)
            if is_whole and not differing_owner(owner, identity) and own not in ids and apart:
                ids.add(own)
                group.append((path, names))
                break
        else:
            brokers.append((identity, {own}, [(path, names)]))
    return [group for _, _, group in brokers]


def _place_in(broker: Sequence[_Place], name: str) -> Path:
    """Returns where a broker has a partition, or would have it."""
    return next((path for path, names in broker if name in names), broker[0][0]) / name


def differences(
    fs: FileSystem, directories: Sequence[Path], level: str, options: ViewOptions, limit: int | None = None
) -> Iterator[Difference]:
    """Yields the differences between copies of a partition, at most `limit`.

    `level` compares the `bytes` of the files, the `batches` at each offset, or the `view` of a reader of committed
    records. `options` are for `view`; `batches` uses only their selection. Raises UnsupportedError for logs of Kafka
    0.7, NotALogError if no copy exists any longer.
    """
    return islice(_all_differences(fs, directories, level, options), limit)


def _all_differences(
    fs: FileSystem, directories: Sequence[Path], level: str, options: ViewOptions
) -> Iterator[Difference]:
    if level == "batches" and have_same_batches(fs, directories):
        return
    with viewed_copies(fs, directories) as (seen, listings):
        has = tuple(seen.status(listing.directory) is not None for listing in listings)
        if any(listing.format == "0.7" for listing in listings):
            raise UnsupportedError("logs of Kafka 0.7 cannot be compared: their messages have no offsets of their own")
        if not any(has):
            raise NotALogError(listings[0].directory, "no such directory any more")
        if not all(has):
            yield Difference(level, "missing", has, "not every copy has the partition")
        elif level == "bytes":
            yield from diff_bytes(seen, listings)
        elif level == "batches":
            yield from diff_batches(seen, listings, options.selection)
        else:
            yield from diff_view(seen, listings, options)
