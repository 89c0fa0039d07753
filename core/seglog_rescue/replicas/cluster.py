"""Puts the facts of several hosts together: whose they are, and what contradicts what.

Facts of several clusters, or the same log directory twice, are refused. What may be stale or missing is a remark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from seglog.errors import RefusedError
from seglog.format.filenames import PartitionState
from seglog.model import TopicPartition
from seglog.units import format_time
from seglog_rescue.rebuild.completeness import Missing, missing_directories
from seglog_rescue.rebuild.known import KnownMetadata
from seglog_rescue.replicas.collecting import as_known
from seglog_rescue.replicas.facts import DirectoryFacts, HostFacts, MetadataFacts, ReplicaFacts

_CLOCK_SLACK_MS = 60_000


@dataclass(frozen=True, slots=True)
class Copy:
    """A broker's directory of a partition."""

    node: int
    directory: DirectoryFacts
    facts: ReplicaFacts


@dataclass(slots=True)
class Cluster:
    """The replicas of a cluster by partition, its newest metadata (None: none was given), also as
    `rebuild` reads it (`image`), and what is missing.

    `aside` are directories that no broker serves: a move's source or target, strays, deleted ones. `unknown` are topics
    that the controllers which are given do not know: made or deleted since they or the brokers were copied. `remarks`
    are sentences.
    """

    cluster_id: str = ""
    copies: dict[TopicPartition, list[Copy]] = field(default_factory=dict)
    aside: dict[TopicPartition, list[Copy]] = field(default_factory=dict)
    metadata: MetadataFacts | None = None
    image: KnownMetadata | None = None
    groups: dict[TopicPartition, dict[str, int]] = field(default_factory=dict)
    missing: list[Missing] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    nodes: set[int] = field(default_factory=set)
    unknown: frozenset[str] = frozenset()

    @property
    def brokers(self) -> set[int]:
        """The nodes whose directories are given, without those that are controllers alone."""
        holding = {copy.node for copies in (*self.copies.values(), *self.aside.values()) for copy in copies}
        return holding | (self.nodes & (set() if self.image is None else self.image.brokers.keys()))

    @property
    def unclean_topics(self) -> list[str]:
        """The topics that elect any replica by themselves, by the configuration in the metadata."""
        metadata = self.metadata
        if metadata is None:
            return []
        return [topic.name for topic in metadata.topics if (topic.unclean or metadata.unclean) == "true"]

    @property
    def unreadable(self) -> bool:
        """True if some of the input could not be read."""
        copies = [copy for group in (self.copies, self.aside) for each in group.values() for copy in each]
        return any(copy.facts.problem for copy in copies) or bool(self.metadata and self.metadata.problems)


def assembled(hosts: Sequence[HostFacts]) -> Cluster:
    """Returns the cluster that the facts describe. Raises RefusedError if they cannot belong together."""
    cluster = Cluster()
    places = [(host, directory) for host in hosts for directory in host.directories]
    cluster.cluster_id = _one_cluster(places)
    _require_each_once(places)
    for _, directory in places:
        cluster.nodes.add(directory.node)
        for replica in directory.replicas:
            group = cluster.aside if replica.state else cluster.copies
            key = TopicPartition(replica.topic, replica.partition)
            group.setdefault(key, []).append(Copy(directory.node, directory, replica))
    images = [image for host in hosts for image in host.metadata]
    cluster.metadata = max(images, key=lambda image: (bool(image.topics), image.end, not image.problems), default=None)
    cluster.image = None if cluster.metadata is None else as_known(cluster.metadata)
    _take_moved(cluster)
    _require_one_a_broker(cluster.copies)
    for host in hosts:
        cluster.remarks += host.problems
        for row in host.groups:
            offsets = cluster.groups.setdefault(TopicPartition(row.topic, row.partition), {})
            offsets[row.group] = max(row.offset, offsets.get(row.group, row.offset))
    cluster.missing = list(_missing(cluster, places))
    controllers = _controllers(cluster, images)
    if controllers is not None and controllers.topics and not controllers.problems:
        cluster.unknown = _unknown_topics(cluster, controllers)
    cluster.remarks += _remarks(cluster, hosts, images, controllers)
    return cluster


def _one_cluster(places: Iterable[tuple[HostFacts, DirectoryFacts]]) -> str:
    owners = {directory.cluster_id: _place(host, directory) for host, directory in places}
    named = {cluster: where for cluster, where in owners.items() if cluster}
    if len(named) > 1:
        both = ", ".join(f"{where} to {cluster}" for cluster, where in named.items())
        raise RefusedError(f"the directories belong to several clusters ({both}): give those of one")
    return next(iter(named), "")


def _place(host: HostFacts, directory: DirectoryFacts) -> str:
    """Returns where a directory is: its path, and the file of facts that it comes from, if it was not given itself."""
    is_given = host.source in ("", ", ".join(each.path for each in host.directories))
    return directory.path if is_given else f"{directory.path} in {host.source}"


def _require_each_once(places: Iterable[tuple[HostFacts, DirectoryFacts]]) -> None:
    seen: dict[str, str] = {}
    for host, directory in places:
        identity = directory.directory_id or f"broker {directory.node}, {directory.path}"
        where = _place(host, directory)
        if identity in seen:
            raise RefusedError(
                f"{where} and {seen[identity]} are the same log directory of broker {directory.node} ({identity}): the"
                " broker may have run in between, or one is a copy; give the newer one only"
            )
        seen[identity] = where


def _take_moved(cluster: Cluster) -> None:
    """Takes the `-future` copies that brokers serve when they start: those in the directory that the controller has
    recorded. The copy that each of them replaces is deleted then, so it is put aside.

    Kafka: LogManager.recoverAbandonedFutureLogs.
    """
    for key, group in list(cluster.aside.items()):
        topic = None if cluster.image is None else cluster.image.topics.get(key.topic)
        entry = None if topic is None else topic.partitions.get(key.partition)
        for future in [copy for copy in group if copy.facts.state == PartitionState.FUTURE.value]:
            directory_id = "" if entry is None else entry.directory_of(future.node)
            if (
                topic is None
                or future.facts.topic_id != topic.topic_id
                or future.directory.directory_id != directory_id
            ):
                continue
            others = [copy for copy in cluster.copies.get(key, ()) if copy.node == future.node]
            if any(copy.directory is future.directory for copy in others):
                cluster.remarks.append(
                    f"{future.facts.directory} lies beside the partition of that name, in the directory that the"
                    f" controller has recorded for it: broker {future.node} does not start; `seglog doctor` says what"
                    " to move away"
                )
                continue
            rest = [copy for copy in cluster.copies.get(key, ()) if copy.node != future.node]
            cluster.copies[key] = [*rest, future]
            cluster.aside[key] = [*(copy for copy in cluster.aside[key] if copy is not future), *others]
        if not cluster.aside[key]:
            del cluster.aside[key]


def _require_one_a_broker(copies: Mapping[TopicPartition, Sequence[Copy]]) -> None:
    for key, group in copies.items():
        places: dict[int, str] = {}
        for copy in group:
            other = places.setdefault(copy.node, copy.facts.directory)
            if other != copy.facts.directory:
                both = f"{other} and {copy.facts.directory}"
                raise RefusedError(f"{both}: broker {copy.node} has {key} twice, so move one out of its log directory")


def _missing(cluster: Cluster, places: Iterable[tuple[HostFacts, DirectoryFacts]]) -> Iterator[Missing]:
    if cluster.image is None:
        return
    ids: dict[int, list[str]] = {}
    for _, directory in places:
        ids.setdefault(directory.node, []).extend([directory.directory_id] if directory.directory_id else [])
    held = {key: {copy.node for copy in group} for key, group in cluster.copies.items()}
    yield from missing_directories(cluster.image, ids, held)


def _controllers(cluster: Cluster, images: Iterable[MetadataFacts]) -> MetadataFacts | None:
    """Returns the newest metadata of nodes that are controllers alone, None if none of theirs is given."""
    brokers = set() if cluster.image is None else cluster.image.brokers.keys()
    return max((image for image in images if image.node not in brokers), key=lambda image: image.end, default=None)


def _unknown_topics(cluster: Cluster, controllers: MetadataFacts) -> frozenset[str]:
    names, ids = {topic.name for topic in controllers.topics}, {topic.topic_id for topic in controllers.topics}
    newest = () if cluster.metadata is None else cluster.metadata.topics
    later = {topic.name for topic in newest if topic.topic_id not in ids}
    return frozenset(later | {key.topic for key in cluster.copies if key.topic not in names})


def _remarks(
    cluster: Cluster, hosts: Sequence[HostFacts], images: Sequence[MetadataFacts], controllers: MetadataFacts | None
) -> Iterator[str]:
    newest = cluster.metadata
    if newest is None:
        yield (
            "no metadata says which replicas were in sync: give the controllers' log directories too, or what is"
            " acknowledged is known by high watermarks alone"
        )
    else:
        yield from newest.problems
        yield from _stale(newest, images, hosts)
    if cluster.unknown and controllers is not None:
        yield (
            f"{controllers.source} is a controller's metadata, and up to its end at offset {controllers.end} it has no"
            f" {', '.join(sorted(cluster.unknown))}: brokers set aside as strays what they have of that, and no line"
            " elects leaders for it. If another controller knows more, give its log directory, too; else `seglog"
            " doctor` says how to bring the records back"
        )
    if cluster.image is not None:
        for missing in cluster.missing:
            yield f"{missing.described(cluster.image)}: what only they hold is not compared"
    for host in hosts:
        ahead = max((directory.written for directory in host.directories), default=0) - host.collected
        if ahead > _CLOCK_SLACK_MS:
            yield (
                f"{host.source}: files were written {ahead // 1000} s after the facts were made"
                f" ({format_time(host.collected)}), by that host's clock: clocks are apart, or a broker ran"
            )
        for other in hosts:
            if other is not host and min(other.collected, *_written(other)) > host.collected + _CLOCK_SLACK_MS:
                yield (
                    f"{other.source}: its newest log was written after the facts in {host.source} were made: brokers"
                    " ran in between, or clocks are apart; make all facts anew if any broker has been started since"
                )


def _written(host: HostFacts) -> list[int]:
    return [max((directory.written for directory in host.directories), default=host.collected)]


def _stale(newest: MetadataFacts, images: Sequence[MetadataFacts], hosts: Sequence[HostFacts]) -> Iterator[str]:
    """Yields a sentence for each broker that has registered after its own copy of the metadata ends."""
    registered = {broker.node: broker.registered_at for broker in newest.brokers}
    for node in sorted({directory.node for host in hosts for directory in host.directories}):
        own = [image.end for image in images if image.node == node]
        if own and registered.get(node, -1) >= max(own):
            yield (
                f"broker {node} registered at offset {registered[node]} of {newest.source}, and its own copy of the"
                f" metadata ends at {max(own)}: it has started since its facts were made, or died at once; make its"
                " facts anew"
            )
