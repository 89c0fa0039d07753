"""Plans a transplant: chooses partitions, reads every source, inspects every target, and changes nothing.

Of Kafka's own topics, only `__consumer_offsets` is taken: it names groups and topics, which the new cluster can use.
The others name things that the new cluster has under other names or not at all (`internal_topics`).

A transaction that is open at the end of a source cannot continue: its producer belongs to the old cluster. The plan
ends it as its coordinator had decided (`__transaction_state` of the sources' log directories). A transaction in
PrepareCommit was acknowledged as committed, and only its marker is missing: it gets COMMIT. Every other one gets ABORT,
as the coordinator would have ended it. Without a coordinator's log it is ABORT, too, and a note says so.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from seglog.clock import Clock
from seglog.configuration.keys import LogConfig
from seglog.configuration.settings import identity_of
from seglog.errors import RefusedError
from seglog.model import TopicPartition
from seglog.progress import BytesRead
from seglog.scan.listing import PartitionDirectory, Target, TargetKind, list_log_directory, list_partition
from seglog.storage import links
from seglog.storage.filesystem import FileSystem
from seglog.units import count_text
from seglog.verification.transaction_coordinators import Coordinated
from seglog.verification.transactions import Transaction
from seglog_rescue.groups.coordinator_replay import OFFSETS_TOPIC
from seglog_rescue.log_ends import LogEnds
from seglog_rescue.rebuild.known import KnownMetadata, furthest, read_known
from seglog_rescue.replicas.collecting import WholeReplicas
from seglog_rescue.replicas.rule import Candidate, Metadata, ranked_by_reading
from seglog_rescue.transplant.counts import SourceCounts
from seglog_rescue.transplant.internal_topics import NOT_TAKEN
from seglog_rescue.transplant.plan import Ending, PartitionPlan
from seglog_rescue.transplant.source import SourceCheckpoints, SourceLog, read_source
from seglog_rescue.transplant.staging import is_there
from seglog_rescue.transplant.target import TargetDirectory, TargetPartition


@dataclass(frozen=True, slots=True)
class PartitionToTake:
    """A partition to take over: its directory, its name there, and its new name."""

    directory: Path
    partition: TopicPartition
    target: TopicPartition


def choose(
    fs: FileSystem, clock: Clock, sources: Sequence[Target], topics: Mapping[str, str], into: Sequence[Path]
) -> tuple[list[PartitionToTake], list[tuple[str, str]]]:
    """Returns the partitions by their new names, and (path, reason) for each directory left out.

    `topics` maps old names to new ones; if it is not empty, no other topic is taken. Raises RefusedError for a source
    that cannot be meant.
    """
    chosen: list[PartitionToTake] = []
    left_out: list[tuple[str, str]] = []
    named: set[Path] = set()
    taken: set[Path] = set()
    for source in sources:
        path = links.resolve(source.path)
        if source.kind is TargetKind.FILE:
            raise RefusedError(f"{source.path} is a file; name the partition directory, or the log directory")
        if path in into or path.parent in into:
            raise RefusedError(f"{source.path} lies in the target log directory")
        whole = source.kind is TargetKind.LOG_DIRECTORY
        for place in list_log_directory(fs, path).partitions if whole else [_named(path)]:
            reason = _reason_against(place, topics, whole)
            if reason:
                left_out.append((str(place.path), reason))
                continue
            if place.path in taken:
                continue  # a source that was named twice
            taken.add(place.path)
            old = place.topic_partition
            new = TopicPartition(topics.get(old.topic, old.topic), old.partition)
            chosen.append(PartitionToTake(place.path, old, new))
            named |= set() if whole else {place.path}
    chosen = _chosen_replicas(fs, clock, chosen, named, left_out)
    _require_each_once(chosen)
    for topic in topics:
        if not any(source.partition.topic == topic for source in chosen):
            raise RefusedError(f"--topic {topic}: no source has a partition of this topic")
    return sorted(chosen, key=lambda source: source.target), left_out


def _named(path: Path) -> PartitionDirectory:
    found = PartitionDirectory.at(path)
    if found is None:
        raise RefusedError(
            f"{path}: its name does not say which topic and partition it is; rename the copy to TOPIC-NUMBER"
        )
    return found


def _reason_against(place: PartitionDirectory, topics: Mapping[str, str], whole: bool) -> str:
    """Returns why a partition is not taken, "" if it is. Raises RefusedError if the user named it directly."""
    topic = place.topic_partition.topic
    if topic in NOT_TAKEN:
        if not whole:
            raise RefusedError(f"{place.path} is not transplanted: {NOT_TAKEN[topic]}")
        return NOT_TAKEN[topic]
    if topics and topic not in topics:
        return "--topic does not name it"
    if whole and place.state.value:
        return f"a broker has set it aside ({place.state.value}); name the directory itself to take it"
    return ""


def _chosen_replicas(
    fs: FileSystem,
    clock: Clock,
    chosen: Sequence[PartitionToTake],
    named: Container[Path],
    left_out: list[tuple[str, str]],
) -> list[PartitionToTake]:
    """Takes of several replicas in log directories of a cluster the one that the rule puts first (`replicas.rule`); the
    others are left out. What is `named` itself is always taken."""
    by_name: dict[tuple[TopicPartition, TopicPartition], list[PartitionToTake]] = {}
    for replica in chosen:
        by_name.setdefault((replica.partition, replica.target), []).append(replica)
    surroundings, taken = _Surroundings(fs, clock, [replica.directory.parent for replica in chosen]), []
    for (partition, _), replicas in by_name.items():
        if len(replicas) == 1 or any(replica.directory in named for replica in replicas):
            taken += replicas
            continue
        winner, reasons = surroundings.best_of(partition, [replica.directory for replica in replicas])
        taken.append(replicas[winner])
        left_out += [
            (str(replicas[place].directory), f"{replicas[winner].directory} is taken, {why}") for place, why in reasons
        ]
    return taken


class _Surroundings:
    """What the log directories of the sources tell of their replicas; the metadata is read when it is asked for."""

    def __init__(self, fs: FileSystem, clock: Clock, log_directories: Sequence[Path]) -> None:
        self._fs, self._paths = fs, list(dict.fromkeys(log_directories))
        self._identities = {path: identity_of(fs, path) for path in self._paths}
        self._ends, self._whole = LogEnds(fs), WholeReplicas(fs, clock)

    def best_of(self, partition: TopicPartition, directories: Sequence[Path]) -> tuple[int, list[tuple[int, str]]]:
        """Returns the place of the replica that the rule puts first, and why it goes before each of the others."""
        nodes = [self._node(directory) for directory in directories]
        candidates = [
            self._ends.of(list_partition(self._fs, directory)).candidate(node)
            for directory, node in zip(directories, nodes, strict=True)
        ]

        def read(place: int) -> Candidate:
            return self._whole.candidate(directories[place], partition, nodes[place])

        (first, synced), *others = ranked_by_reading(candidates, read, self.metadata_of(partition, directories[0]))
        best, reasons = candidates[first], []
        for place, also in others:
            other = candidates[place]
            why = "which was in sync" if synced and not also else "which is newer (by leader epoch, then by length)"
            if other.lineage == best.lineage:
                why = "which is less damaged" if other.holes and other.holes != best.holes else "which ends alike"
            reasons.append((place, why))
        return first, reasons

    def _node(self, directory: Path) -> int:
        node = self._identities[directory.parent].get("node.id", "")
        return int(node) if node.isascii() and node.isdigit() else -1

    def metadata_of(self, partition: TopicPartition, directory: Path) -> Metadata | None:
        """Returns what the newest metadata of a replica's cluster says of its partition, None if there is none."""
        cluster = self._identities[directory.parent].get("cluster.id")
        near = [image for path, image in self._images if self._identities[path].get("cluster.id") == cluster]
        newest = furthest(near)
        topic = None if newest is None else newest.topics.get(partition.topic)
        return Metadata.of(None if topic is None else topic.partitions.get(partition.partition))

    @cached_property
    def _images(self) -> list[tuple[Path, KnownMetadata]]:
        images = ((path, read_known(self._fs, path)) for path in self._paths)
        return [(path, image) for path, image in images if image is not None]


def _require_each_once(chosen: Sequence[PartitionToTake]) -> None:
    places: dict[TopicPartition, Path] = {}
    for source in chosen:
        other = places.setdefault(source.target, source.directory)
        if other != source.directory:
            raise RefusedError(
                f"{other} and {source.directory} would both become {source.target}; name the one to take (seglog diff"
                " compares them)"
            )


# --- the plan ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Circumstances:
    """The inputs that all partitions of a plan share. `coordinators` is None without a `__transaction_state`; `counts`
    knows each log directory that a source lies in."""

    target: TargetDirectory
    coordinators: Mapping[int, Coordinated] | None
    counts: SourceCounts
    now_ms: int
    every_replica: bool = False


class TransplantPlanner:
    """Plans partitions one by one."""

    def __init__(self, fs: FileSystem, common: Circumstances, progress: BytesRead) -> None:
        self._fs, self._common, self._progress = fs, common, progress
        self._checkpoints = SourceCheckpoints(fs)

    def plan(self, wanted: PartitionToTake, config: LogConfig) -> PartitionPlan:
        """Plans one partition. Raises RefusedError or CorruptionError if a transplant would lose data."""
        target = self._common.target.partition(wanted.target, every_replica=self._common.every_replica)
        notes = list(self._compare_counts(wanted, target))
        source = read_source(self._fs, wanted.directory, wanted.partition, self._checkpoints, self._progress)
        endings = tuple(self._endings(source))
        plan = PartitionPlan(source, target, endings)
        if not target.is_empty:
            if not is_there(self._fs, plan):
                raise RefusedError(f"{target.directory} holds other data, which would be lost: {_remedy(target)}")
            return replace(plan, done=True)
        notes += self._warnings(plan, config)
        done = source.is_empty and source.log_end == 0
        return replace(plan, done=done, notes=tuple(notes))

    def _endings(self, source: SourceLog) -> Iterator[Ending]:
        for i, transaction in enumerate(source.open):
            commit, why, certain = self._decided(transaction, source.partition)
            epoch = max(0, source.coordinator_epochs.get(transaction.producer_id, 0))
            yield Ending(transaction, source.log_end + i, commit, epoch, why, certain)

    def _decided(self, transaction: Transaction, partition: TopicPartition) -> tuple[bool, str, bool]:
        """Returns (committed, reason, whether the coordinator's log says so)."""
        coordinators = self._common.coordinators
        if coordinators is None:
            return False, "there is no __transaction_state to tell whether it was committed", False
        producer = coordinators.get(transaction.producer_id)
        if producer is None:
            return False, "__transaction_state does not know its producer", False
        place = (partition.topic, partition.partition)
        if producer.had_committed(place, transaction.producer_epoch, transaction.previous_end):
            return True, f"its coordinator had committed it ({producer.describe()})", True
        return False, f"its coordinator had not committed it ({producer.describe()})", True

    # --- checks and warnings for the operator -------------------------------------------------------------

    def _compare_counts(self, wanted: PartitionToTake, target: TargetPartition) -> Iterator[str]:
        """Compares the numbers of partitions, by which keys and groups find theirs; yields a note if unsure."""
        around, topic = wanted.directory.parent, wanted.partition.topic
        count = self._common.counts.stated(topic, around)
        least = max(self._common.counts.least(topic, around), wanted.partition.partition + 1)
        if target.count is None or (count or least) == target.count:
            return
        new = f"{wanted.target.topic} has {count_text(target.count, 'partition')} in the new cluster"
        if count or topic == OFFSETS_TOPIC or least > target.count or self._common.target.metadata is None:
            raise RefusedError(
                f"{wanted.directory}: {topic} had {count or f'at least {least}'} partitions, and {new}: keys and"
                " groups would be looked for in other partitions. Make the topic anew with the same number"
            )
        yield f"{new}; how many {topic} had is not known, but at least {least}"

    def _warnings(self, plan: PartitionPlan, config: LogConfig) -> Iterator[str]:
        source, name = plan.source, plan.partition
        for ending in plan.endings:
            if not ending.certain:
                yield (
                    f"{name}: the transaction of producer {ending.transaction.producer_id} is ended by ABORT, because"
                    f" {ending.why}: give the log directories with __transaction_state by --transactions-of"
                )
        if source.torn_bytes:
            yield (
                f"{name}: {count_text(source.torn_bytes, 'byte')} at the end are not a whole batch and"
                f" stay behind ({source.torn})"
            )
        if source.committed_below > source.log_end:
            yield (
                f"{name}: the log ends at offset {source.log_end}, and offsets below {source.committed_below} had been"
                " acknowledged: another replica may have them"
            )
        if config.delete and config.retention_ms >= 0:
            limit = self._common.now_ms - config.retention_ms
            times = (
                max(segment.largest_timestamp, 0) or segment.modified_ms
                for segment in source.segments
                if segment.valid_bytes
            )
            expired = sum(time < limit for time in times)
            if expired:
                yield (
                    f"{name}: retention.ms={config.retention_ms} of the new cluster deletes {expired} of"
                    f" {count_text(len(source.segments), 'segment')} soon after the start: set it to -1 first"
                    f" (kafka-configs --alter --add-config retention.ms=-1)"
                )


def _remedy(target: TargetPartition) -> str:
    """Returns the advice for a target partition with data; the topic of committed offsets cannot be renamed."""
    if target.partition.topic != OFFSETS_TOPIC:
        return "transplant into an empty partition (make a topic of another name, and say --topic OLD=NEW)"
    return (
        "groups have joined or committed in the new cluster. Take the other topics alone (--topic, repeatable), and"
        " give groups their offsets there: kafka-consumer-groups --reset-offsets --from-file, with what seglog groups"
        " --format reset-csv prints of the source"
    )
