"""Settings that groups have of their own, in the old cluster's metadata: a transplant and a replay leave them there.

`kafka-configs --entity-type groups` sets them: where a share group begins without a state, session timeouts, standby
replicas of a streams group (Kafka: GroupConfig). `rebuild` keeps them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from seglog.escaping import command_line, escaped
from seglog.model import TopicPartition
from seglog.operations.groups import Group


def group_settings_left(
    groups: Iterable[Group],
    target_of: Callable[[TopicPartition], str | None],
    present: Callable[[str], Mapping[str, str]] = lambda _group: {},
) -> Iterator[str]:
    """Yields a sentence for each group with settings that are not `present` in the new cluster, if it had read a
    partition that is taken; `target_of` returns the topic that a partition goes into, None if it is not taken.
    """
    for group in groups:
        there = present(group.name)
        left = {key: value for key, value in group.settings.items() if there.get(key) != value}
        if left and any(target_of(row.partition) is not None for row in group.partitions if row.offset is not None):
            added = ",".join(f"{key}={value}" for key, value in left.items())
            command = command_line("--entity-name", group.name, "--alter", "--add-config", added)
            yield (
                f"group {escaped(group.name)} had settings of its own, which are in the old cluster's metadata and are"
                f" not taken along: kafka-configs --bootstrap-server HOST:PORT --entity-type groups {command}"
            )
