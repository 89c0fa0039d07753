"""Brokers side by side: which copy of a partition is the furthest, and how far the others are behind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from seglog.look.report.figures import Comparison, PartitionFigures, Side


def compared(partitions: Sequence[PartitionFigures], leaders: Mapping[str, int]) -> list[Comparison]:
    """Returns the partitions that several brokers have, the one with the largest distance first.

    `leaders` are the metadata's, by the partition's name. Ends are those that indexes and checkpoints show, so a
    distance of one index interval (some KiB of records) says nothing.
    """
    by_name = defaultdict[str, dict[str, PartitionFigures]](dict)
    for one in partitions:
        if one.state == "live" and one.end_offset is not None:
            by_name[one.partition].setdefault(one.broker, one)
    found = []
    for name, copies in by_name.items():
        if len(copies) < 2:
            continue
        furthest = max(one.end_offset or 0 for one in copies.values())
        sides = [
            Side(broker, one.end_offset or 0, one.bytes, furthest - (one.end_offset or 0))
            for broker, one in sorted(copies.items())
        ]
        found.append(Comparison(name, leaders.get(name), tuple(sides)))
    return sorted(found, key=lambda one: (-one.most_behind, one.partition))
