"""`seglog where`: which partition a key, a group or a transactional id belongs to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from seglog_cli.exit_codes import ExitCode
from seglog_cli.failures import UsageError
from seglog_cli.options import argument, command, option
from seglog_cli.session import Session
from seglog_cli.sourcing import OnCorrupt, source_of, tell_left_out
from seglog_cli.tables import Layout
from seglog_cli.tiering import Tiers

if TYPE_CHECKING:
    from seglog_ask.operations.where import Placed

MOST_PARTITIONS = 1 << 20
INTERNAL_PARTITIONS = 50  # offsets.topic.num.partitions, transaction.state.log.num.partitions


@command(urls=["paths"])
def run(
    session: Session,
    paths: Annotated[
        list[Path] | None, argument("PATH", "Partitions of one topic, or LOGDIR/TOPIC, whose keys are looked at.")
    ] = None,
    key: Annotated[str | None, option("--key", "KEY", "The key of a record.")] = None,
    group: Annotated[
        str | None, option("--group", "NAME", "A consumer group: its partition of __consumer_offsets.")
    ] = None,
    transactional_id: Annotated[
        str | None, option("--txn-id", "ID", "A transactional id: its partition of __transaction_state.")
    ] = None,
    partitions: Annotated[
        int | None,
        option(
            "--partitions",
            "N",
            "The number of partitions (default: one more than the highest PATH; 50 for --group and --txn-id).",
            least=1,
            most=MOST_PARTITIONS,
        ),
    ] = None,
    on_corrupt: OnCorrupt = "fail",
    *,
    tiers: Tiers,
) -> int:
    """Tells which partition a key goes to, and by which partitioner.

    Clients partition differently: a row for each partitioner says who uses it and where it sends the key. If paths are
    named, the last column says how many of their keys (up to 10,000, the first of each partition) lie where that
    partitioner sends them, so that it tells which one the topic's producers use.

    --group and --txn-id tell the partition of __consumer_offsets and __transaction_state, whose leader is the
    coordinator.

    Examples:
      seglog where --key customer-124 --partitions 2
      seglog where --key customer-124 customers
      seglog where --group app-classic
    """
    if sum(one is not None for one in (key, group, transactional_id)) != 1:
        raise UsageError("give one of --key, --group and --txn-id")
    if key is None:
        if paths:
            raise UsageError("PATH is for --key")
        _show_coordinator(session, group, transactional_id, partitions or INTERNAL_PARTITIONS)
        return ExitCode.DONE
    if not paths and partitions is None:
        raise UsageError("--key needs the topic's PATH, or --partitions N")
    from seglog_ask.operations.where import placed, sampled_keys

    count, sample, code = partitions or 0, dict[int, list[bytes]](), ExitCode.DONE
    if paths:
        source = source_of(session, paths, tiers, "read_uncommitted", on_corrupt)
        there, sample = sampled_keys(source)
        if partitions is not None and partitions < there:
            raise UsageError(f"--partitions {partitions}: partition {there - 1} is among the paths")
        count, code = partitions or there, tell_left_out(session, source)
    _show(session, placed(os.fsencode(key), count, sample), count)
    return tiers.code(code)


def _show_coordinator(session: Session, group: str | None, transactional_id: str | None, partitions: int) -> None:
    from seglog_rescue.operations.groups import coordinator_partition

    topic = "__consumer_offsets" if group is not None else "__transaction_state"
    partition = coordinator_partition(group or transactional_id or "", partitions)
    session.console.result(
        {"type": "coordinator", "topic": topic, "partition": partition, "partitions": partitions},
        f"{topic}-{partition} (of {partitions} partitions)",
    )


def _show(session: Session, rows: list[Placed], partitions: int) -> None:
    """Shows a row for each partitioner, those that the data obeys first."""
    rows = sorted(rows, key=lambda row: -row.obeyed)
    for row in rows if session.as_json else ():
        session.console.json(
            {
                "type": "partitioner",
                "partitioner": row.partitioner.name,
                "partition": row.partition,
                "partitions": partitions,
                "obeyed": row.obeyed if row.sampled else None,
                "sampled": row.sampled or None,
                "clients": row.partitioner.clients,
                "keyless": row.partitioner.keyless,
            }
        )
    if session.as_json:
        return
    cells = []
    for row in rows:
        obeyed = f"{row.obeyed} of {row.sampled}" if row.sampled else "-"
        cells.append(
            (row.partitioner.name, str(row.partition), obeyed, row.partitioner.clients, row.partitioner.keyless)
        )
    heading = ("PARTITIONER", "PARTITION", "KEYS THAT OBEY", "CLIENTS", "WITHOUT A KEY")
    session.console.table(heading, cells, Layout(right=(1, 2), yielding=(4, 3)))
    if rows[0].sampled and partitions == 1:
        session.console.message("a topic of one partition obeys every partitioner")
