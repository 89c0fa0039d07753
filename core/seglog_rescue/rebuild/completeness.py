"""Compares the given log directories with the metadata that was read: which brokers and directories are missing.

A broker that is not given may have gone on alone: it then has acknowledged records that no given directory has. If the
cluster starts without it, Kafka makes it cut these when it comes back. So each missing broker, each missing directory
of a given broker, and each replica in sync that no given directory holds is an obstacle, unless the operator goes on
without that broker's missing directories.

Kafka: RegisterBrokerRecord.logDirs, PartitionRecord.directories (KIP-858), .isr, .eligibleLeaderReplicas (KIP-966).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from seglog.configuration.settings import identity_of
from seglog.errors import RefusedError
from seglog.format.uuids import parse_uuid
from seglog.model import TopicPartition
from seglog.scan.listing import list_log_directory
from seglog.storage.filesystem import FileSystem
from seglog.units import count_text
from seglog_rescue.rebuild.known import KnownMetadata, furthest, read_known

_FIRST_DIRECTORY_ID = 100  # Kafka: DirectoryId.reserved: the ids below say that a directory is unknown, or lost
_NAMED = 5


@dataclass(frozen=True, slots=True)
class Missing:
    """What is missing of a broker: all of it (`is_whole`), or directories of it by their ids.

    `replicas` are the partitions that it has a replica of, of a whole broker; else those in sync that none of its given
    directories holds.
    """

    node: int
    is_whole: bool
    directories: tuple[str, ...]
    replicas: tuple[TopicPartition, ...]
    in_sync: int

    def refusal(self, known: KnownMetadata) -> RefusedError:
        """Returns what to say to the operator."""
        return RefusedError(
            f"{self.described(known)}. Give them too; or, if they are lost, say --without {self.node}: acknowledged"
            " records that only they have are lost"
        )

    def described(self, known: KnownMetadata) -> str:
        """Returns what is missing, and how that is known."""
        ids = f"directory.id {', '.join(self.directories)}" if self.directories else "ids unknown"
        if self.is_whole:
            what = f"no log directory of broker {self.node} is given ({ids}): {known.source} names it, with"
            what += f" {count_text(len(self.replicas), 'replica')}{self._names()}, {self.in_sync} of them in sync"
        elif not self.directories:
            what = f"none of the given log directories of broker {self.node} holds"
            what += f" {count_text(len(self.replicas), 'replica')} in sync{self._names()} that it has by {known.source}"
        else:
            what = f"broker {self.node} has more log directories than are given ({ids}), by {known.source}"
            if self.replicas:
                what += f": {count_text(len(self.replicas), 'replica')} in sync{self._names()} lie in none that is"
        return what

    def note(self) -> str:
        """Returns what going on without them means."""
        ids = f" ({', '.join(self.directories)})" if self.directories else ""
        what = f"log directories of broker {self.node}{ids}"
        return (
            f"without the {'' if self.is_whole else 'missing '}{what}: acknowledged records that only they have are"
            f" lost, and when broker {self.node} starts on them it cuts its logs to the new leaders': copy them first"
        )

    def _names(self) -> str:
        if not self.replicas:
            return ""
        more = f" and {len(self.replicas) - _NAMED} more" if len(self.replicas) > _NAMED else ""
        return f" ({', '.join(map(str, self.replicas[:_NAMED]))}{more})"


def missing_directories(
    known: KnownMetadata, given: Mapping[int, Collection[str]], held: Mapping[TopicPartition, Collection[int]]
) -> Iterator[Missing]:
    """Yields what is missing, broker by broker. `given` maps nodes to the ids of their given directories, `held`
    partitions to the nodes with a directory of it."""
    expected = _expected(known)
    for node, directories in sorted(expected.items()):
        in_sync = [key for key, nodes in _replicas(known, in_sync=True) if node in nodes]
        if node not in given:
            replicas = tuple(sorted(key for key, nodes in _replicas(known, in_sync=False) if node in nodes))
            yield Missing(node, True, tuple(directories), replicas, len(in_sync))
            continue
        absent = tuple(one for one in directories if one not in given[node])
        anew = sum(one not in directories for one in given[node])  # its meta.properties was lost, and made anew
        lacking = tuple(sorted(key for key in in_sync if held.get(key) and node not in held[key]))
        if lacking or len(absent) > anew:
            yield Missing(node, False, absent, lacking, len(lacking))


def missing_of(fs: FileSystem, log_directories: Sequence[Path]) -> Iterator[tuple[KnownMetadata, Missing]]:
    """Yields what is missing beside these log directories, by the metadata in them; nothing without metadata.

    Without an identity (`meta.properties`) for each directory, nobody can say which are missing.
    """
    newest = furthest([metadata for path in log_directories if (metadata := read_known(fs, path)) is not None])
    given: dict[int, list[str]] = {}
    held: dict[TopicPartition, set[int]] = {}
    for path in log_directories:
        identity = identity_of(fs, path)
        node, directory = identity.get("node.id", ""), identity.get("directory.id")
        if not node.isdigit():
            return
        given.setdefault(int(node), []).extend([directory] if directory else [])
        for partition in list_log_directory(fs, path).live:
            held.setdefault(partition.topic_partition, set()).add(int(node))
    if newest is not None:
        yield from ((newest, partition) for partition in missing_directories(newest, given, held))


def _expected(known: KnownMetadata) -> dict[int, list[str]]:
    """Returns the brokers that are registered or have replicas, with the ids of their directories."""
    expected = {node: _directory_ids(ids) for node, ids in known.brokers.items()}
    for topic in known.topics.values():
        for partition in topic.partitions.values():
            for i, node in enumerate(partition.replicas):
                ids = expected.setdefault(node, [])
                if node not in known.brokers:
                    ids += [one for one in _directory_ids(partition.directories[i : i + 1]) if one not in ids]
    return expected


def _directory_ids(ids: Iterable[str]) -> list[str]:
    return [one for one in ids if parse_uuid(one).int >= _FIRST_DIRECTORY_ID]


def _replicas(known: KnownMetadata, *, in_sync: bool) -> Iterator[tuple[TopicPartition, Collection[int]]]:
    for name, topic in known.topics.items():
        for number, partition in topic.partitions.items():
            yield TopicPartition(name, number), partition.in_sync if in_sync else partition.replicas
