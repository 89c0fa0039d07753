"""One replay: sources, the target's topics, what arrived, what is left, and the groups' offsets.

1. Each source partition gets its target: the same topic and number, or as `topics` says. Topics that are not there, or
   have another number of partitions, refuse the replay before anything is sent.
2. A new replay notes where each target's log ends. One that goes on and was not ended in order first waits until these
   ends stand still, and looks up in the target's log which records arrived after the last save (`_find_arrived`):
   a partition's records arrive in order, so that they are the next ones of the source, perhaps with others' between.
3. Committed records are sent, partition by partition, in offset order. Every delivery moves the state on; the state is
   saved every second or so, and at the end, also after an error.
4. With `groups`, committed offsets are translated by the offset map.

So each record arrives once, however often the replay is killed, as long as nothing else changes what was replayed:
compaction or retention of the target between a kill and the next run.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from seglog.clock import Clock
from seglog.errors import NotALogError, RefusedError
from seglog.evidence.coordinator_replay import OFFSETS_TOPIC, SHARE_TOPIC
from seglog.evidence.group_states import SHARE
from seglog.evidence.transactions import TRANSACTION_TOPIC
from seglog.format.filenames import CLUSTER_METADATA_TOPIC
from seglog.model import Isolation, Record, TopicPartition
from seglog.operations.groups import Group
from seglog.replay.offset_map import OffsetMap
from seglog.replay.state import PartitionState, ReplayState
from seglog.replay.target import TargetCluster
from seglog.serve.catalog import Catalog, ServedPartition
from seglog.storage.filesystem import FileSystem

SAVE_SECONDS = 1.0
SETTLE_SECONDS = 3.0  # how long the ends must stand still: a killed producer's last requests may still be under way
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTION_TOPIC, SHARE_TOPIC, CLUSTER_METADATA_TOPIC})


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """What a replay does. `topics` maps old names to new ones; `bytes_per_second` bounds it (None: no bound)."""

    topics: Mapping[str, str] = field(default_factory=dict)
    bytes_per_second: int | None = None


@dataclass(frozen=True, slots=True)
class PlannedPartition:
    """A source partition and its target; offsets `next_offset` up to `end_offset` are left to replay.

    `end_offset` is the last stable offset: what lies above it belongs to transactions that nobody ended.
    """

    source: TopicPartition
    directory: Path
    target: TopicPartition
    next_offset: int
    end_offset: int
    log_end_offset: int


@dataclass(frozen=True, slots=True)
class Translated:
    """A group's offset in a source partition, and its new one in the target."""

    group: str
    source: TopicPartition
    offset: int
    target: TopicPartition
    new_offset: int


class Replay:
    """A replay of everything in `catalog` into `cluster`; `state_file` is what the next run goes on with."""

    def __init__(
        self,
        catalog: Catalog,
        cluster: TargetCluster,
        fs: FileSystem,
        clock: Clock,
        state_file: Path,
        *,
        map_file: Path | None,
        options: ReplayOptions | None = None,
    ) -> None:
        self._cluster, self._fs, self._clock = cluster, fs, clock
        self._state_file, self._options = state_file, options or ReplayOptions()
        self._sources = {
            key: one for one in catalog if (key := TopicPartition(one.topic, one.number)).topic not in INTERNAL_TOPICS
        }
        if not self._sources:
            raise NotALogError(
                state_file, "nothing to replay: there are no partitions, or only those of internal topics"
            )
        self._cluster_id, self._counts = cluster.topics()
        found = ReplayState.load(fs, state_file)
        self.state = found or ReplayState(self._cluster_id)
        self.state.require_cluster(self._cluster_id, state_file)
        self._map = None if map_file is None else OffsetMap(fs, map_file)
        self._sent: dict[TopicPartition, deque[int]] = {}
        self._by_target: dict[TopicPartition, TopicPartition] = {}
        self._saved = clock.monotonic()

    def plan(self) -> list[PlannedPartition]:
        """What is to be done, in order. RefusedError for what cannot be; nothing is written or sent."""
        self._require_same_map()
        planned = [self._planned(key, one) for key, one in sorted(self._sources.items())]
        times = Counter(str(one.target) for one in planned)
        twice = sorted(target for target, count in times.items() if count > 1)
        if twice:
            raise RefusedError(f"several partitions would go into {', '.join(twice)}")
        self._require_topics(planned)
        return planned

    def left_out(self, planned: Sequence[PlannedPartition]) -> Iterator[str]:
        """What cannot be replayed of the partitions, a sentence each: open transactions, ends that are not a batch."""
        for one in planned:
            if one.end_offset < one.log_end_offset:
                yield (
                    f"{one.source}: offsets {one.end_offset} to {one.log_end_offset - 1} follow the beginning of a"
                    " transaction that has no end, and are not replayed (seglog txn shows it)"
                )
            end = self._sources[one.source].log.unreadable_end
            if end is not None:
                yield str(end.error())

    def run(self, planned: Sequence[PlannedPartition], sent: Callable[[int], None]) -> None:
        """Does it; `sent` hears of the bytes of each record. What arrived is in the state, also after an error."""
        if self._map is not None:
            self._map.load(self.state.map_bytes)
        for one in planned:
            if one.source not in self.state.partitions:
                end = self._cluster.end_offset(one.target)
                self.state.partitions[one.source] = PartitionState(str(one.directory), one.target, one.next_offset, end)
            self._by_target[one.target] = one.source
            self._sent[one.target] = deque()
        if not self.state.in_order:
            self._find_arrived(planned)
        self.state.in_order = False
        self._save()
        pace = _Pace(self._clock, self._options.bytes_per_second)
        self._cluster.start(self._delivered)
        try:
            for one in planned:
                for record in self._records(one.source):
                    self._send(one.target, record)
                    size = len(record.key or b"") + len(record.value or b"")
                    sent(size)
                    pace.spent(size)
            self._cluster.flush(self._save_at_times)
            self.state.in_order = True
        finally:
            self._save()

    def translate(self, groups: Sequence[Group]) -> Iterator[Translated]:
        """The committed offsets of groups in the target's offsets; needs the offset map. Share groups commit none."""
        if self._map is None:
            raise RefusedError("offsets are translated by the offset map: replay with a map file")
        for group in (each for each in groups if each.kind != SHARE):
            for row in group.partitions:
                if row.offset is None or row.partition not in self.state.partitions:
                    continue
                progress = self.state.partitions[row.partition]
                new = self._map.translated(row.partition, row.offset)
                if new is None:  # nothing was committed after it: the group goes on with what comes next
                    new = progress.target_end
                yield Translated(group.name, row.partition, row.offset, progress.target, new)

    def commit(self, translated: Iterable[Translated]) -> None:
        """Sets these offsets in the cluster, group by group; the groups must have no members there."""
        by_group: dict[str, list[tuple[TopicPartition, int]]] = {}
        for one in translated:
            by_group.setdefault(one.group, []).append((one.target, one.new_offset))
        for group, offsets in by_group.items():
            self._cluster.commit(group, offsets)

    def _planned(self, key: TopicPartition, one: ServedPartition) -> PlannedPartition:
        known = self.state.partitions.get(key)
        target = TopicPartition(self._options.topics.get(key.topic, key.topic), key.partition)
        if known is not None and known.target != target:
            raise RefusedError(f"{key} was replayed into {known.target} so far; {self._state_file} says so")
        start = one.log.log_start_offset if known is None else known.next_offset
        stable = one.log.last_stable_offset
        return PlannedPartition(key, one.directory, target, start, max(start, stable), one.log.log_end_offset)

    def _require_same_map(self) -> None:
        """RefusedError where the runs before this one had a map and this one has none, or the other way round: what a
        map lacks would be translated to later records."""
        if self._map is None and self.state.map_bytes:
            raise RefusedError(f"{self._state_file} is of a replay with an offset map: name the same one with --map")
        if (
            self._map is not None
            and not self.state.map_bytes
            and any(p.records for p in self.state.partitions.values())
        ):
            raise RefusedError(
                f"{self._state_file} is of a replay without an offset map, which would lack what was replayed so far:"
                " go on without --map"
            )

    def _require_topics(self, planned: Sequence[PlannedPartition]) -> None:
        wanted: dict[str, int] = {}
        for one in planned:
            wanted[one.target.topic] = max(wanted.get(one.target.topic, 0), one.target.partition + 1)
        missing = {topic: count for topic, count in wanted.items() if topic not in self._counts}
        if missing:
            commands = "; ".join(
                f"kafka-topics.sh --bootstrap-server {self._cluster.bootstrap} --create --topic {topic}"
                f" --partitions {count}"
                for topic, count in missing.items()
            )
            raise RefusedError(f"the cluster has no topic {', '.join(missing)}; make it with its settings: {commands}")
        for topic, count in wanted.items():
            if self._counts[topic] < count:
                raise RefusedError(
                    f"{topic} has {self._counts[topic]} partitions in the cluster, and at least {count} are needed:"
                    " records stay in their partition"
                )

    def _records(self, key: TopicPartition) -> Iterator[Record]:
        return self._sources[key].log.records(self.state.partitions[key].next_offset, Isolation.READ_COMMITTED)

    def _send(self, target: TopicPartition, record: Record) -> None:
        assert record.offset is not None
        self._sent[target].append(record.offset)
        self._cluster.send(target, record)
        self._save_at_times()

    def _delivered(self, target: TopicPartition, new_offset: int) -> None:
        self._arrived(self._by_target[target], self._sent[target].popleft(), new_offset)

    def _arrived(self, source: TopicPartition, offset: int, new_offset: int) -> None:
        progress = self.state.partitions[source]
        progress.next_offset, progress.target_end = offset + 1, new_offset + 1
        progress.records += 1
        if self._map is not None:
            self._map.add(source, offset, progress.target, new_offset)

    def _find_arrived(self, planned: Sequence[PlannedPartition]) -> None:
        """Moves the state on over the records that the run before sent and did not count."""
        ends = self._settled_ends([one.target for one in planned])
        for one in planned:
            progress = self.state.partitions[one.source]
            if progress.target_end >= ends[one.target]:
                continue
            expected = self._records(one.source)
            record = next(expected, None)
            for found in self._cluster.records_from(one.target, progress.target_end, ends[one.target]):
                if record is None:
                    break
                if found.is_of(record):
                    assert record.offset is not None
                    self._arrived(one.source, record.offset, found.offset)
                    record = next(expected, None)

    def _settled_ends(self, targets: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        ends: dict[TopicPartition, int] = {}
        while True:
            before, ends = ends, {target: self._cluster.end_offset(target) for target in targets}
            if ends == before:
                return ends
            self._clock.sleep(SETTLE_SECONDS)

    def _save_at_times(self) -> None:
        if self._clock.monotonic() - self._saved >= SAVE_SECONDS:
            self._save()

    def _save(self) -> None:
        """The map first: the state counts its bytes."""
        if self._map is not None:
            self.state.map_bytes = self._map.save()
        self.state.save(self._fs, self._state_file)
        self._saved = self._clock.monotonic()


class _Pace:
    """Keeps a rate: waits when more was spent than the time that has passed allows."""

    def __init__(self, clock: Clock, bytes_per_second: int | None) -> None:
        self._clock, self._rate, self._spent, self._started = clock, bytes_per_second, 0, clock.monotonic()

    def spent(self, size: int) -> None:
        if self._rate is None:
            return
        self._spent += size
        ahead = self._spent / self._rate - (self._clock.monotonic() - self._started)
        if ahead > 0:
            self._clock.sleep(ahead)
