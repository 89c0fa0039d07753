"""Reads a small log that nobody writes: all its segments at once, as if they were one file.

A broker has thousands of partitions, and most of them are small. For one, a view (`scan.view`) takes longer than its
bytes, and so does a walk through each segment. Like `verification.soundness`, this only answers for what is usual: None
means that the log is to be read through a view, and says nothing about it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from seglog.format.decoder import checksums_match, scan_batches
from seglog.scan.listing import PartitionListing, list_partition
from seglog.scan.log_walk import WalkedEntries
from seglog.scan.view import is_live
from seglog.storage.filesystem import FileSystem

_MOST_BYTES = 1 << 20  # of all segments: for more, reading them is what takes time


@dataclass(frozen=True, slots=True)
class SmallLog:
    """The batches of all segments, each with a right checksum. Positions count from the first segment's first byte."""

    listing: PartitionListing
    entries: WalkedEntries


def small_log_at_rest(fs: FileSystem, directory: Path) -> SmallLog | None:
    """Returns a log whose segments hold nothing but whole, good batches; None if it is larger, has anything else in
    them or no segment, cannot be read, or if another process holds the lock of the log directory.

    Opens the `.log` files alone. Raises NotALogError if there is no such directory.
    """
    if fs.reads_at_once(directory) > 1 or is_live(directory):  # a store delivers many files at once to a view
        return None
    try:
        listing = list_partition(fs, directory)
        is_small = bool(listing.segments) and listing.format == "kafka" and listing.size <= _MOST_BYTES
        return _read(fs, listing) if is_small else None
    except OSError:
        return None  # the view meets it again, and tells


def _read(fs: FileSystem, listing: PartitionListing) -> SmallLog | None:
    data, begins, filled = np.empty(listing.size, dtype=np.uint8), [], 0
    for segment in listing.segments:
        with fs.open(segment.log, "r") as file:
            count = file.read_into(0, data.data[filled : filled + segment.size])
        if count < segment.size:
            return None
        begins += [filled] if count else []
        filled += count
    found = scan_batches(data, 0, filled, 0)
    batches, valid = found.batches, checksums_match(data, found.batches, 0)
    if found.consumed < filled or not valid.all() or not set(begins) <= set(batches["position"].tolist()):
        return None
    source = partial(fs.open, listing.segments[0].log, "r")
    return SmallLog(listing, WalkedEntries(0, data, batches, valid, source))
