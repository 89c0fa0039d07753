"""What share groups lose where their topics get other ids, as in a transplant or a replay, and what brings them on.

Kafka keeps a share group's progress in `__share_group_state`, by the ids of topics, and where it begins without one
(`share.auto.offset.reset`) in the cluster's metadata. Neither goes with the records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from seglog.consumer_groups.committed_offsets import SHARE_STATES
from seglog.consumer_groups.group_states import SHARE
from seglog.escaping import command_line, escaped
from seglog.model import TopicPartition
from seglog.operations.groups import Group, GroupPartition
from seglog.units import count_text

_ENDED = ("acknowledged", "archived")
_PLACES_NAMED = 5


def share_groups_left(groups: Iterable[Group], target_of: Callable[[TopicPartition], str | None]) -> Iterator[str]:
    """Yields a sentence for each share group that had read partitions which are taken along; `target_of` returns the
    topic that a partition goes into, None if it is not taken.
    """
    for group in groups:
        if group.kind != SHARE:
            continue
        rows = [row for row in group.partitions if row.offset is not None and target_of(row.partition) is not None]
        if not rows:
            continue
        progress = [_progress(row) for row in rows[:_PLACES_NAMED]]
        more = len(rows) - len(progress)
        topics = sorted({target_of(row.partition) or "" for row in rows})
        named = [word for topic in topics for word in ("--topic", topic)]
        command = command_line("--reset-offsets", "--group", group.name, *named, "--to-earliest", "--execute")
        places = "; ".join(progress) + (f"; and {more} more partitions" if more else "")
        yield (
            f"share group {escaped(group.name)} begins anew: its state names topics by their old ids. It had done with"
            f" {places}. Before its members start, say where it begins: kafka-share-groups --bootstrap-server HOST:PORT"
            f" {command} (or --to-datetime TIME), which brings records again. Else it begins at the end, unless"
            " share.auto.offset.reset of the group is set otherwise in the new cluster"
        )


def _progress(row: GroupPartition) -> str:
    ended = [batch for batch in row.batches if SHARE_STATES.get(batch.state) in _ENDED]
    ahead = sum(batch.last - batch.first + 1 for batch in ended)
    beyond = f" and {count_text(ahead, 'record')} beyond it" if ahead else ""
    return f"{escaped(str(row.partition))} below offset {row.offset}{beyond}"
