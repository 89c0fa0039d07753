"""Tells which partition a key goes to by each partitioner, and which partitioner the data of a topic obeys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from seglog.errors import ConfigError
from seglog_ask.operations.partitioners import PARTITIONERS, Partitioner
from seglog_ask.table.plan.partition_log import PartitionLog, permitted, settled
from seglog_ask.table.plan.splits import batch_range, pieces_of
from seglog_ask.table.read.records import placed_records
from seglog_ask.table.read.source import Source

SAMPLED_KEYS = 10_000  # of a topic, spread evenly over its partitions


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a partitioner sends a key, and how many of `sampled` keys of the log lie where it sends them."""

    partitioner: Partitioner
    partition: int
    obeyed: int = 0
    sampled: int = 0


def placed(key: bytes, partitions: int, sample: Mapping[int, Sequence[bytes]]) -> list[Placed]:
    """Returns what each partitioner does with a key. `sample` has keys by the partition that they lie in."""
    found = []
    for one in PARTITIONERS:
        obeyed = sum(one.partition(other, partitions) == number for number, keys in sample.items() for other in keys)
        total = sum(map(len, sample.values()))
        found.append(Placed(one, one.partition(key, partitions), obeyed, total))
    return found


@permitted()
def sampled_keys(source: Source) -> tuple[int, dict[int, list[bytes]]]:
    """Returns the number of the source's partitions, up to the highest one there, and distinct keys of each.

    Empty keys are left out, as some clients send them anywhere. Raises ConfigError unless all belong to one topic.
    """
    topics = sorted({log.topic_partition.topic for log in source.logs})
    if len(topics) != 1:
        names = ", ".join(topics[:5]) or "none"
        raise ConfigError(
            f"name one topic's partitions, or LOGDIR/TOPIC: the paths have {len(topics)} topics ({names})"
        )
    wanted = -(-SAMPLED_KEYS // len(source.logs))
    keys = {log.topic_partition.partition: _keys_of(source, log, wanted) for log in source.logs}
    return max(keys) + 1, keys


def _keys_of(source: Source, log: PartitionLog, wanted: int) -> list[bytes]:
    """Returns the first distinct keys of a partition."""
    options, found = source.options, dict[bytes, None]()
    _, pieces = settled(log, lambda log: tuple(pieces_of(log, batch_range(log, options), options)))
    for piece in pieces:
        for _, records in placed_records(source.fs, piece, options, source.left_out.add):
            for i in np.flatnonzero(records.rows["key_size"] > 0).tolist():
                key = records.key(i)
                if key is not None:
                    found[key] = None
                if len(found) == wanted:
                    return list(found)
    return list(found)
