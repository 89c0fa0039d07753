"""Plans a rebuilt cluster from its directories and its readable metadata.

1. All directories belong to one cluster, each to a broker by `meta.properties`; none is given twice. None is missing
   that the metadata names (`completeness`).
2. A topic has one id, by its directories and by the metadata. Its partitions are those of both.
3. The leader of a partition is the replica that `replicas.rule` puts first: it has every acknowledged record that any
   has. Its new epoch is above every epoch in a log or the metadata, so that the other replicas truncate what differs,
   and follow.
4. A topic with unknown configuration keeps its records for ever, until the operator changes that.

Planning collects all obstacles, not only the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from seglog.configuration.precedence import KAFKAS_OWN_TOPICS
from seglog.errors import RefusedError, SeglogError, raise_errors
from seglog.format import filenames
from seglog.format.checkpoint import (
    MetaProperties,
    PartitionMetadata,
    format_meta_properties,
    format_partition_metadata,
)
from seglog.format.uuids import format_uuid, parse_uuid
from seglog.format.wire import FramedRecord
from seglog.model import TopicPartition
from seglog_rescue.rebuild.completeness import Missing, missing_directories
from seglog_rescue.rebuild.directories import FoundDirectory
from seglog_rescue.rebuild.known import TOPIC_RESOURCE, KnownMetadata, KnownPartition, KnownTopic
from seglog_rescue.rebuild.leading import Replica, cut_off, given_up
from seglog_rescue.rebuild.plan import UNASSIGNED_DIRECTORY, PlannedPartition, PlannedTopic, RebuildPlan, RebuiltFile
from seglog_rescue.rebuild.voters import moved_voters
from seglog_rescue.replicas.rule import Candidate, Metadata, is_current, ranked_by_reading

METADATA_VERSION = "metadata.version"

_DEFAULT_VERSION = 19  # 3.7-IV4: every Kafka from 3.7 to 4.3 runs it
_PRODUCER_BLOCK = 1000  # Kafka: ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE
_SPARE_PRODUCER_IDS = 1_000_000  # for producers idle for so long that no snapshot has them
_MAX_MISSING = 10_000  # Kafka makes no more partitions at once (ReplicationControlManager.MAX_PARTITIONS_PER_BATCH)
_KEPT_FOR_EVER = {"retention.ms": "-1"}
_REWRITTEN = ("FEATURE_LEVEL_RECORD", "PRODUCER_IDS_RECORD")


@dataclass(frozen=True, slots=True)
class Choices:
    """The operator's choices. `nodes` are node ids of directories without a readable `meta.properties`, `features`
    levels by name; with `allow_missing`, partitions that no directory holds begin empty. `without` are brokers whose
    missing directories are given up.
    """

    nodes: Mapping[Path, int]
    cluster_id: str | None
    features: Mapping[str, int]
    allow_missing: bool
    without: Sequence[int] = ()


class RebuildPlanner:
    """Makes one plan. `new_id` generates ids that are lost; `now_ms` dates the files; `shown` are the feature levels
    that the directories need, asked only if no metadata has them; `read_whole` reads a broker's replica in whole, where
    several must be compared. `quorum` is the metadata whose voters count."""

    def __init__(
        self,
        directories: Sequence[FoundDirectory],
        known: KnownMetadata | None,
        formatted: KnownMetadata | None,
        choices: Choices,
        new_id: Callable[[], UUID],
        now_ms: int,
        read_whole: Callable[[Path, TopicPartition, int], Candidate],
        shown: Callable[[], Mapping[str, int]] = dict,
        quorum: KnownMetadata | None = None,
    ) -> None:
        self._shown, self._quorum, self._read_whole = shown, quorum, read_whole
        self._directories, self._choices, self._new_id, self._now_ms = list(directories), choices, new_id, now_ms
        self._known, self._formatted = known, formatted
        self._whole = known is not None and not known.problems and bool(known.topics)
        self._errors: list[SeglogError] = []
        self._notes: list[str] = [note for directory in directories for note in directory.notes]
        self._files: list[RebuiltFile] = []
        self._metas: dict[Path, MetaProperties] = {}

    def plan(self) -> RebuildPlan:
        """Returns the plan. Raises RefusedError, or Obstacles if there are several."""
        cluster_id, is_new = self._cluster_id()
        self._identify(cluster_id)
        self._stop_if_refused()
        by_topic, known = self._replicas(), self._known
        self._note_age(by_topic)
        self._require_complete(by_topic)
        self._stop_if_refused()
        names = sorted({*by_topic, *(known.topics if known is not None else ())})
        topics = tuple(filter(None, (self._topic(name, by_topic.get(name, {})) for name in names)))
        self._stop_if_refused()
        if not topics:
            raise RefusedError(f"{self._directories[0].path}: neither a partition nor a topic is known there")
        self._advise(topics)
        if self._quorum is not None:
            self._notes += moved_voters(self._quorum, self._directory_ids())
        return RebuildPlan(
            cluster_id,
            is_new,
            self._features(),
            topics,
            tuple(self._records()),
            self._next_producer_id(),
            self._nodes(),
            tuple(directory.path for directory in self._directories),
            tuple(directory.metadata_log for directory in self._directories if directory.metadata_log is not None),
            tuple(self._files),
            None if known is None else known.source,
            0 if known is None else known.end_offset,
            () if known is None else tuple(known.problems),
            tuple(pair for directory in self._directories for pair in directory.left_out),
            tuple(self._notes),
            () if self._quorum is None else self._quorum.voters,
            None if self._quorum is None else self._quorum.source,
            tuple(self._choices.without),
        )

    def _stop_if_refused(self) -> None:
        raise_errors(self._errors)

    def _refuse(self, reason: str) -> None:
        self._errors.append(RefusedError(reason))

    # --- the owners of the directories ------------------------------------------------------------------------

    def _cluster_id(self) -> tuple[str, bool]:
        paths: dict[str, Path] = {}
        for directory in self._directories:
            if directory.meta is not None and directory.meta.cluster_id is not None:
                paths.setdefault(directory.meta.cluster_id, directory.path)
        if len(paths) > 1:
            owners = ", ".join(f"{path} to {cluster}" for cluster, path in paths.items())
            raise RefusedError(f"the directories belong to several clusters ({owners}): give those of one")
        stated, own = self._choices.cluster_id, next(iter(paths), None)
        if stated is not None and own is not None and stated != own:
            raise RefusedError(f"{paths[own]} belongs to the cluster {own}, not to {stated}")
        chosen = stated or own
        return (format_uuid(self._new_id()), True) if chosen is None else (chosen, False)

    def _identify(self, cluster_id: str) -> None:
        """Gives each directory its node id and directory id; an incomplete `meta.properties` becomes a new file."""
        seen: dict[UUID, Path] = {}
        for directory in self._directories:
            meta, stated = directory.meta, self._choices.nodes.get(directory.path)
            if meta is not None and stated is not None and stated != meta.node_id:
                self._refuse(
                    f"{directory.path} belongs to the node {meta.node_id} by its meta.properties, not to {stated}"
                )
            elif meta is None and stated is None and directory.replicas:
                reason = f"{directory.path}: {directory.meta_problem}, so its broker is not known"
                self._refuse(f"{reason}: say --node {directory.path}=ID")
            elif meta is not None or stated is not None:
                self._metas[directory.path] = self._identity(directory, meta, stated, cluster_id)
                identity = self._metas[directory.path].directory_id
                if identity is not None and seen.setdefault(identity, directory.path) != directory.path:
                    both = f"{directory.path} and {seen[identity]}"
                    self._refuse(f"{both} have the same directory.id: one is a copy of the other, so give only one")

    def _identity(
        self, directory: FoundDirectory, meta: MetaProperties | None, stated: int | None, cluster_id: str
    ) -> MetaProperties:
        if meta is not None and meta.version == 1:
            return meta
        node = stated if meta is None else meta.node_id
        assert node is not None
        made = MetaProperties(1, cluster_id, node, self._new_id())
        contents = format_meta_properties(made, self._now_ms)
        self._files.append(RebuiltFile(node, directory.path / filenames.META_PROPERTIES, contents))
        return made

    def _nodes(self) -> dict[int, tuple[Path, ...]]:
        nodes: dict[int, tuple[Path, ...]] = {}
        for directory in self._directories:
            node = self._metas[directory.path].node_id if directory.path in self._metas else None
            if node is not None and directory.replicas:
                nodes[node] = (*nodes.get(node, ()), directory.path)
        return dict(sorted(nodes.items()))

    def _given(self) -> set[int]:
        """Returns the nodes with a given directory, even an empty one."""
        return {meta.node_id for meta in self._metas.values() if meta.node_id is not None}

    def _note_age(self, by_topic: Mapping[str, Mapping[int, Sequence[Replica]]]) -> None:
        """Metadata that is older than the logs was not read to the cluster's end."""
        if self._known is None:
            return
        for name, topic in self._known.topics.items():
            for number, replicas in by_topic.get(name, {}).items():
                entry, newest = topic.partitions.get(number), max(replicas, key=lambda replica: replica.rank)
                if entry is not None and newest.found.last_epoch > entry.leader_epoch:
                    self._whole = False
                    self._notes.append(
                        f"{self._known.source} is older than the logs: {newest.found.directory} has leader epoch"
                        f" {newest.found.last_epoch}, and there it is {entry.leader_epoch}. What changed since is not"
                        " known: give the directories of all controllers and brokers"
                    )
                    return

    def _require_complete(self, by_topic: Mapping[str, Mapping[int, Sequence[Replica]]]) -> None:
        """Refuses for each broker with missing directories that `without` does not name, and for each other one that
        it names."""
        missing: dict[int, Missing] = {}
        if self._known is not None:
            nodes = {
                TopicPartition(name, number): {replica.node for replica in replicas}
                for name, topic in by_topic.items()
                for number, replicas in topic.items()
            }
            missing = {broker.node: broker for broker in missing_directories(self._known, self._directory_ids(), nodes)}
            for node, broker in missing.items():
                self._whole = False  # they may know more
                if node in self._choices.without:
                    self._notes.append(broker.note())
                else:
                    self._errors.append(broker.refusal(self._known))
        if self._known is None or not self._known.topics:
            self._notes.append(
                "no metadata says which brokers and directories the cluster had: make sure that all are given, because"
                " acknowledged records that only another one has are lost"
            )
        for node in self._choices.without:
            if node not in missing:
                self._refuse(f"--without {node}: the metadata names no directory of broker {node} that is missing")

    def _directory_ids(self) -> dict[int, list[str]]:
        """Returns the nodes with a given directory, even an empty one, and the ids of these."""
        ids_of: dict[int, list[str]] = {}
        for meta in self._metas.values():
            if meta.node_id is not None:
                ids = ids_of.setdefault(meta.node_id, [])
                ids += [] if meta.directory_id is None else [format_uuid(meta.directory_id)]
        return ids_of

    # --- topics -----------------------------------------------------------------------------------------------

    def _replicas(self) -> dict[str, dict[int, list[Replica]]]:
        """Returns all replicas by topic and partition, at most one per broker."""
        by_topic: dict[str, dict[int, list[Replica]]] = {}
        for directory in self._directories:
            for replica in directory.replicas:
                meta, key = self._metas[directory.path], replica.partition
                assert meta.node_id is not None
                identity = UNASSIGNED_DIRECTORY if meta.directory_id is None else format_uuid(meta.directory_id)
                others = by_topic.setdefault(key.topic, {}).setdefault(key.partition, [])
                twin = next((other for other in others if other.node == meta.node_id), None)
                if twin is not None:
                    both = f"{twin.found.directory} and {replica.directory}"
                    self._refuse(f"{both}: broker {meta.node_id} has {key} twice, so move one out of its log directory")
                else:
                    others.append(Replica(meta.node_id, identity, replica))
        return by_topic

    def _topic(self, name: str, replicas: Mapping[int, Sequence[Replica]]) -> PlannedTopic | None:
        entry = None if self._known is None else self._known.topics.get(name)
        if not replicas and entry is not None and not self._whole:
            given = self._given()
            if all(node in given for partition in entry.partitions.values() for node in partition.replicas):
                self._notes.append(
                    f"{name} is left out: none of its directories is there, and the metadata could be read only in"
                    " part; the topic may have been deleted"
                )
                return None
        identity = self._topic_id(name, replicas, entry)
        if identity is None:
            return None
        topic_id, is_new = identity
        there = {*replicas, *(entry.partitions if entry is not None else ())}
        numbers = range(max(there, default=-1) + 1)
        if len(numbers) - len(there) > _MAX_MISSING:
            self._refuse(
                f"{name}-{numbers[-1]} would be the last of {len(numbers)} partitions, but only {len(there)} are there:"
                " move its directory out of the log directories if its name is wrong"
            )
            return None
        partitions = []
        for number in numbers:
            partition = TopicPartition(name, number)
            before = None if entry is None else entry.partitions.get(number)
            planned = self._partition(partition, replicas.get(number, ()), before) or self._missing(partition, replicas)
            if planned is not None:
                partitions.append(planned)
            for replica in replicas.get(number, ()):
                if replica.found.topic_id is None:
                    contents = format_partition_metadata(PartitionMetadata(topic_id))
                    self._files.append(
                        RebuiltFile(replica.node, replica.found.directory / filenames.PARTITION_METADATA, contents)
                    )
        if entry is None and self._known is not None and self._whole:
            self._notes.append(
                f"{name} is not in the metadata, which was read to its end: if it had been deleted, delete it again"
            )
        values, is_known = self._configuration(name, entry)
        return PlannedTopic(name, format_uuid(topic_id), is_new, values, is_known, tuple(partitions))

    def _topic_id(
        self, name: str, partitions: Mapping[int, Sequence[Replica]], entry: KnownTopic | None
    ) -> tuple[UUID, bool] | None:
        """Returns (id, whether it is new); None, after noting an obstacle, if the replicas contradict each other."""
        ids: dict[UUID, str] = {}
        if entry is not None and self._known is not None:
            ids[parse_uuid(entry.topic_id)] = f"the metadata in {self._known.source}"
        for replicas in partitions.values():
            for replica in replicas:
                if replica.found.topic_id is not None:
                    ids.setdefault(replica.found.topic_id, str(replica.found.directory))
        if len(ids) > 1:
            places = ", ".join(f"{format_uuid(identity)} in {place}" for identity, place in ids.items())
            self._refuse(
                f"{name} has several topic ids ({places}): it was deleted and made anew; move the directories of the"
                " obsolete topic out of the log directories"
            )
            return None
        return (next(iter(ids)), False) if ids else (self._new_id(), True)

    def _configuration(self, name: str, entry: KnownTopic | None) -> tuple[Mapping[str, str], bool]:
        if entry is not None and self._known is not None:
            return self._known.configuration(name), True
        own = KAFKAS_OWN_TOPICS.get(name)
        return (own, True) if own is not None else (_KEPT_FOR_EVER, False)

    # --- partitions -------------------------------------------------------------------------------------------

    def _partition(
        self, partition: TopicPartition, replicas: Sequence[Replica], entry: KnownPartition | None
    ) -> PlannedPartition | None:
        """Plans a partition with data in the given directories, or on brokers without a given directory; else None."""
        if entry is not None and self._is_elsewhere(entry, replicas):
            self._notes.append(
                f"{partition}: no replica that was in sync is in the given directories: it is offline until one of the"
                f" brokers {entry.in_sync} starts on its own (kafka-leader-election --election-type unclean gives up"
                " what they have)"
            )
            leader = entry.leader if entry.leader in entry.in_sync else entry.in_sync[0]
            return self._planned(partition, replicas, entry, leader, tuple(entry.isr) or (leader,))
        if not replicas:
            return None
        metadata = Metadata.of(entry)
        candidates = [replica.found.end.candidate(replica.node) for replica in replicas]

        def read(place: int) -> Candidate:
            return self._read_whole(replicas[place].found.directory, partition, replicas[place].node)

        (first, synced), *_ = ranked_by_reading(candidates, read, metadata, partition.partition)
        best, log_end = replicas[first], candidates[first].lineage.end
        if metadata is not None and metadata.in_sync and not synced and is_current(metadata, candidates):
            self._notes.append(given_up(partition, best, metadata, replicas))
        self._notes += cut_off(partition, best, log_end, replicas)
        extra = [replica.node for replica in replicas if entry is not None and replica.node not in entry.replicas]
        if extra:
            brokers = f"broker{'s' if len(extra) > 1 else ''} {', '.join(map(str, extra))}"
            self._notes.append(f"{partition}: the metadata knows no replica on {brokers}; it is taken as one")
        return self._planned(partition, replicas, entry, best.node, (best.node,), log_end)

    def _is_elsewhere(self, entry: KnownPartition, replicas: Sequence[Replica]) -> bool:
        """True if no replica in sync was found, and one is on a broker without a given directory."""
        in_sync, given = entry.in_sync, self._given()
        return not any(replica.node in in_sync for replica in replicas) and any(node not in given for node in in_sync)

    def _planned(
        self,
        partition: TopicPartition,
        given: Sequence[Replica],
        entry: KnownPartition | None,
        leader: int,
        isr: tuple[int, ...],
        log_end: int | None = None,
    ) -> PlannedPartition:
        here = {replica.node: replica for replica in given}
        before = [] if entry is None else entry.replicas
        nodes = list(dict.fromkeys([*(before or [leader]), *sorted(here)]))
        epochs = [replica.found.last_epoch for replica in given] + ([] if entry is None else [entry.leader_epoch])
        ids = {} if entry is None else dict(zip(entry.replicas, entry.directories, strict=False))
        ids |= {node: replica.directory_id for node, replica in here.items()}
        directories = [ids.get(node, UNASSIGNED_DIRECTORY) for node in nodes]
        return PlannedPartition(
            partition.partition,
            tuple(nodes),
            isr,
            leader,
            max(epochs, default=-1) + 1,
            tuple(directories),
            "directories" if given else "metadata",
            here[leader].found.log_end if leader in here and log_end is None else log_end,
        )

    def _missing(self, partition: TopicPartition, siblings: Mapping[int, Sequence[Replica]]) -> PlannedPartition | None:
        if not self._choices.allow_missing:
            self._refuse(
                f"{partition} is in none of the directories: give those of the broker that has it, or say"
                " --allow-missing to begin it empty"
            )
            return None
        sibling = siblings[min(siblings)] if siblings else ()  # a new partition gets its replicas' brokers
        nodes = sorted(replica.node for replica in sibling) or sorted(self._nodes())[:1]
        if not nodes:
            self._refuse(f"{partition} cannot begin empty: no broker's directory was given")
            return None
        self._notes.append(f"{partition} is in none of the directories: it begins empty, and its records are lost")
        unassigned = tuple(UNASSIGNED_DIRECTORY for _ in nodes)
        return PlannedPartition(partition.partition, tuple(nodes), (nodes[0],), nodes[0], 0, unassigned, "empty", None)

    # --- everything else ----------------------------------------------------------------------------------------

    def _features(self) -> dict[str, int]:
        for source in (self._known, self._formatted):
            levels = {} if source is None else source.feature_levels
            if METADATA_VERSION in levels:
                return _version_first({**levels, **self._choices.features})
        needs, chosen = dict(self._shown()), self._choices.features
        least = needs.pop(METADATA_VERSION, _DEFAULT_VERSION)
        needs = {name: level for name, level in needs.items() if chosen.get(name, level)}  # level 0 turns it off
        least = least if needs else _DEFAULT_VERSION
        version = chosen.get(METADATA_VERSION, least)
        needed = ", ".join(f"{name}={level}" for name, level in needs.items())
        if METADATA_VERSION not in chosen:
            why = (
                f", and with {needed}, which its groups and transactions had"
                if needs
                else ", which Kafka 3.7 and later run"
            )
            self._notes.append(
                f"the cluster's features are not known: it begins with {METADATA_VERSION}={version}{why}; raise it by"
                " kafka-features upgrade --release-version VERSION"
            )
        elif needs and version < least:
            self._notes.append(
                f"the cluster had {needed}, which begin with {METADATA_VERSION}={least}: groups of these kinds do not"
                " work, and producers begin transactions as older ones do"
            )
            needs = {}
        return _version_first({**needs, **chosen, METADATA_VERSION: version})

    def _records(self) -> Iterator[FramedRecord]:
        """Yields all records but features, topics, their configuration and producer ids, written separately."""
        source = self._known if self._known is not None and self._known.records else self._formatted
        for key, record in ({} if source is None else source.records).items():
            if record.name not in _REWRITTEN and key[:2] != ("CONFIG_RECORD", TOPIC_RESOURCE):
                yield record

    def _next_producer_id(self) -> int:
        stated = 0 if self._known is None else self._known.next_producer_id
        last = max((directory.last_producer_id for directory in self._directories), default=-1)
        above = (last // _PRODUCER_BLOCK + 1) * _PRODUCER_BLOCK
        return max(stated, above if self._whole and stated else above + _SPARE_PRODUCER_IDS)

    def _advise(self, topics: Sequence[PlannedTopic]) -> None:
        unknown = [topic.name for topic in topics if not topic.configuration_known]
        if unknown:
            self._notes.append(
                f"the configuration of {', '.join(unknown)} is not known: retention.ms=-1 keeps all records until you"
                " say otherwise (kafka-configs --alter --entity-type topics --entity-name TOPIC --add-config …)"
            )
        compacted = {name for directory in self._directories for name in directory.compacted}
        for name in sorted(compacted & set(unknown)):
            self._notes.append(f"{name} was compacted: set its cleanup.policy to compact again")
        for topic in topics:
            if topic.id_is_new:
                self._notes.append(
                    f"{topic.name} gets a new topic id, {topic.topic_id}: none of its directories had one"
                )


def _version_first(levels: dict[str, int]) -> dict[str, int]:
    """Returns the levels with metadata.version before the others, without features that are off (level 0)."""
    others = {name: level for name, level in sorted(levels.items()) if level and name != METADATA_VERSION}
    return {METADATA_VERSION: levels[METADATA_VERSION], **others}
