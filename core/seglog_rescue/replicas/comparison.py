"""Compares the copies of each partition: which one to start from, and what each choice would lose.

What a choice loses is what another copy holds on disk and the chosen log lacks after a start: beyond the offset where
the two part, in its holes, below its log start, or compacted away for a newer record that it lacks. An offset counts
as acknowledged if it lies below the high watermark of a copy of the same log; as not acknowledged if a replica in sync
lacks it, and every leader since was elected among those in sync; else nobody can say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from seglog.escaping import command_line
from seglog.format.filenames import PartitionState
from seglog.model import TopicPartition
from seglog.remote_path import is_url
from seglog_rescue.rebuild.known import KnownPartition
from seglog_rescue.replicas.cluster import Cluster, Copy
from seglog_rescue.replicas.digests import different, extent
from seglog_rescue.replicas.facts import Hole
from seglog_rescue.replicas.keys import KeysBeside
from seglog_rescue.replicas.keys import compared as compared_keys
from seglog_rescue.replicas.lineage import common_end, contradiction
from seglog_rescue.replicas.rule import (
    Candidate,
    Metadata,
    acknowledged_end,
    is_current,
    is_emptied,
    missing_acknowledged,
    ranked,
)

_AT_START = {
    PartitionState.LIVE: "deletes it soon after its start, as the controller has recorded the copy on another disk",
    PartitionState.FUTURE: "cuts it when it starts",
    PartitionState.DELETED: "deletes it soon after its start",
    PartitionState.STRAY: "does not serve it",
}

Range = tuple[int, int]  # first offset, and the one after the last


class Acknowledged(Enum):
    """Whether producers with acks=all were told that records are safe."""

    YES = "yes"
    PERHAPS = "perhaps"
    NO = "no"


class Cause(Enum):
    """Why a choice lacks offsets that another copy holds."""

    END = "beyond the end"
    DIVERGED = "diverged"
    DAMAGED = "damaged"
    CUT = "cut by the start"
    START = "below the log start"
    COMPACTED = "compacted for what is lost"


@dataclass(frozen=True, slots=True)
class Loss:
    """Offsets from `first` to `end` (exclusive) that only other copies hold, as broker `node` does.

    There are at most `records` in them, exactly so many if `exact`; times are epoch milliseconds, -1 if unknown, and
    `first_timestamp` is no later than the earliest.
    """

    node: int
    first: int
    end: int
    cause: Cause
    acknowledged: Acknowledged
    records: int
    exact: bool
    first_timestamp: int
    last_timestamp: int

    @property
    def was_given_up(self) -> bool:
        """True if a leader without these acknowledged offsets was elected, and has written since."""
        return self.cause is Cause.DIVERGED and self.acknowledged is Acknowledged.YES


@dataclass(frozen=True, slots=True)
class Choice:
    """What starting from broker `node`'s copy loses, and the groups whose offset lies above its end."""

    node: int
    losses: tuple[Loss, ...] = ()
    groups_above: tuple[tuple[str, int], ...] = ()

    @property
    def lost(self) -> tuple[Loss, ...]:
        """The losses but for what retention or an operator has deleted from the chosen log's start."""
        return tuple(loss for loss in self.losses if loss.cause is not Cause.START)


@dataclass(frozen=True, slots=True)
class CopyVerdict:
    """A copy beside the chosen one: `parts_at` is the offset where they part, None if neither goes beyond what both
    hold; `differs` are stretches with other batches although no epoch says so. `keys` compares compacted copies."""

    copy: Copy
    in_sync: bool
    parts_at: int | None
    differs: tuple[Range, ...] = ()
    keys: KeysBeside | None = None

    @property
    def lacks_keys(self) -> bool:
        """True if it is proved that some keys have other newest records than in the chosen copy."""
        return self.keys is not None and not self.keys.agree

    @property
    def holes(self) -> tuple[Hole, ...]:
        """Its damage."""
        return self.copy.facts.damage


@dataclass(frozen=True, slots=True)
class PartitionVerdict:
    """What is known of one partition. `choice` is the broker to start from, None if there is none to choose.

    `choices` has the chosen one first. `missing` are the brokers whose replica is in none of the given directories;
    `entry` is the newest metadata's view.
    """

    partition: TopicPartition
    topic_id: str
    choice: int | None
    why: str
    copies: tuple[CopyVerdict, ...]
    choices: tuple[Choice, ...]
    missing: tuple[int, ...] = ()
    aside: tuple[Copy, ...] = ()
    entry: KnownPartition | None = None
    current: bool = False
    remarks: tuple[str, ...] = field(default=())

    @property
    def agrees(self) -> bool:
        """True if no decision is needed: every choice loses nothing, and nothing is missing or odd."""
        odd = self.remarks or self.missing or self.choice is None
        return not odd and not any(choice.lost for choice in self.choices) and not self._wounded

    @property
    def _wounded(self) -> bool:
        return any(copy.differs or copy.lacks_keys or copy.copy.facts.problem or copy.holes for copy in self.copies)

    def chosen(self) -> Choice | None:
        """Returns the recommended choice."""
        return self.choices[0] if self.choices else None


def verdicts(cluster: Cluster) -> Iterator[PartitionVerdict]:
    """Yields a verdict for each partition, in order."""
    named = {*cluster.copies, *cluster.aside}
    image = cluster.image
    for name, topic in () if image is None else image.topics.items():
        named |= {TopicPartition(name, number) for number in topic.partitions}
    for key in sorted(named):
        yield _Partition(cluster, key).verdict()


class _Partition:
    """One partition's copies, as the rule and the metadata see them."""

    def __init__(self, cluster: Cluster, key: TopicPartition) -> None:
        self._cluster, self._key = cluster, key
        topic = None if cluster.image is None else cluster.image.topics.get(key.topic)
        self._entry = None if topic is None else topic.partitions.get(key.partition)
        self._remarks: list[str] = []
        every = cluster.copies.get(key, [])
        self._topic_id, self._copies = self._of_one_topic(every, "" if topic is None else topic.topic_id)
        readable = [copy for copy in self._copies if not copy.facts.problem]
        self._readable = {copy.node: copy for copy in readable}
        self._metadata = Metadata.of(self._entry)
        self._candidates = [copy.facts.candidate(copy.node) for copy in readable]
        self._on_disk = {
            copy.node: Candidate(copy.node, copy.facts.on_disk, copy.facts.high_watermark) for copy in readable
        }

    def _of_one_topic(self, copies: Sequence[Copy], listed: str) -> tuple[str, list[Copy]]:
        """Returns the topic's id and its copies; those of another topic of that name are said."""
        ids = sorted({copy.facts.topic_id for copy in copies if copy.facts.topic_id})
        if listed and any(other != listed for other in ids):
            for copy in copies:
                if copy.facts.topic_id not in ("", listed):
                    self._remarks.append(
                        f"{copy.facts.directory} belongs to a deleted topic of that name ({copy.facts.topic_id}):"
                        " a broker sets it aside"
                    )
        elif not listed and len(ids) > 1:
            self._remarks.append(
                f"its directories belong to several topics of that name ({', '.join(ids)}), and no metadata says which"
                " one exists: nothing is chosen"
            )
            return "", []
        topic_id = listed or next(iter(ids), "")
        return topic_id, [copy for copy in copies if copy.facts.topic_id in ("", topic_id)]

    def verdict(self) -> PartitionVerdict:
        """Returns the verdict."""
        order = ranked(self._candidates, self._metadata, self._key.partition)
        nodes = [candidate.node for candidate, _ in order]
        synced = {candidate.node for candidate, is_synced in order if is_synced}
        chosen = self._readable[nodes[0]] if nodes else None
        replicas = [] if self._entry is None else self._entry.replicas
        here = {copy.node for copy in self._copies}
        self._say_aside(here)
        self._say_newer_than_the_metadata()
        if chosen is not None:
            self._say_cut_below_cleaned(chosen)
            self._remarks += [
                f"broker {copy.node} has compacted its copy up to offset {copy.facts.cleaned - 1}, beyond where it"
                f" parts from broker {chosen.node}'s: if it follows as it is, it lacks keys that its leader has"
                for copy in self._readable.values()
                if copy is not chosen and loses_keys(chosen, copy)
            ]
            self._say_elected_without_copy(chosen)
        return PartitionVerdict(
            self._key,
            self._topic_id,
            None if chosen is None else chosen.node,
            self._why(order),
            tuple(self._copy_verdicts(nodes, chosen, synced)),
            tuple(self._choice(node, nodes) for node in nodes),
            tuple(node for node in replicas if node not in here and self._may_hold_more(node)),
            tuple(self._cluster.aside.get(self._key, ())),
            self._entry,
            is_current(self._metadata, self._candidates),
            tuple(self._remarks),
        )

    def _may_hold_more(self, node: int) -> bool:
        """True if a replica that is not given may have acknowledged records that the others lack."""
        metadata = self._metadata
        if metadata is None or not metadata.in_sync or not is_current(metadata, self._candidates):
            return True
        return node in metadata.in_sync

    def _say_newer_than_the_metadata(self) -> None:
        """Says which copies have leader epochs that the controllers gave to nobody, as far as the metadata tells."""
        for copy in self._readable.values():
            epoch = copy.facts.on_disk.newest_epoch
            if self._entry is not None and epoch > self._entry.leader_epoch:
                self._remarks.append(
                    f"broker {copy.node}'s copy has leader epoch {epoch}, and the metadata knows of none above"
                    f" {self._entry.leader_epoch}: that metadata is older than the log, or bits of the epoch are turned"
                    " (no checksum covers it); `seglog dump` shows the epoch of each batch"
                )

    def _say_elected_without_copy(self, chosen: Copy) -> None:
        """Says which brokers would lead without a copy if they started first, as an unclean election asks for none."""
        if self._entry is None or chosen.facts.disk_end == chosen.facts.start:
            return
        here = {copy.node for copy in self._copies}
        empty = [str(node) for node in self._entry.replicas if node not in here]
        if empty and self._key.topic in self._cluster.unclean_topics:
            who = f"broker {empty[0]} has" if len(empty) == 1 else f"brokers {' and '.join(empty)} have"
            self._remarks.append(
                f"unclean.leader.election.enable is on, and {who} no copy of it: one without a copy that starts before"
                f" broker {chosen.node} leads, and all is lost"
            )

    def _say_cut_below_cleaned(self, chosen: Copy) -> None:
        facts = chosen.facts
        if facts.end < facts.cleaned:
            self._remarks.append(
                f"broker {chosen.node}'s copy was compacted up to offset {facts.cleaned - 1} and ends at"
                f" {facts.end - 1} after a start: keys may have lost both their old and their new value"
            )

    def _say_aside(self, here: set[int]) -> None:
        """Says which copies no broker serves, of brokers that have no other one, or with offsets that no copy has."""
        end = max((copy.facts.disk_end for copy in self._copies), default=0)
        for copy in self._cluster.aside.get(self._key, ()):
            facts, is_ours = copy.facts, copy.facts.topic_id in ("", self._topic_id)
            state, home = PartitionState(facts.state), Path(facts.directory).with_name(facts.name)
            if copy.node not in here and self._entry is not None and copy.node in self._entry.replicas:
                sentence = (
                    f"broker {copy.node} has it only as {facts.directory}, which it does not serve (offsets"
                    f" {facts.start} to {facts.disk_end - 1}): it cannot be chosen"
                )
                if is_ours and facts.disk_end > facts.start and not is_url(facts.directory):
                    command = command_line("mv", Path(facts.directory), home)
                    sentence += (
                        f"; to change that, before that broker starts: {command}, and run `seglog replicas` again"
                    )
                self._remarks.append(sentence)
            elif is_ours and facts.disk_end > max(end, facts.start):
                span = f"offsets {max(end, facts.start)} to {facts.disk_end - 1}"
                self._remarks.append(
                    f"only {facts.directory} holds {span}, and broker {copy.node} {_AT_START[state]}: copy it to"
                    " another place first; `seglog read` shows its records"
                )

    def _copy_verdicts(self, nodes: Sequence[int], chosen: Copy | None, synced: set[int]) -> Iterator[CopyVerdict]:
        unreadable = [copy for copy in self._copies if copy.node not in self._readable]
        for copy in [*(self._readable[node] for node in nodes), *unreadable]:
            parts_at: int | None = None
            differs: Sequence[Range] = ()
            keys: KeysBeside | None = None
            if chosen is not None and copy is not chosen and not copy.facts.problem:
                parts_at, differs = _beside(chosen, copy)
                keys = _keys_beside(chosen, copy)
            yield CopyVerdict(copy, copy.node in synced, parts_at, tuple(differs), keys)

    def _why(self, order: Sequence[tuple[Candidate, bool]]) -> str:
        if not order:
            return "no copy of it can be read"
        best, synced = order[0]
        words = ["in sync"] if synced else []
        others = [candidate for candidate, _ in order[1:]]
        if any(other.lineage.newest_epoch < best.lineage.newest_epoch for other in others):
            words.append(f"newest leader epoch {best.lineage.newest_epoch}")
        if any(other.lineage.end < best.lineage.end for other in others):
            words.append(f"longest log, to offset {best.lineage.end - 1}")
        if not best.damage and any(other.damage for other in others):
            words.append("undamaged")
        if not words:
            words.append("the only copy" if not others else "the copies end alike")
        return ", ".join(words)

    # --- what a choice loses ----------------------------------------------------------------------------------

    def _choice(self, node: int, nodes: Sequence[int]) -> Choice:
        chosen = self._readable[node]
        losses: list[Loss] = []
        taken: list[tuple[int, Range]] = []
        for other in [self._readable[each] for each in (node, *(each for each in nodes if each != node))]:
            for lost, cause in _lost(chosen, other):
                for span in _without(lost, self._already(other.node, taken)):
                    taken.append((other.node, span))
                    losses += self._losses(other, span, cause)
        groups = self._cluster.groups.get(self._key, {})
        above = sorted((name, offset) for name, offset in groups.items() if offset > chosen.facts.end)
        return Choice(node, tuple(losses), tuple(above))

    def _already(self, node: int, taken: Sequence[tuple[int, Range]]) -> list[Range]:
        """Returns the ranges that are counted as lost already, and are the same records in this copy."""
        mine = self._on_disk[node].lineage
        shared = []
        for other, (first, end) in taken:
            until = min(end, common_end(self._on_disk[other].lineage, mine))
            if first < until:
                shared.append((first, until))
        return shared

    def _losses(self, holder: Copy, span: Range, cause: Cause) -> Iterator[Loss]:
        """Yields the losses of a range by whether it was acknowledged."""
        lineage = self._on_disk[holder.node].lineage
        committed = acknowledged_end(lineage, list(self._on_disk.values()))
        never = max(committed, self._uncommitted_from(holder))
        edges = [(committed, Acknowledged.YES), (never, Acknowledged.PERHAPS), (span[1], Acknowledged.NO)]
        first = span[0]
        for edge, word in edges:
            end = min(edge, span[1])
            if first < end:
                held = extent(holder.facts.marks, first, end)
                newest = holder.facts.newest_timestamp
                exact = held.exact and cause is not Cause.COMPACTED
                yield Loss(holder.node, first, end, cause, word, held.records, exact, held.first_timestamp, newest)
                first = end

    def _uncommitted_from(self, holder: Copy) -> int:
        """Returns the offset from which on a copy's records were never acknowledged, as a replica in sync lacks them;
        its end if nobody can say."""
        end, entry = holder.facts.disk_end, self._entry
        members = () if self._metadata is None else self._metadata.in_sync
        if entry is None or not members or not is_current(self._metadata, self._candidates):
            return end
        if not all(node in self._readable for node in members):
            return end
        if self._on_disk[holder.node].lineage.epoch_at(end - 1) < entry.clean_since:
            return end  # an unclean election since may have given up what was acknowledged
        for node in members:
            copy = self._readable[node]
            facts = copy.facts
            whole = not facts.holes and not facts.torn_bytes and facts.end == facts.disk_end
            candidate = facts.candidate(node)
            whole = whole and not is_emptied(candidate, self._candidates)
            if whole and not missing_acknowledged(candidate, self._candidates):
                end = min(end, common_end(self._on_disk[node].lineage, self._on_disk[holder.node].lineage))
        return end


def _beside(chosen: Copy, copy: Copy) -> tuple[int | None, list[Range]]:
    """Returns where a copy parts from the chosen one, and the stretches that differ although no epoch says so."""
    mine, theirs = chosen.facts, copy.facts
    common = common_end(mine.on_disk, theirs.on_disk)
    parts_at = None if common == mine.disk_end == theirs.disk_end else common
    first = max(mine.start, theirs.start)
    differs: list[Range] = []
    contradicted = contradiction(mine.on_disk, theirs.on_disk)
    if contradicted is not None:
        differs.append((contradicted, common))
    compared = max(first, mine.cleaned, theirs.cleaned, mine.active, theirs.active)  # below, compaction ran apart
    for stretch in different(mine.marks, theirs.marks, compared, common):
        holes = [*mine.holes, *theirs.holes]
        if contradicted is None and not any(hole.first < stretch[1] and stretch[0] < hole.end for hole in holes):
            differs.append(stretch)
    return parts_at, differs


def loses_keys(leader: Copy, copy: Copy) -> bool:
    """True if a follower is cut to its leader below an offset that its cleaner had reached: it has dropped old records
    of keys for newer ones that are cut, and the leader, which has the old ones, never sends them again."""
    return common_end(leader.facts.started, copy.facts.on_disk) < copy.facts.cleaned


def _keys_beside(chosen: Copy, copy: Copy) -> KeysBeside | None:
    """Compares the keys of compacted copies as far as both are the same log."""
    mine, theirs = chosen.facts, copy.facts
    if mine.start != theirs.start:
        return None  # one of them has keys whose records were deleted in the other
    return compared_keys(mine.keys, theirs.keys, common_end(mine.on_disk, theirs.on_disk))


def _lost(chosen: Copy, other: Copy) -> Iterator[tuple[Range, Cause]]:
    """Yields the ranges that `other` holds on disk and the chosen copy lacks after a start."""
    mine, theirs = chosen.facts, other.facts
    parts = mine.end if chosen is other else common_end(mine.started, theirs.on_disk)
    if chosen is other:
        cause = Cause.CUT
    else:
        cause = Cause.DIVERGED if parts < mine.end else Cause.END
    holes = [(hole.first, hole.end) for hole in theirs.holes if not hole.is_coarse]
    for span in _without((max(parts, theirs.start), theirs.disk_end), holes):
        yield span, cause
    if chosen is other:
        return
    for span in _without((theirs.start, min(mine.start, parts)), holes):
        yield span, Cause.START
    for span in _without((max(mine.start, theirs.start), min(_compacted_for_lost(chosen, other), parts)), holes):
        yield span, Cause.COMPACTED
    for hole in mine.holes:
        first, end = max(hole.first, mine.start, theirs.start), min(hole.end, parts)
        for span in _without((first, end), holes):
            yield span, Cause.DAMAGED


def _compacted_for_lost(chosen: Copy, other: Copy) -> int:
    """Returns the offset below which the chosen copy may lack old records of keys: its cleaner has dropped them for
    newer ones that are cut or damaged now. 0 if it has not, or each key has the same newest record in the other copy.
    """
    mine = chosen.facts
    lost = [hole.first for hole in mine.holes if hole.first < mine.cleaned]
    until = max([*lost, *([mine.end] if mine.end < mine.cleaned else [])], default=0)
    keys = _keys_beside(chosen, other)
    return 0 if keys is not None and keys.agree and keys.end >= until else until


def _without(span: Range, holes: Sequence[Range]) -> Iterator[Range]:
    """Yields the parts of a range that lie in no hole."""
    first, end = span
    for low, high in sorted(holes):
        if first < min(low, end):
            yield first, min(low, end)
        first = max(first, high)
    if first < end:
        yield first, end
