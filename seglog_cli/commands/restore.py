"""`seglog restore`: makes partitions from directories that a broker set aside and from what repairs removed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from seglog.units import count_text
from seglog_cli.console import Console
from seglog_cli.exit_codes import ExitCode
from seglog_cli.options import DryRun, argument, command, option
from seglog_cli.progress import bytes_text
from seglog_cli.session import Session

if TYPE_CHECKING:
    from seglog_rescue.operations.restore import RestoredPartition, RestorePlan


@command()
def run(
    session: Session,
    sources: Annotated[
        list[Path],
        argument(
            "SOURCE",
            "Directories such as orders-0.UUID-delete, folders of runs, or log directories; only read.",
        ),
    ],
    output: Annotated[Path, option("--output -o", "DIR", "The directory to make the partitions in, as DIR/TOPIC-N.")],
    topic: Annotated[
        list[str] | None,
        option("--topic", "NAME", "The whole name of a topic that a broker cut in a directory's name; repeatable."),
    ] = None,
    dry_run: DryRun = False,
) -> int:
    """Makes partitions from directories that a broker set aside.

    Parts that repairs removed from logs can be made into partitions too.

    A broker renames the directory of a deleted topic to -delete, and that of a topic it does not know to -stray. An
    unfinished copy ends with -future. Name such directories, or a log directory to take all of them in it.

    The name of a -delete or -stray directory has at most 255 characters, so a broker cuts a long topic's name. The
    command takes such a directory only if --topic gives the whole name.

    A run's folder in a quarantine holds the old files of partitions, or the ends that a repair cut off. Name the log's
    own directory too, and both are joined. (`seglog quarantine restore` copies a run's files as they are.)

    Parts of one partition are joined by their offsets. If two parts hold the same offsets with equal bytes, one copy is
    taken. If they contradict each other, the command refuses and names files and offsets. Only good batches are taken.
    Indexes, snapshots and leader epochs are rebuilt. The sources stay as they are.

    If a restore is killed, run it again: it keeps the partitions that are complete.

    `seglog transplant DIR/TOPIC-N --into LOGDIR` brings the partition into a cluster. A broker that deletes a topic
    deletes the groups' offsets in it, too: `seglog groups --at -5m --format reset-csv LOGDIR` still shows them.

    The exit code is 1 if parts are damaged, or if offsets are missing between them; the output names each place.

    Examples:
      seglog restore /var/lib/kafka/data/orders-0.6b9f2c7d3e5a4f0c8d1b2a3c4d5e6f70-delete -o restored
      seglog restore --dry-run /var/lib/kafka/data -o restored
      seglog restore /var/lib/kafka/.seglog-quarantine/20261121T015349Z-7f3a /var/lib/kafka/data/orders-0 -o restored
    """
    from seglog_rescue.operations.restore import plan_restore, restore

    with session.progress("look") as progress:
        plan = plan_restore(session.fs, sources, output, topic or (), progress.advance)
    if not dry_run:
        restore(session.fs, session.clock, plan)
    code = ExitCode.DONE if plan.is_whole else ExitCode.FOUND
    show_restored(session.console, plan, code, dry_run=dry_run)
    return code


def show_restored(console: Console, plan: RestorePlan, code: ExitCode, *, dry_run: bool) -> None:
    """Shows each partition, and what could not be restored."""
    for partition in plan.partitions:
        if console.as_json:
            console.json(_row(partition, dry_run))
            continue
        goes = "is already in" if partition.is_there else "would go to" if dry_run else "to"
        console.line(f"{console.styled(str(partition.partition), 'strong')} {goes} {partition.target}")
        for sentence in _sentences(partition):
            console.line(f"  {sentence}")
    for path, reason in plan.left_out:
        console.result({"type": "left_out", "path": str(path), "reason": reason}, f"left out {path}: {reason}")
    if console.as_json:
        missing = sum(len(partition.joined.missing) for partition in plan.partitions)
        damaged = sum(len(partition.joined.damage) for partition in plan.partitions)
        counts = {"partitions": len(plan.partitions), "gaps": missing, "damaged": damaged}
        console.json({"type": "summary", "exit_code": int(code), **counts})


def _sentences(partition: RestoredPartition) -> Iterator[str]:
    joined = partition.joined
    yield f"parts: {', '.join(str(part.directory) for part in partition.parts)}"
    if len(joined.rows):
        offsets = f"offsets {joined.log_start} to {joined.log_end - 1}"
        yield f"{count_text(len(joined.rows), 'batch')}, {bytes_text(joined.size)}, {offsets}"
    else:
        yield f"empty; the log continues at offset {joined.log_end}"
    if joined.copies:
        yield f"{count_text(joined.copies, 'batch')} in several parts, with equal bytes"
    yield f"topic id {partition.topic_id}" if partition.topic_id else "no part has its topic id"
    for damage in joined.damage:
        place = f"from position {damage.position} on"
        yield f"{damage.path}: {damage.size} bytes {place} are not a good batch, and left out"
    for gap in joined.missing:
        yield f"offsets {gap.first} to {gap.last} are missing, between {gap.after} and {gap.before}"


def _row(partition: RestoredPartition, dry_run: bool) -> dict[str, Any]:
    joined = partition.joined
    return {
        "type": "restored_partition",
        "partition": str(partition.partition),
        "directory": str(partition.target),
        "dry_run": dry_run,
        "already_there": partition.is_there,
        "parts": [str(part.directory) for part in partition.parts],
        "topic_id": partition.topic_id,
        "log_start_offset": joined.log_start,
        "log_end_offset": joined.log_end,
        "batches": len(joined.rows),
        "bytes": joined.size,
        "copies": joined.copies,
        "damaged": [
            {"file": str(damage.path), "position": damage.position, "length": damage.size} for damage in joined.damage
        ],
        "missing": [
            {"first_offset": gap.first, "last_offset": gap.last, "after": str(gap.after), "before": str(gap.before)}
            for gap in joined.missing
        ],
    }
