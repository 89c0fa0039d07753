"""Runs one replay: maps sources to targets, sends what is left, and translates the groups' offsets.

1. Each source partition gets a target: the same topic and number, or the topic given by `topics`. Topics that are
   missing or have too few partitions refuse the replay before anything is sent.
2. A new replay notes the end of each target's log. A replay that continues after a killed run first waits until these
   ends stand still, and looks up in the target's log which records arrived after the last save (`_find_arrived`): a
   partition's records arrive in order, so they are the next ones of the source, perhaps with others' in between.
3. Committed records are sent, partition by partition, in offset order. Every delivery advances the state, which is
   saved about every second and at the end, even after an error.
4. Committed offsets of groups are translated by the offset map.

So each record arrives once, however often the replay is killed, unless compaction or retention changes the replayed
records in the target between a kill and the next run.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from seglog.clock import Clock
from seglog.errors import NotALogError, RefusedError
from seglog.format.coordinator import TRANSACTION_TOPIC
from seglog.format.filenames import CLUSTER_METADATA_TOPIC
from seglog.model import Isolation, Record, TopicPartition
from seglog.storage.filesystem import FileSystem
from seglog_rescue.groups.coordinator_replay import OFFSETS_TOPIC, SHARE_TOPIC
from seglog_rescue.groups.states import SHARE
from seglog_rescue.operations.groups import Group
from seglog_rescue.operations.groups_left import groups_left
from seglog_rescue.serve.catalog import Catalog, ServedPartition
from seglog_rescue.serve.replay.offset_map import ReplayOffsetMap
from seglog_rescue.serve.replay.state import GroupOffset, PartitionProgress, ReplayState
from seglog_rescue.serve.replay.target import NotArrivedError, TargetCluster

SAVE_SECONDS = 1.0
SETTLE_SECONDS = 3.0  # how long the ends must stand still: a killed producer's last requests may still be under way
_INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTION_TOPIC, SHARE_TOPIC, CLUSTER_METADATA_TOPIC})


@dataclass(frozen=True, slots=True)
class PartitionReplay:
    """A source partition and its target; offsets `next_offset` up to `end_offset` are left to replay.

    `end_offset` is the last stable offset: below `log_end_offset` if an open transaction begins there.
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
    """A replay of everything in `catalog` into `cluster`; the next run continues from `state_file`.

    `topics` maps old names to new ones; `bytes_per_second` limits the rate.
    """

    def __init__(
        self,
        catalog: Catalog,
        cluster: TargetCluster,
        fs: FileSystem,
        clock: Clock,
        state_file: Path,
        *,
        map_file: Path | None,
        topics: Mapping[str, str] | None = None,
        bytes_per_second: int | None = None,
    ) -> None:
        self._cluster, self._fs, self._clock = cluster, fs, clock
        self._state_file, self._topics, self._bytes_per_second = state_file, topics or {}, bytes_per_second
        self._sources = {TopicPartition(one.topic, one.number): one for one in catalog}
        self._sources = {key: one for key, one in self._sources.items() if key.topic not in _INTERNAL_TOPICS}
        if not self._sources:
            raise NotALogError(
                state_file, "nothing to replay: there are no partitions, or only those of internal topics"
            )
        cluster_id, self._counts = cluster.topics()
        self.state = ReplayState.load(fs, state_file) or ReplayState(cluster_id)
        self.state.require_cluster(cluster_id, state_file)
        self._map = None if map_file is None else ReplayOffsetMap(fs, map_file)
        self._sent: dict[TopicPartition, deque[int]] = {}
        self._by_target: dict[TopicPartition, TopicPartition] = {}
        self._saved = clock.monotonic()

    def plan(self) -> list[PartitionReplay]:
        """Returns the plan, in order; writes and sends nothing. Raises RefusedError if the replay is impossible."""
        self._require_same_map()
        planned = [self._planned(key, one) for key, one in sorted(self._sources.items())]
        sources = Counter(str(one.target) for one in planned)
        shared = sorted(target for target, count in sources.items() if count > 1)
        if shared:
            raise RefusedError(f"several partitions would go into {', '.join(shared)}")
        self._require_topics(planned)
        return planned

    def left_out(self, planned: Sequence[PartitionReplay]) -> Iterator[str]:
        """Yields a sentence for each part that cannot be replayed: open transactions, and ends within a batch."""
        for partition in planned:
            if partition.end_offset < partition.log_end_offset:
                yield (
                    f"{partition.source}: offsets {partition.end_offset} to {partition.log_end_offset - 1} are not"
                    " replayed, because a transaction begins there and has no end (seglog txn shows it)"
                )
            end = self._sources[partition.source].log.unreadable_end
            if end is not None:
                yield str(end.error())

    def run(self, planned: Sequence[PartitionReplay], sent: Callable[[int], None]) -> None:
        """Replays; calls `sent` with the bytes of each record. The state counts what arrived, even after an error."""
        if self._map is not None:
            self._map.load(self.state.map_bytes)
        for partition in planned:
            if partition.source not in self.state.partitions:
                end = self._cluster.end_offset(partition.target)
                self.state.partitions[partition.source] = PartitionProgress(
                    str(partition.directory), partition.target, partition.next_offset, end
                )
            self._by_target[partition.target] = partition.source
            self._sent[partition.target] = deque()
        # partitions that this run leaves out are looked up by a later one
        counts_all = self.state.in_order or self.state.partitions.keys() <= {partition.source for partition in planned}
        if not self.state.in_order:
            self._find_arrived(planned)
        self.state.in_order = False
        self._save()
        pace = _Pace(self._clock, self._bytes_per_second)
        self._cluster.start(self._delivered)
        try:
            for partition in planned:
                for record in self._records(partition.source):
                    self._send(partition.target, record)
                    size = len(record.key or b"") + len(record.value or b"")
                    sent(size)
                    pace.spent(size)
            self._cluster.flush(self._save_if_due)
            self.state.in_order = counts_all
        except NotArrivedError as error:
            raise self._placed(error) from error
        finally:
            self._save()

    def _placed(self, error: NotArrivedError) -> NotArrivedError:
        """Returns the error with the record's place in the source: the first that its partition still waits for."""
        waiting, source = self._sent.get(error.place), self._by_target.get(error.place)
        if not waiting or source is None:
            return error
        return NotArrivedError(*error.parts, f"{source} offset {waiting[0]}")

    def stamped(self, planned: Sequence[PartitionReplay]) -> Iterator[str]:
        """Yields a sentence for each target topic that does not keep timestamps."""
        for topic in self._cluster.stamping_topics(sorted({one.target.topic for one in planned})):
            yield (
                f"{topic} has message.timestamp.type=LogAppendTime in the cluster: the records get the time of their"
                " arrival, and lose their own; set it to CreateTime first to keep them"
            )

    def translate(self, groups: Sequence[Group]) -> Iterator[Translated]:
        """Translates committed offsets of groups by the offset map. Share groups commit none."""
        if self._map is None:
            raise RefusedError("offsets are translated by the offset map: replay with a map file")
        for group in (each for each in groups if each.kind != SHARE):
            for row in group.partitions:
                if row.offset is None or row.partition not in self.state.partitions:
                    continue
                progress = self.state.partitions[row.partition]
                new = self._map.translated(row.partition, row.offset)
                if new is None:  # no record was replayed after it: the group continues with the next one
                    new = progress.target_end
                yield Translated(group.name, row.partition, row.offset, progress.target, new)

    def left_behind(self, groups: Iterable[Group]) -> Iterator[str]:
        """Yields a sentence for each share group that had read what was replayed (its offsets are not those of
        the new records), and for each group with settings of its own, which the new cluster may have or not."""
        progress = self.state.partitions
        present = {key: reached.target.topic for key, reached in progress.items()}
        yield from groups_left(list(groups), present.get, same_offsets=False)

    def commit(self, translated: Iterable[Translated]) -> Iterator[str]:
        """Sets these offsets in the cluster, group by group; the groups must have no members there.

        A group that has gone on since an earlier run set its offset keeps its own: yields a sentence for each of these.
        """
        by_group: dict[str, dict[TopicPartition, int]] = {}
        for one in translated:
            by_group.setdefault(one.group, {})[one.target] = one.new_offset
        for group, wanted in by_group.items():
            present = self._cluster.committed(group, list(wanted))
            due: list[tuple[TopicPartition, int]] = []
            for key, offset in wanted.items():
                known, now = self.state.groups.get((group, key)), present.get(key)
                if known is not None and now not in (known.before, known.offset):
                    yield (
                        f"group {group}: {key} stays at offset {now}: the group has gone on since an earlier run set"
                        f" {known.offset}"
                    )
                elif now != offset:
                    due.append((key, offset))
                    self.state.groups[group, key] = GroupOffset(now, offset)
                elif known is None:
                    self.state.groups[group, key] = GroupOffset(now, offset)
            self._save()  # before they are set: whoever is killed in between knows what they were
            if due:
                self._cluster.commit(group, due)

    def _planned(self, key: TopicPartition, served: ServedPartition) -> PartitionReplay:
        earlier = self.state.partitions.get(key)
        target = TopicPartition(self._topics.get(key.topic, key.topic), key.partition)
        if earlier is not None and earlier.target != target:
            raise RefusedError(f"{key} was replayed into {earlier.target} so far, as {self._state_file} says")
        start = served.log.log_start_offset if earlier is None else earlier.next_offset
        stable = served.log.last_stable_offset
        return PartitionReplay(key, served.directory, target, start, max(start, stable), served.log.log_end_offset)

    def _require_same_map(self) -> None:
        """Raises RefusedError if earlier runs had a map and this one has none, or the other way round: offsets that a
        map lacks would be translated to later records."""
        has_records = any(one.records for one in self.state.partitions.values())
        if self._map is None and self.state.map_bytes:
            raise RefusedError(
                f"{self._state_file} belongs to a replay with an offset map: name the same map with --map"
            )
        if self._map is not None and not self.state.map_bytes and has_records:
            raise RefusedError(
                f"{self._state_file} belongs to a replay without an offset map, and a map would lack the records"
                " replayed so far: go on without --map"
            )

    def _require_topics(self, planned: Sequence[PartitionReplay]) -> None:
        needed: dict[str, int] = {}
        for partition in planned:
            needed[partition.target.topic] = max(needed.get(partition.target.topic, 0), partition.target.partition + 1)
        missing = {topic: count for topic, count in needed.items() if topic not in self._counts}
        if missing:
            commands = "; ".join(
                f"kafka-topics.sh --bootstrap-server {self._cluster.bootstrap} --create --topic {topic}"
                f" --partitions {count}"
                for topic, count in missing.items()
            )
            raise RefusedError(f"the cluster has no topic {', '.join(missing)}; make it with its settings: {commands}")
        for topic, count in needed.items():
            if self._counts[topic] < count:
                raise RefusedError(
                    f"{topic} has {self._counts[topic]} partitions in the cluster, but at least {count} are needed:"
                    " records stay in their partition"
                )

    def _records(self, key: TopicPartition) -> Iterator[Record]:
        return self._sources[key].log.records(self.state.partitions[key].next_offset, Isolation.READ_COMMITTED)

    def _send(self, target: TopicPartition, record: Record) -> None:
        assert record.offset is not None
        self._sent[target].append(record.offset)
        self._cluster.send(target, record)
        self._save_if_due()

    def _delivered(self, target: TopicPartition, new_offset: int) -> None:
        self._arrived(self._by_target[target], self._sent[target].popleft(), new_offset)

    def _arrived(self, source: TopicPartition, offset: int, new_offset: int) -> None:
        progress = self.state.partitions[source]
        progress.next_offset, progress.target_end = offset + 1, new_offset + 1
        progress.records += 1
        if self._map is not None:
            self._map.add(source, offset, progress.target, new_offset)

    def _find_arrived(self, planned: Sequence[PartitionReplay]) -> None:
        """Advances the state over the records that earlier runs sent but did not count."""
        ends = self._settled_ends([partition.target for partition in planned])
        for partition in planned:
            progress = self.state.partitions[partition.source]
            if progress.target_end >= ends[partition.target]:
                continue
            expected = self._records(partition.source)
            record = next(expected, None)
            for arrived in self._cluster.records_from(partition.target, progress.target_end, ends[partition.target]):
                if record is None:
                    break
                if arrived.is_of(record):
                    assert record.offset is not None
                    self._arrived(partition.source, record.offset, arrived.offset)
                    record = next(expected, None)

    def _settled_ends(self, targets: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        ends: dict[TopicPartition, int] = {}
        while True:
            before, ends = ends, {target: self._cluster.end_offset(target) for target in targets}
            if ends == before:
                return ends
            self._clock.sleep(SETTLE_SECONDS)

    def _save_if_due(self) -> None:
        if self._clock.monotonic() - self._saved >= SAVE_SECONDS:
            self._save()

    def _save(self) -> None:
        if self._map is not None:  # before the state, which counts its bytes
            self.state.map_bytes = self._map.save()
        self.state.save(self._fs, self._state_file)
        self._saved = self._clock.monotonic()


class _Pace:
    """Limits the rate: waits if more was spent than the elapsed time allows."""

    def __init__(self, clock: Clock, bytes_per_second: int | None) -> None:
        self._clock, self._rate, self._spent, self._started = clock, bytes_per_second, 0, clock.monotonic()

    def spent(self, size: int) -> None:
        if self._rate is None:
            return
        self._spent += size
        ahead = self._spent / self._rate - (self._clock.monotonic() - self._started)
        if ahead > 0:
            self._clock.sleep(ahead)
