"""`seglog groups`: how far each consumer group had read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated

from seglog.escaping import command_line
from seglog_cli.console import Console
from seglog_cli.exit_codes import ExitCode
from seglog_cli.failures import UsageError
from seglog_cli.options import Paths, command, flag, one_of, option, time_option
from seglog_cli.session import Session
from seglog_cli.tables import Layout, number_cell, time_cell
from seglog_cli.tiering import Tiers

if TYPE_CHECKING:
    from seglog.model import TopicPartition
    from seglog_rescue.groups.states import Member, Topology
    from seglog_rescue.operations.groups import Group, GroupPartition, GroupsReport

_NAMED = 5  # partitions that a warning names
FORMATS = ("table", "json", "reset-csv")
NOT_YET = "no group had committed an offset by then"
_GROUPS = ("GROUP", "TYPE", "STATE", "MEMBERS", "PARTITIONS", "LAG", "USED-BY")
_OFFSETS = ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "COMMITTED", "CONSUMER-ID")


@command(urls=["paths"])
def run(
    session: Session,
    paths: Paths,
    group: Annotated[
        list[str] | None,
        option("--group", "NAME", "Show only this group, or groups that match a pattern with * and ?; repeatable."),
    ] = None,
    at: Annotated[int | None, time_option("--at", "Show what was committed at this time.")] = None,
    output_format: Annotated[
        str | None, option("--format", "table|json|reset-csv", "The output format (default: table).")
    ] = None,
    as_csv: Annotated[bool, flag("--csv", "The same as --format reset-csv.")] = False,
    *,
    tiers: Tiers,
) -> int:
    """Shows committed offsets, lag and members of consumer groups.

    The groups are read from __consumer_offsets on disk. PATH is a log directory, or a partition of __consumer_offsets
    or __share_group_state; several may be given. If a partition has several replicas, the most advanced one counts.

    Offsets that a transaction committed count if its marker is COMMIT. Lag is counted up to the end of the longest log
    of a partition that is there, with --at too. A group's state is the one it would have in a broker that loads it.

    For a share group, the start offset is shown, and --json has the batches from there on: what is acknowledged or
    archived, and what will be delivered again. For a streams group, --json has the topology that the group keeps, with
    its epoch, and the tasks of its members. --json also has the settings that a group has of its own in the cluster's
    metadata (kafka-configs --entity-type groups).

    USED-BY is connect-sink for the group of a sink connector (connect-NAME), connect-workers for the one in which
    Connect's workers meet, streams for a Streams application, of either protocol, schema-registry, or -.

    --csv writes the file that `kafka-consumer-groups --reset-offsets --from-file` takes: topic,partition,offset for one
    group, and group,topic,partition,offset for several. It leaves out commits of partitions that the cluster's metadata
    does not have: for one of those the tool resets nothing for any group. Of a share group alone (--group) it writes
    where it starts, for `kafka-share-groups --reset-offsets --from-file` of Kafka 4.4; beside others it leaves it out.

    Damage is reported and skipped; the exit code is then 3.

    Examples:
      seglog groups /var/lib/kafka/data
      seglog groups --group "app-*" --json /var/lib/kafka/data
      seglog groups --at 2026-11-21T05:03:44Z /var/lib/kafka/data
      seglog groups --csv /var/lib/kafka/data
    """
    from seglog.scan.listing import resolve_paths
    from seglog_rescue.operations.groups import read_groups

    asked = {"reset-csv"} if as_csv else set()
    asked |= {one_of("--format", output_format, FORMATS)} if output_format is not None else set()
    asked |= {"json"} if session.as_json else set()
    if len(asked) > 1:
        raise UsageError(f"give one form: {' or '.join(sorted(asked))}")
    form = asked.pop() if asked else "table"
    session, paths = tiers.seen(session, paths)
    report = read_groups(session.fs, resolve_paths(session.fs, paths), at_ms=at, wanted=_wanted(group))
    for sentence in (*report.problems, *report.notes):
        session.console.warning(sentence)
    for pattern in group or ():
        if not any(_wanted([pattern])(group_row.name) for group_row in report.groups):
            session.console.warning(f"--group {pattern}: no such group")
    if not report.groups and not group:
        session.console.message(NOT_YET if at is not None else "no group has committed an offset")
    if form == "reset-csv":
        show_reset_csv(session.console, report)
    elif report.groups or session.as_json:
        show_groups(session.console, report.groups, as_json=form == "json")
    return tiers.code(ExitCode.INCOMPLETE if report.problems else ExitCode.DONE)


def _wanted(patterns: Sequence[str] | None) -> Callable[[str], bool]:
    """Returns a test for the names that were asked for or fit one of the patterns; without patterns, all do."""
    return lambda name: not patterns or any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)


def show_groups(console: Console, groups: Sequence[Group], *, as_json: bool) -> None:
    """Shows a table of groups and one of offsets, with the headings of kafka-consumer-groups; or JSON lines."""
    if as_json:
        for group in groups:
            _json(console, group)
        return
    rows = [
        (
            group.name,
            group.kind,
            group.state,
            str(len(group.members)),
            str(len(group.partitions)),
            number_cell(group.lag),
            group.used_by or "-",
        )
        for group in groups
    ]
    console.table(_GROUPS, rows, Layout(right=(3, 4, 5)))
    console.line()
    offsets = [_row(group.name, partition) for group in groups for partition in group.partitions]
    console.table(_OFFSETS, offsets, Layout(right=(2, 3, 4, 5), yielding=(7, 6)))


def show_reset_csv(console: Console, report: GroupsReport) -> None:
    """Writes the CSV to standard output, and how to use it with Kafka's tool to standard error (-v)."""
    from seglog_rescue.groups.states import SHARE
    from seglog_rescue.operations.groups import reset_csv, resettable

    left_out = [group.name for group in report.groups if group.kind == SHARE]
    alone = len(report.groups) == len(left_out) == 1
    if left_out and not alone:
        console.warning(
            f"kafka-consumer-groups takes no share groups; left out: {', '.join(left_out)} (each alone, by --group, has"
            " lines for kafka-share-groups of Kafka 4.4)"
        )
    fails = "for a partition that is not there, kafka-consumer-groups --from-file resets nothing for any group"
    if report.absent:
        console.warning(f"the cluster has no {_named(report.absent)}; left out: {fails}")
    if report.unseen:
        console.warning(f"nothing here shows whether {_named(report.unseen)} exists: take such lines out, or {fails}")
    console.write_exactly(reset_csv(report.groups, report.absent).encode("utf-8", "surrogateescape"))
    taken = [group.name for group in resettable(report.groups, report.absent)]
    if taken:  # with --all-groups the tool of 4.3 takes the lines for those of one group, and fails
        which = command_line(*(word for name in taken for word in ("--group", name)))
        kind = "share" if alone else "consumer"
        console.detail(f"kafka-{kind}-groups --reset-offsets --from-file FILE {which} --execute")


def _named(partitions: Iterable[TopicPartition]) -> str:
    """Returns the first partitions by name, and how many more there are."""
    names = [str(partition) for partition in sorted(partitions)]
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _row(group: str, row: GroupPartition) -> tuple[str, ...]:
    committed = "-" if row.committed_ms is None else time_cell(row.committed_ms)
    member = "-" if row.member is None else row.member.member_id
    numbers = (number_cell(row.offset), number_cell(row.log_end_offset), number_cell(row.lag))
    return (group, row.partition.topic, str(row.partition.partition), *numbers, committed, member)


def _json(console: Console, group: Group) -> None:
    console.json(
        {
            "type": "group",
            "group": group.name,
            "group_type": group.kind,
            "state": group.state,
            "epoch": group.epoch,
            "assignment_epoch": group.assignment_epoch,
            "members": [_member(member) for member in group.members],
            "partitions": len(group.partitions),
            "lag": group.lag,
            "used_by": group.used_by,
            "topology": None if group.topology is None else _topology(group.topology),
            "settings": dict(group.settings),
        }
    )
    for row in group.partitions:
        console.json(_offset(group.name, row))


def _offset(group: str, row: GroupPartition) -> dict[str, object]:
    from seglog_rescue.groups.share_batches import SHARE_STATES

    return {
        "type": "group_offset",
        "group": group,
        "topic": row.partition.topic,
        "partition": row.partition.partition,
        "offset": row.offset,
        "log_end_offset": row.log_end_offset,
        "lag": row.lag,
        "leader_epoch": row.leader_epoch,
        "metadata": row.metadata,
        "committed": row.committed_ms,
        "expires": row.expires_ms,
        "pending_offset": row.pending_offset,
        "member_id": None if row.member is None else row.member.member_id,
        "misplaced": row.misplaced,
        "batches": [
            {
                "first_offset": batch.first,
                "last_offset": batch.last,
                "state": SHARE_STATES.get(batch.state, str(batch.state)),
                "delivery_count": batch.deliveries,
            }
            for batch in row.batches
        ],
    }


def _member(member: Member) -> dict[str, object]:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "host": member.host,
        "epoch": member.epoch,
        "assigned": [str(partition) for partition in member.assigned],
        "tasks": list(member.tasks),
    }


def _topology(topology: Topology) -> dict[str, object]:
    return {
        "epoch": topology.epoch,
        "subtopologies": [{"id": name, "sources": list(topics)} for name, topics in topology.sources.items()],
        "changelogs": list(topology.changelogs),
    }
