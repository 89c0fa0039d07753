"""Facts about the replicas on a host: what decides which copy to trust, and never a record.

`facts_file` writes and reads them; FORMAT.md documents the file. Field names here are those of the file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from seglog_rescue.replicas.digests import Mark
from seglog_rescue.replicas.keys import KeyMark
from seglog_rescue.replicas.lineage import Lineage
from seglog_rescue.replicas.rule import Candidate


@dataclass(frozen=True, slots=True)
class Hole:
    """Offsets from `first` to `end` (exclusive) that a log lacks inside. `reason` says why, `file` and `position` where
    the damage begins; both are empty where records are missing without a trace. `is_coarse`: it covers several places,
    with good batches between."""

    first: int
    end: int
    reason: str
    file: str = ""
    position: int = 0
    is_coarse: bool = False


@dataclass(frozen=True, slots=True)
class ReplicaFacts:
    """A replica's directory, as it is on disk and as a start of its broker would leave it.

    `state` is "" for a live partition, else that of `filenames.PartitionState`. `start` and `end` (exclusive) are its
    offsets after a start, `disk_end` the end of what lies on disk: a start cuts what lies between. `torn_bytes` are an
    unfinished write at the end. `high_watermark`, `recovery_point` and `cleaned` come from checkpoints, 0 if they have
    none; below `cleaned` a cleaner has been. `active` is where the last segment of a compacted log begins, which a
    cleaner does not reach, 0 for another log; `keys` are marks of its keys from there on. `falls` are batches before
    which leader epochs fall, which no leader writes, or a last one whose epoch the checkpoint lacks: the log has these
    offsets, but a broker that takes the wrong epoch for a leader's may never follow another one. `problem` says why a
    broker cannot load it, or why it was read in part.
    """

    topic: str
    partition: int
    directory: str
    state: str = ""
    topic_id: str = ""
    segments: int = 0
    bytes: int = 0
    start: int = 0
    end: int = 0
    disk_end: int = 0
    epochs: tuple[tuple[int, int], ...] = ()
    high_watermark: int = 0
    recovery_point: int = 0
    cleaned: int = 0
    active: int = 0
    newest_timestamp: int = -1
    marks: tuple[Mark, ...] = ()
    keys: tuple[KeyMark, ...] = ()
    holes: tuple[Hole, ...] = ()
    falls: tuple[Hole, ...] = ()
    torn_bytes: int = 0
    open_transactions: int = 0
    problem: str = ""

    @property
    def name(self) -> str:
        """The partition's name, topic-partition."""
        return f"{self.topic}-{self.partition}"

    @property
    def damage(self) -> tuple[Hole, ...]:
        """The ranges that are damaged or missing, and the batches with wrong leader epochs."""
        return *self.holes, *self.falls

    @property
    def on_disk(self) -> Lineage:
        """The log as it lies on disk."""
        return _lineage(self.start, self.disk_end, self.epochs)

    @property
    def started(self) -> Lineage:
        """The log as a start of its broker leaves it."""
        return _lineage(self.start, self.disk_end, self.epochs, self.end)

    def candidate(self, node: int) -> Candidate:
        """Returns broker `node`'s copy as the rule compares it."""
        holes = tuple((hole.first, min(hole.end, self.end)) for hole in self.holes if hole.first < self.end)
        return Candidate(node, self.started, self.high_watermark, holes, len(self.falls))


@lru_cache(maxsize=4096)
def _lineage(start: int, end: int, epochs: tuple[tuple[int, int], ...], cut: int | None = None) -> Lineage:
    """Returns a lineage; a comparison asks for that of each copy dozens of times in a row."""
    lineage = Lineage.of(start, end, epochs)
    return lineage if cut is None else lineage.cut(cut)


@dataclass(frozen=True, slots=True)
class DirectoryFacts:
    """A log directory and its replicas. `path` is its place on its host, `node` its broker. `clean`: its broker closed
    it. `written` is when a file in it was last written, epoch milliseconds."""

    path: str
    node: int
    directory_id: str = ""
    cluster_id: str = ""
    clean: bool = False
    written: int = 0
    replicas: tuple[ReplicaFacts, ...] = ()


@dataclass(frozen=True, slots=True)
class AssignmentFacts:
    """A partition by the metadata. `directories` are ids, in the order of `replicas`; `eligible` are out of sync and
    have every acknowledged record (ELR, KIP-966). `clean_since` is the leader epoch since which no leader was elected
    uncleanly, as far as the metadata tells. `last_known` led it last, and is elected if nobody in sync is left."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    eligible: tuple[int, ...] = ()
    directories: tuple[str, ...] = ()
    clean_since: int = 0
    last_known: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic by the metadata; `unclean` is its own `unclean.leader.election.enable`, "" if it has none."""

    name: str
    topic_id: str
    partitions: tuple[AssignmentFacts, ...] = ()
    unclean: str = ""


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """A registered broker: the ids of its log directories, and the offset of its last registration in the metadata."""

    node: int
    directories: tuple[str, ...] = ()
    registered_at: int = -1


@dataclass(frozen=True, slots=True)
class MetadataFacts:
    """A copy of the metadata log, `node`'s: what it says up to `end` (exclusive). `problems` are its unread parts."""

    source: str
    node: int
    end: int
    brokers: tuple[BrokerFacts, ...] = ()
    topics: tuple[TopicFacts, ...] = ()
    problems: tuple[str, ...] = ()
    unclean: str = ""


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """What a group had committed in a partition, by the group's partition of `__consumer_offsets` on broker `node`."""

    node: int
    group: str
    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class HostFacts:
    """Everything from one file, or from directories given together. `source` names the file or the directories;
    `collected` is when, epoch milliseconds by the host's clock."""

    source: str
    collected: int
    directories: tuple[DirectoryFacts, ...] = ()
    metadata: tuple[MetadataFacts, ...] = ()
    groups: tuple[GroupFacts, ...] = ()
    problems: tuple[str, ...] = field(default=())
