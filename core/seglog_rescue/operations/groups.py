"""Reads the groups on a dead cluster's disks: their committed offsets, members and lag (`seglog groups`).

1. Find the partitions of `__consumer_offsets` and `__share_group_state` in every directory. Among several replicas of
   one, the most advanced counts.
2. Replay each (`seglog_rescue.groups.coordinator_replay`), to its end or to a given time.
3. A group belongs in one partition, by Kafka's hash of its name. Commits in another partition are shown and noted;
   those in the right one win.
4. Compute lag against the end of the longest log of the partition that is present.

Damage and unreadable data become problems in the report, and the rest goes on.
"""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from pathlib import Path

from seglog.configuration.cluster_metadata import ClusterMetadata, read_cluster_metadata
from seglog.errors import NotALogError, SeglogError
from seglog.format import filenames
from seglog.format.wire import WireError
from seglog.look.inspect.overview import PartitionOverview, overview
from seglog.model import TopicPartition
from seglog.scan.listing import PartitionDirectory, Target, TargetKind, list_log_directory, log_directory_of
from seglog.scan.topic_ids import topic_id_in
from seglog.scan.view import PartitionView
from seglog.storage import links
from seglog.storage.filesystem import FileSystem
from seglog.units import count_text
from seglog_rescue.groups.committed_offsets import (
    UNKNOWN,
    OffsetCommit,
    ShareBatch,
    ShareState,
    offset_commits,
    share_states,
)
from seglog_rescue.groups.coordinator_replay import (
    OFFSETS_TOPIC,
    SHARE_TOPIC,
    CoordinatorReplay,
    ShareReplay,
    pending_values,
)
from seglog_rescue.groups.share_batches import batches_of
from seglog_rescue.groups.states import (
    CLASSIC,
    SHARE,
    STREAMS,
    GroupState,
    Member,
    Topology,
    group_states,
)
from seglog_rescue.groups.users import streams_applications, user_of

DEFAULT_PARTITIONS = 50  # offsets.topic.num.partitions


@dataclass(frozen=True, slots=True)
class GroupPartition:
    """A group's progress in a partition. Times are epoch milliseconds; unknown values are None. `batches` are a share
    group's: what is acknowledged, or waits to be delivered again, from its start offset on.

    `offset` is the committed offset, or a share group's start offset; None if a member is assigned the partition but
    has committed nothing. `pending_offset` is what an open transaction would commit. `misplaced` is True if the commit
    is in a partition of `__consumer_offsets` where Kafka does not look for this group.
    """

    partition: TopicPartition
    offset: int | None
    log_end_offset: int | None
    lag: int | None
    leader_epoch: int | None = None
    metadata: str = ""
    committed_ms: int | None = None
    expires_ms: int | None = None
    pending_offset: int | None = None
    member: Member | None = None
    misplaced: bool = False
    batches: tuple[ShareBatch, ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """A group. `kind` is classic, consumer, share or streams; `state` is Kafka's word for it. `used_by` is what it
    belongs to, if anything tells (`groups.users`).

    `settings` are its own in the cluster's newest metadata, by key, whatever time was asked for (Kafka: GroupConfig).
    `assignment_epoch` is the epoch that its members should reach. It is None for a classic group, whose `epoch` is its
    generation.
    """

    name: str
    kind: str
    state: str
    epoch: int
    members: tuple[Member, ...]
    partitions: tuple[GroupPartition, ...]
    assignment_epoch: int | None = None
    used_by: str | None = None
    topology: Topology | None = None
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def lag(self) -> int | None:
        """The sum over all partitions with a known lag; None if there is none."""
        lags = [partition.lag for partition in self.partitions if partition.lag is not None]
        return sum(lags) if lags else None


@dataclass(slots=True)
class GroupsReport:
    """Groups by name. `problems` are sentences about data that may be missing, `notes` about oddities.

    `absent` are partitions with commits that the cluster's metadata does not have, `unseen` those of topics of which
    neither metadata nor a directory tells.
    """

    groups: list[Group] = field(default_factory=list)
    absent: frozenset[TopicPartition] = frozenset()
    unseen: frozenset[TopicPartition] = frozenset()
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_groups(
    fs: FileSystem,
    targets: Sequence[Target],
    *,
    at_ms: int | None = None,
    wanted: Callable[[str], bool] = lambda _name: True,
) -> GroupsReport:
    """Reads the groups whose names are `wanted`, as they are now or were at a time (epoch milliseconds).

    Targets are log directories, or partitions of the groups' topics. Raises NotALogError if no such partition is there.
    """
    return _GroupsReading(fs, targets, at_ms).report(wanted)


def coordinator_partition(group: str, partitions: int) -> int:
    """Returns a group's partition in `__consumer_offsets` (Kafka: Utils.abs(groupId.hashCode()) % partitions)."""
    units = group.encode("utf-16-be", "surrogatepass")
    code = 0
    for i in range(0, len(units), 2):
        code = (31 * code + int.from_bytes(units[i : i + 2], "big")) & 0xFFFFFFFF
    signed = code - (1 << 32) if code >= 1 << 31 else code
    return (0 if signed == -(1 << 31) else abs(signed)) % partitions


def resettable(groups: Sequence[Group], absent: Container[TopicPartition] = ()) -> list[Group]:
    """Returns the groups that have lines in `reset_csv`; Kafka's tool needs a --group for each of them.

    A share group has some if it is the only group: its own tool takes one at a time.
    """
    return [
        group
        for group in groups
        if (group.kind != SHARE or len(groups) == 1)
        and any(row.offset is not None and row.partition not in absent for row in group.partitions)
    ]


def reset_csv(groups: Sequence[Group], absent: Container[TopicPartition] = ()) -> str:
    """Returns the lines that `kafka-consumer-groups --reset-offsets --from-file` takes (Kafka: CsvUtils), or for a
    share group that is the only one `kafka-share-groups` of 4.4: there the offset is where it starts.

    A line is topic,partition,offset for one group, with the group before them for several. Leaves other share groups
    out, and the partitions that are `absent`: for one of those the tool resets nothing for any group.
    """
    taken = resettable(groups, absent)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for group in taken:
        for committed in group.partitions:
            if committed.offset is not None and committed.partition not in absent:
                row = (committed.partition.topic, committed.partition.partition, committed.offset)
                writer.writerow(row if len(taken) == 1 else (group.name, *row))
    return out.getvalue()


@dataclass(slots=True)
class _GroupFacts:
    """What the replays tell of one group. Each commit comes with True if it is misplaced."""

    state: GroupState | None = None
    commits: dict[TopicPartition, tuple[OffsetCommit, bool]] = field(default_factory=dict)
    pending: dict[TopicPartition, int] = field(default_factory=dict)
    shares: dict[TopicPartition, ShareState] = field(default_factory=dict)


class _GroupsReading:
    """One reading of all the directories."""

    def __init__(self, fs: FileSystem, targets: Sequence[Target], at_ms: int | None) -> None:
        self._fs, self._targets, self._at_ms = fs, targets, at_ms
        self._directories = list(dict.fromkeys(log_directory_of(target) for target in targets))
        self._found = GroupsReport()
        self._groups: defaultdict[str, _GroupFacts] = defaultdict(_GroupFacts)
        self._replays: dict[tuple[str, int], tuple[Path, CoordinatorReplay]] = {}
        self._ends: dict[TopicPartition, int | None] = {}

    def report(self, wanted: Callable[[str], bool]) -> GroupsReport:
        """Reads everything."""
        for key, paths in sorted(self._coordinators().items()):
            self._replay(key, paths)
        for (topic, number), (path, replay) in self._replays.items():
            if isinstance(replay, ShareReplay):
                self._take_shares(path, replay)
            elif topic == OFFSETS_TOPIC:
                self._take_groups(number, path, replay)
        for name in sorted(filter(wanted, self._groups)):
            self._found.groups.append(self._group(name, self._groups[name]))
        committed = {
            row.partition for group in self._found.groups for row in group.partitions if row.offset is not None
        }
        self._found.absent, self._found.unseen = self._absent(committed)
        return self._found

    def _absent(
        self, committed: Iterable[TopicPartition]
    ) -> tuple[frozenset[TopicPartition], frozenset[TopicPartition]]:
        """Returns the partitions that do not exist by the newest metadata; and, without metadata, those of topics of
        which there is no directory: another broker may have them."""
        images = [image for image in self._metadata if image.knows_topics]
        if not images:
            topics = {key.topic for key in self._places}
            return frozenset(), frozenset(key for key in committed if key.topic not in topics)
        image = max(images, key=attrgetter("end_offset"))
        return frozenset(
            key for key in committed if image.assignment(image.topic_ids.get(key.topic, ""), key.partition) is None
        ), frozenset()

    def _coordinators(self) -> dict[tuple[str, int], list[Path]]:
        """Returns the replicas of each partition of the groups' topics."""
        replicas: dict[tuple[str, int], list[Path]] = {}
        for target in self._targets:
            here: list[tuple[TopicPartition, Path]] = []
            if target.kind is TargetKind.LOG_DIRECTORY:
                here = [
                    (partition.topic_partition, partition.path)
                    for partition in list_log_directory(self._fs, target.path).live
                ]
            elif target.kind is TargetKind.PARTITION:
                parsed = filenames.parse_partition_directory(links.name_of(target.path))
                here = [] if parsed is None else [(parsed.topic_partition, target.path)]
            chosen = [(key, path) for key, path in here if key.topic in (OFFSETS_TOPIC, SHARE_TOPIC)]
            if not chosen and target.kind is not TargetKind.LOG_DIRECTORY:
                raise NotALogError(target.path, f"not a partition of {OFFSETS_TOPIC} or {SHARE_TOPIC}")
            for key, path in chosen:
                paths = replicas.setdefault((key.topic, key.partition), [])
                if links.resolve(path) not in map(links.resolve, paths):
                    paths.append(path)
        if not replicas:
            others = ", ".join(str(target.path) for target in self._targets[1:])
            also = f", nor in {others}" if others else ""
            raise NotALogError(self._targets[0].path, f"no partition of {OFFSETS_TOPIC} is there{also}")
        return replicas

    def _replay(self, key: tuple[str, int], paths: Sequence[Path]) -> None:
        best: tuple[Path, CoordinatorReplay] | None = None
        for path in paths:
            replay = ShareReplay(self._at_ms) if key[0] == SHARE_TOPIC else CoordinatorReplay(self._at_ms)
            try:
                with PartitionView(self._fs, path) as view:
                    replay.take_view(view)
            except (OSError, NotALogError) as error:
                self._problem(path, str(error))
                continue
            rank = (replay.end_offset, -replay.damaged)
            if best is None or rank > (best[1].end_offset, -best[1].damaged):
                best = path, replay
        if best is None:
            return
        path, replay = best
        self._replays[key] = best
        for sentence in replay.damage:
            self._problem(path, sentence)
        if replay.damaged > len(replay.damage):
            self._problem(path, f"{replay.damaged - len(replay.damage)} more places are damaged")
        if self._at_ms is not None and replay.missing and key[0] == OFFSETS_TOPIC:
            self._found.notes.append(
                f"{path}: compaction has removed {count_text(replay.missing, 'record')} from before"
                " that time: what had been"
                " committed by then may be missing where a later commit took its place"
            )

    def _problem(self, path: Path, sentence: str) -> None:
        self._found.problems.append(sentence if str(path) in sentence else f"{path}: {sentence}")

    def _take_groups(self, number: int, path: Path, replay: CoordinatorReplay) -> None:
        sentences: list[str] = []
        for name, state in group_states(replay.values.values(), self._topics.get, sentences).items():
            facts = self._groups[name]
            if facts.state is None or not self._is_misplaced(name, number):
                facts.state = state
        strays: dict[str, int] = {}
        for commit in self._offset_commits[number]:
            if not isinstance(commit, OffsetCommit):
                sentences.append(f"a committed offset cannot be decoded: {commit}")
                continue
            misplaced = self._is_misplaced(commit.group, number)
            strays[commit.group] = strays.get(commit.group, 0) + misplaced
            commits = self._groups[commit.group].commits
            earlier = commits.get(commit.partition)
            if earlier is None or (misplaced, -commit.committed_ms) < (earlier[1], -earlier[0].committed_ms):
                commits[commit.partition] = commit, misplaced
        for commit in offset_commits(pending_values(replay)):
            if isinstance(commit, OffsetCommit):
                self._groups[commit.group].pending[commit.partition] = commit.offset
            else:
                sentences.append(f"an offset of an open transaction cannot be decoded: {commit}")
        for name, count in strays.items():
            if count and self._partition_count:
                right = coordinator_partition(name, self._partition_count)
                self._found.notes.append(
                    f"{path}: {count} commits of group {name}, for which Kafka looks in {OFFSETS_TOPIC}-{right}"
                )
        for sentence in sentences:
            self._problem(path, sentence)

    def _take_shares(self, path: Path, replay: ShareReplay) -> None:
        for state in share_states(replay):
            if not isinstance(state, ShareState):
                self._problem(path, f"the state of a share group cannot be decoded: {state}")
                continue
            topic = self._topics.get(state.topic_id) or state.topic_id
            self._groups[state.group].shares[TopicPartition(topic, state.partition)] = state

    def _is_misplaced(self, group: str, number: int) -> bool:
        count = self._partition_count
        return count is not None and coordinator_partition(group, count) != number

    @cached_property
    def _offset_commits(self) -> dict[int, list[OffsetCommit | WireError]]:
        """The decoded commits in each partition of `__consumer_offsets`."""
        return {
            number: list(offset_commits(replay.values.values()))
            for (topic, number), (_, replay) in self._replays.items()
            if topic == OFFSETS_TOPIC
        }

    @cached_property
    def _partition_count(self) -> int | None:
        """The number of partitions of `__consumer_offsets`: from the metadata, or else from the places of most groups;
        None if neither tells."""
        for metadata in self._metadata:
            topic_id = metadata.topic_ids.get(OFFSETS_TOPIC)
            if topic_id is not None and metadata.partitions.get(topic_id):
                return len(metadata.partitions[topic_id])
        places = {
            (commit.group, number)
            for number, commits in self._offset_commits.items()
            for commit in commits
            if isinstance(commit, OffsetCommit)
        }
        largest = max(self._offset_commits, default=0)
        for count in (DEFAULT_PARTITIONS, largest + 1):
            right = sum(coordinator_partition(group, count) == number for group, number in places)
            if largest < count and 2 * right > len(places):
                return count
        return None

    @cached_property
    def _metadata(self) -> list[ClusterMetadata]:
        images = (read_cluster_metadata(self._fs, path, assignments=True) for path in self._directories)
        return [image for image in images if image is not None]

    @cached_property
    def _topics(self) -> dict[str, str]:
        """Topic names by topic id, from the metadata and from the partition directories."""
        names = {topic_id: topic for image in self._metadata for topic, topic_id in image.topic_ids.items()}
        for partition in self._partitions:
            path = partition.path / filenames.PARTITION_METADATA
            try:
                names.setdefault(topic_id_in(self._fs, path), partition.topic_partition.topic)
            except FileNotFoundError:
                continue
            except (OSError, SeglogError) as error:
                self._problem(path, str(error))
        return names

    @cached_property
    def _settings(self) -> dict[str, dict[str, str]]:
        """The groups' own settings, by group and key."""
        newest = max(self._metadata, key=attrgetter("end_offset"), default=None)
        groups = {} if newest is None else newest.groups
        return {name: {key: stored.value for key, stored in sorted(groups[name].items())} for name in groups}

    @cached_property
    def _partitions(self) -> list[PartitionDirectory]:
        """The partitions in all the log directories."""
        return [
            partition for directory in self._directories for partition in list_log_directory(self._fs, directory).live
        ]

    @cached_property
    def _places(self) -> dict[TopicPartition, list[Path]]:
        directories: dict[TopicPartition, list[Path]] = {}
        for partition in self._partitions:
            directories.setdefault(partition.topic_partition, []).append(partition.path)
        return directories

    def _log_end(self, partition: TopicPartition) -> int | None:
        if partition not in self._ends:
            ends = [end for path in self._places.get(partition, ()) for end in self._end_of(path)]
            self._ends[partition] = max(ends, default=None)
        return self._ends[partition]

    def _end_of(self, path: Path) -> Iterator[int]:
        for row in overview(self._fs, [Target(path, TargetKind.PARTITION)], log_starts=False):
            if not isinstance(row, PartitionOverview):
                self._problem(path, str(row.error))
            elif row.end_offset is not None:
                yield row.end_offset

    def _group(self, name: str, facts: _GroupFacts) -> Group:
        state = facts.state or GroupState(kind=SHARE if facts.shares else CLASSIC)
        holders = {key: member for member in state.members.values() for key in member.assigned}
        if state.kind == STREAMS:  # of a task's topics some may have fewer partitions
            holders = {key: member for key, member in holders.items() if key in facts.commits or self._is_there(key)}
        if state.kind == SHARE:
            rows = [self._share_row(key, share, holders.get(key)) for key, share in facts.shares.items()]
            rows += [self._row(key, facts, member) for key, member in holders.items() if key not in facts.shares]
        else:
            keys = {*holders, *facts.commits, *facts.pending}
            rows = [self._row(key, facts, holders.get(key)) for key in keys]
        return Group(
            name=name,
            kind=state.kind,
            state=state.state,
            epoch=state.epoch,
            members=tuple(state.members[member_id] for member_id in sorted(state.members)),
            partitions=tuple(sorted(rows, key=lambda row: row.partition)),
            assignment_epoch=None if state.kind == CLASSIC else state.assignment_epoch,
            used_by=user_of(name, state, self._streams_applications),
            topology=state.topology,
            settings=self._settings.get(name, {}),
        )

    def _is_there(self, key: TopicPartition) -> bool:
        """True if the cluster's metadata or a directory has a partition."""
        return key in self._places or any(
            key.partition in image.partitions.get(image.topic_ids.get(key.topic, ""), {}) for image in self._metadata
        )

    @cached_property
    def _streams_applications(self) -> frozenset[str]:
        topics = {key.topic for key in self._places}.union(*(image.topic_ids for image in self._metadata))
        return streams_applications(self._groups, topics)

    def _row(self, key: TopicPartition, facts: _GroupFacts, member: Member | None) -> GroupPartition:
        commit, misplaced = facts.commits.get(key, (None, False))
        end, pending = self._log_end(key), facts.pending.get(key)
        if commit is None:
            return GroupPartition(key, None, end, None, pending_offset=pending, member=member)
        return GroupPartition(
            partition=key,
            offset=commit.offset,
            log_end_offset=end,
            lag=None if end is None else end - commit.offset,
            leader_epoch=None if commit.leader_epoch < 0 else commit.leader_epoch,
            metadata=commit.metadata,
            committed_ms=commit.committed_ms,
            expires_ms=commit.expires_ms,
            pending_offset=pending,
            member=member,
            misplaced=misplaced,
        )

    def _share_row(self, key: TopicPartition, state: ShareState, member: Member | None) -> GroupPartition:
        end, start = self._log_end(key), state.start_offset
        is_known = end is not None and UNKNOWN not in (start, state.delivered)
        return GroupPartition(
            partition=key,
            offset=None if start == UNKNOWN else start,
            log_end_offset=end,
            lag=end - start - state.delivered if is_known and end is not None else None,
            leader_epoch=None if start == UNKNOWN else state.leader_epoch,
            committed_ms=state.stored.timestamp,
            member=member,
            batches=tuple(batches_of(state)),
        )
