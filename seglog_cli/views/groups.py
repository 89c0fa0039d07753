"""Groups as tables, JSON lines, or the CSV that Kafka's own tool takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from seglog_cli.console import Console
from seglog_cli.tables import Layout, number_cell, time_cell

if TYPE_CHECKING:
    from seglog.evidence.group_states import Member
    from seglog.operations.groups import Group, GroupPartition

_GROUPS = ("GROUP", "TYPE", "STATE", "MEMBERS", "PARTITIONS", "LAG")
_OFFSETS = ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "COMMITTED", "CONSUMER-ID")


def show_groups(console: Console, groups: Sequence[Group], *, as_json: bool) -> None:
    """A table of groups and one of offsets, with the headings of kafka-consumer-groups; or JSON lines."""
    if as_json:
        for group in groups:
            _json(console, group)
        return
    rows = [
        (one.name, one.kind, one.state, str(len(one.members)), str(len(one.partitions)), number_cell(one.lag))
        for one in groups
    ]
    console.table(_GROUPS, rows, Layout(right=(3, 4, 5)))
    console.line()
    offsets = [_row(group.name, one) for group in groups for one in group.partitions]
    console.table(_OFFSETS, offsets, Layout(right=(2, 3, 4, 5), yielding=(7, 6)))


def show_reset_csv(console: Console, groups: Sequence[Group]) -> None:
    """The CSV on standard output; how to give it to Kafka's tool on standard error."""
    from seglog.evidence.group_states import SHARE
    from seglog.operations.groups import reset_csv

    taken = [one.name for one in groups if one.kind != SHARE]
    left_out = [one.name for one in groups if one.kind == SHARE]
    if left_out:
        console.warning(f"kafka-consumer-groups takes no share groups; left out: {', '.join(left_out)}")
    console.write_exactly(reset_csv(groups).encode("utf-8", "surrogateescape"))
    which = f"--group {taken[0]}" if len(taken) == 1 else "--all-groups, or a --group for each"
    if taken:
        console.detail(f"for kafka-consumer-groups --reset-offsets --from-file FILE {which} --execute")


def _row(group: str, one: GroupPartition) -> tuple[str, ...]:
    committed = "-" if one.committed_ms is None else time_cell(one.committed_ms)
    member = "-" if one.member is None else one.member.member_id
    numbers = (number_cell(one.offset), number_cell(one.log_end_offset), number_cell(one.lag))
    return (group, one.partition.topic, str(one.partition.partition), *numbers, committed, member)


def _json(console: Console, group: Group) -> None:
    console.json(
        {
            "type": "group",
            "group": group.name,
            "group_type": group.kind,
            "state": group.state,
            "epoch": group.epoch,
            "assignment_epoch": group.assignment_epoch,
            "members": [_member(one) for one in group.members],
            "partitions": len(group.partitions),
            "lag": group.lag,
        }
    )
    for one in group.partitions:
        console.json(
            {
                "type": "group_offset",
                "group": group.name,
                "topic": one.partition.topic,
                "partition": one.partition.partition,
                "offset": one.offset,
                "log_end_offset": one.log_end_offset,
                "lag": one.lag,
                "leader_epoch": one.leader_epoch,
                "metadata": one.metadata,
                "committed": one.committed_ms,
                "expires": one.expires_ms,
                "pending_offset": one.pending_offset,
                "member_id": None if one.member is None else one.member.member_id,
                "misplaced": one.misplaced,
            }
        )


def _member(member: Member) -> dict[str, object]:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "host": member.host,
        "epoch": member.epoch,
        "assigned": [str(one) for one in member.assigned],
    }
