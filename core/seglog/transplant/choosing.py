"""Chooses the partitions to take over.

Of Kafka's own topics, only `__consumer_offsets` is taken: it names groups and topics, which the new cluster can use.
The others name things that the new cluster has under other names or not at all (`NOT_TAKEN`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from seglog.errors import RefusedError
from seglog.evidence.coordinator_replay import SHARE_TOPIC
from seglog.evidence.transactions import TRANSACTION_TOPIC
from seglog.format.filenames import CLUSTER_METADATA_TOPIC, parse_partition_directory
from seglog.model import TopicPartition
from seglog.scan.listing import PartitionDirectory, Target, TargetKind, list_log_directory
from seglog.storage import links
from seglog.storage.filesystem import FileSystem

NOT_TAKEN = {
    TRANSACTION_TOPIC: (
        "the new cluster hands out the producer ids in it again; transactional producers get new ids when they start,"
        " and the transplant ends open transactions in the data"
    ),
    SHARE_TOPIC: "it names topics by their old ids; share groups begin anew",
    "__remote_log_metadata": "it names topics by their old ids",
    CLUSTER_METADATA_TOPIC: "it is the old cluster's own",
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """A partition to take over: its directory, its name there, and its new name."""

    directory: Path
    partition: TopicPartition
    target: TopicPartition


def choose(
    fs: FileSystem, sources: Sequence[Target], topics: Mapping[str, str], into: Path
) -> tuple[list[Wanted], list[tuple[str, str]]]:
    """Returns the partitions by their new names, and (path, reason) for each directory left out.

    `topics` maps old names to new ones; if it is not empty, no other topic is taken. Raises RefusedError for a source
    that cannot be meant.
    """
    found: list[Wanted] = []
    left_out: list[tuple[str, str]] = []
    for source in sources:
        path = links.resolve(source.path)
        if source.kind is TargetKind.FILE:
            raise RefusedError(f"{source.path} is a file; name the partition directory, or the log directory")
        if into in (path, path.parent):
            raise RefusedError(f"{source.path} lies in the target log directory")
        whole = source.kind is TargetKind.LOG_DIRECTORY
        for one in list_log_directory(fs, path).partitions if whole else [_named(path)]:
            reason = _reason_against(one, topics, whole)
            if reason:
                left_out.append((str(one.path), reason))
                continue
            old = one.topic_partition
            new = TopicPartition(topics.get(old.topic, old.topic), old.partition)
            found.append(Wanted(one.path, old, new))
    _require_each_once(found)
    for topic in topics:
        if not any(one.partition.topic == topic for one in found):
            raise RefusedError(f"--topic {topic}: no source has a partition of this topic")
    return sorted(found, key=lambda one: one.target), left_out


def _named(path: Path) -> PartitionDirectory:
    name = parse_partition_directory(path.name)
    if name is None:
        raise RefusedError(
            f"{path}: its name does not say which topic and partition it is; rename the copy to TOPIC-NUMBER"
        )
    return PartitionDirectory(path, name.topic_partition, name.state)


def _reason_against(one: PartitionDirectory, topics: Mapping[str, str], whole: bool) -> str:
    """Returns why a partition is not taken, "" if it is. Raises RefusedError if the user named it directly."""
    topic = one.topic_partition.topic
    if topic in NOT_TAKEN:
        if not whole:
            raise RefusedError(f"{one.path} is not transplanted: {NOT_TAKEN[topic]}")
        return NOT_TAKEN[topic]
    if topics and topic not in topics:
        return "--topic does not name it"
    if whole and one.state.value:
        return f"a broker has set it aside ({one.state.value}); name the directory itself to take it"
    return ""


def _require_each_once(found: Sequence[Wanted]) -> None:
    known: dict[TopicPartition, Path] = {}
    for one in found:
        other = known.setdefault(one.target, one.directory)
        if other != one.directory:
            raise RefusedError(
                f"{other} and {one.directory} would both become {one.target}; name the one to take (seglog diff"
                " compares them)"
            )
