"""What groups lose where their topics get into another cluster, by a transplant or a replay, and what brings them on.

Kafka keeps a share group's progress in `__share_group_state`, by the ids of topics, and settings of groups in the
cluster's metadata (GroupConfig): neither goes with the records. `rebuild` keeps both. A Streams application keeps its
state in topics of its own, which may be left out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from seglog.escaping import command_line, escaped
from seglog.model import TopicPartition
from seglog.units import count_text
from seglog_rescue.groups.share_batches import SHARE_STATES
from seglog_rescue.groups.states import SHARE, STREAMS
from seglog_rescue.groups.users import CHANGELOG, STREAMS_APPLICATION, STREAMS_TOPICS, application_of
from seglog_rescue.operations.groups import Group, GroupPartition

TargetOf = Callable[[TopicPartition], str | None]

_ENDED = ("acknowledged", "archived")
_PLACES_NAMED = 5
_OLD_MEMBERS = (
    " The members that died with the old cluster count until their sessions end, 45 seconds after the broker has"
    ' started (group.share.session.timeout.ms): until then the tool says "is not empty".'
)


def groups_left(
    groups: Collection[Group],
    target_of: TargetOf,
    present: Callable[[str], Mapping[str, str]] = lambda _group: {},
    *,
    same_offsets: bool = True,
) -> Iterator[str]:
    """Yields a sentence for each share group of partitions which are taken along, had it read some or not, and for each
    group that has read some and has settings which are not `present` in the new cluster.

    `target_of` returns the topic that a partition goes into, None if it is not taken. Where records keep their offsets
    (`same_offsets`), a share group can go on where it was.
    """
    yield from _share_groups(groups, target_of, same_offsets)
    for group in groups:
        begins = group.kind == SHARE and (not group.partitions or _reads(group, target_of))
        if begins or _had_read(group, target_of):
            yield from _settings(group, present(group.name))


def streams_states_left(groups: Collection[Group], target_of: TargetOf, topics: Collection[str]) -> Iterator[str]:
    """Yields a sentence for each Streams application whose offsets are taken along, but not all of its changelogs:
    those that its group's topology names, and those among `topics`, which are the source's.
    """
    taken = {topic for topic in topics if target_of(TopicPartition(topic, 0)) is not None}
    names = {group.name for group in groups}
    for group in groups:
        if group.used_by != STREAMS_APPLICATION or not _had_read(group, target_of):
            continue
        known = {topic for topic in topics if topic.endswith(CHANGELOG) and application_of(topic, names) == group.name}
        known |= set(() if group.topology is None else group.topology.changelogs)
        left = sorted(known - taken)
        if left:
            yield (
                f"Streams application {escaped(group.name)} goes on at its committed offsets, but not all of its state"
                f" is taken along: {', '.join(map(escaped, left))}. Where it has no local copy (state.dir), or was"
                " killed with exactly-once semantics and so does not trust it, it begins with an empty state and"
                " without an error, and its results are then wrong. Take these topics too, or let it process its input"
                f" again, before its members start and when the sessions of the old ones have ended: {_reset(group)}"
            )


def _reset(group: Group) -> str:
    """Returns the command that lets a Streams application begin at the start of its input, without what is left of its
    own topics: it would count that twice. The older tool always deletes them.
    """
    if group.kind == STREAMS:
        anew = ("--all-input-topics", "--to-earliest", "--delete-all-internal-topics", "--execute")
        again = command_line("--reset-offsets", "--group", group.name, *anew)
        return (
            f"kafka-streams-groups --bootstrap-server HOST:PORT {again} (it says that topics do not exist where they"
            " were left behind, and resets the offsets)"
        )
    inputs = {row.partition.topic for row in group.partitions if not row.partition.topic.endswith(STREAMS_TOPICS)}
    again = command_line("--application-id", group.name, "--input-topics", ",".join(sorted(inputs)))
    return f"kafka-streams-application-reset --bootstrap-server HOST:PORT {again}"


def _had_read(group: Group, target_of: TargetOf) -> bool:
    """True if a group has an offset in a partition that is taken."""
    return any(target_of(row.partition) is not None for row in group.partitions if row.offset is not None)


def _reads(group: Group, target_of: TargetOf) -> bool:
    """True if a group knows a partition that is taken, although it may not have read it."""
    return any(target_of(row.partition) is not None for row in group.partitions)


def _settings(group: Group, present: Mapping[str, str]) -> Iterator[str]:
    """Yields what brings a group its own settings, unless they are there."""
    left = {key: value for key, value in group.settings.items() if present.get(key) != value}
    if left:
        added = ",".join(f"{key}={value}" for key, value in left.items())
        command = command_line("--entity-name", group.name, "--alter", "--add-config", added)
        yield (
            f"group {escaped(group.name)} had settings of its own, which are in the old cluster's metadata and are not"
            f" taken along: kafka-configs --bootstrap-server HOST:PORT --entity-type groups {command}"
        )


def _share_groups(groups: Iterable[Group], target_of: TargetOf, same_offsets: bool) -> Iterator[str]:
    for group in groups:
        if group.kind != SHARE:
            continue
        rows = [row for row in group.partitions if target_of(row.partition) is not None]
        if not rows:
            continue
        named_rows = [row for row in rows if row.offset is not None] or rows
        progress = [_progress(row) for row in named_rows[:_PLACES_NAMED]]
        more = len(named_rows) - len(progress)
        topics = sorted({target_of(row.partition) or "" for row in rows})
        named = [word for topic in topics for word in ("--topic", topic)]
        command = command_line("--reset-offsets", "--group", group.name, *named, "--to-earliest", "--execute")
        places = "; ".join(progress) + (f"; and {more} more partitions" if more else "")
        yield (
            f"share group {escaped(group.name)} begins anew: its state names topics by their old ids. It had finished"
            f" with {places}. Before its members start, say where it begins: kafka-share-groups --bootstrap-server"
            f" HOST:PORT {command} (or --to-datetime TIME), which brings records again."
            f"{_from_file(group, targets=topics) if same_offsets else ''}{_OLD_MEMBERS if group.members else ''}"
            " Else it begins at the end, unless"
            " share.auto.offset.reset of the group is set otherwise in the new cluster"
        )


def _from_file(group: Group, targets: Sequence[str]) -> str:
    """Returns how a share group goes on at its start offsets (Kafka: ShareGroupCommand, from 4.4 on)."""
    renamed = not {row.partition.topic for row in group.partitions}.issuperset(targets)
    return (
        " The tool of Kafka 4.4 lets it go on where it was, if --from-file FILE takes the place of the topics and"
        f" --to-earliest: FILE is what seglog groups {command_line('--group', group.name)} --format reset-csv prints of"
        f" the source{', with the new names of topics' if renamed else ''}."
    )


def _progress(row: GroupPartition) -> str:
    if row.offset is None:  # it died before it had read any
        return f"nothing of {escaped(str(row.partition))}"
    ended = [batch for batch in row.batches if SHARE_STATES.get(batch.state) in _ENDED]
    ahead = sum(batch.last - batch.first + 1 for batch in ended)
    beyond = f" and {count_text(ahead, 'record')} beyond it" if ahead else ""
    return f"{escaped(str(row.partition))} below offset {row.offset}{beyond}"
