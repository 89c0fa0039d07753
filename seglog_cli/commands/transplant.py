"""`seglog transplant`: moves partitions of a dead cluster into another one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from seglog.units import count_text
from seglog_cli.console import Console
from seglog_cli.exit_codes import ExitCode
from seglog_cli.failures import UsageError, exit_code_of, message_of
from seglog_cli.options import DryRun, Quarantine, argument, command, flag, option
from seglog_cli.progress import bytes_text
from seglog_cli.session import Session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from seglog_rescue.operations.transplant import TransplantRequest
    from seglog_rescue.transplant.apply import TransplantOutcome
    from seglog_rescue.transplant.plan import PartitionPlan, TransplantPlan


@command(urls=["sources", "transactions_of"], changes_logs=True)
def run(
    session: Session,
    sources: Annotated[
        list[Path],
        argument("SOURCE", "Partition or log directories of the dead cluster, or snapshots of them; only read."),
    ],
    into: Annotated[
        list[Path],
        option(
            "--into",
            "LOGDIR",
            "The log directory of a stopped broker of another cluster; repeatable for all directories of that broker.",
        ),
    ],
    topic: Annotated[
        list[str] | None,
        option("--topic", "OLD[=NEW]", "Take only this topic, under a new name if one is given; repeatable."),
    ] = None,
    transactions_of: Annotated[
        list[Path] | None,
        option(
            "--transactions-of",
            "LOGDIR",
            "Another log directory, or a snapshot, whose __transaction_state says how open transactions ended;"
            " repeatable.",
        ),
    ] = None,
    every_replica: Annotated[
        bool, flag("--every-replica", "Confirm that every replica gets the same data before any broker starts.")
    ] = False,
    dry_run: DryRun = False,
    quarantine: Quarantine = None,
) -> int:
    """Copies a dead cluster's partitions into another cluster's broker.

    The other cluster's broker must be stopped. Offsets stay the same. The broker is one whose topics have ids in their
    directories: of a cluster without ZooKeeper, or with ZooKeeper of Kafka 3.0 or later; others are refused. The old
    cluster's broker may be of any release since 0.8. The output says which releases they are, as far as their
    directories show it.

    First create the topics in the new cluster, on that broker, with the same number of partitions and one replica. Then
    stop the broker cleanly, and run this command. If the broker has several log directories, name each with --into:
    every partition goes where the broker has it. The old cluster's broker may have been killed; the source stays as it
    is. Until the new broker has written, `seglog undo` takes the transplant back.

    Records keep their offset, timestamp, key, value and headers. Topics keep the ids that the new cluster gave them.
    Leader epochs become 0, and indexes are rebuilt.

    Plain batches lose their producer id, and transactions get ids that no cluster hands out: otherwise the broker could
    take a new producer's write for an old one's. Each transaction that is still open is ended by a marker: COMMIT if
    its coordinator had committed it, otherwise ABORT.

    __consumer_offsets is copied too, so that groups resume, if the new cluster has it with as many partitions and no
    group has joined or committed there yet. A topic that was deleted has no committed offsets any more: `seglog groups
    --at` shows those of an earlier time. __transaction_state stays behind, and so do topics that refer to other topics
    by id; the output says so.

    Of several replicas in the log directories of brokers, the one that `seglog replicas` would choose is taken: one in
    sync, else with the newest leader epoch, and of several the longest. A note names each broker that the old cluster's
    metadata knows and that is missing.

    The command refuses, and changes nothing, where data would be lost: the broker runs or was not stopped cleanly, a
    partition holds other data, the numbers of partitions differ, the broker does not know the topic, the source is
    damaged, a run of seglog is unfinished there, or there is no room. You may run it again: it recognises what is
    already there.

    Examples:
      seglog transplant --dry-run /mnt/old/kafka --into /var/lib/kafka/data
      seglog transplant /mnt/old/kafka --into /var/lib/kafka/data
      seglog transplant /mnt/old/kafka --into /data1/kafka --into /data2/kafka
      seglog transplant /mnt/backup#latest --into /var/lib/kafka/data
      seglog transplant /mnt/old/kafka/orders-0 --into /var/lib/kafka/data --topic orders=orders-restored
    """
    from seglog.remote_path import SNAPSHOT_MARK, RemotePath
    from seglog_rescue.operations.transplant import TransplantKeywords, TransplantRequest

    for path in (*sources, *(transactions_of or ())):
        if isinstance(path, RemotePath) and SNAPSHOT_MARK not in str(path):
            what = "of an object store only a snapshot of a backup is taken: copy it to a disk first"
            raise UsageError(f"{path}: {what}")
    session.named[:] = into  # the sources are copies, not directories of the broker

    keywords = TransplantKeywords(
        topics=_topics(topic or ()),
        transactions_of=transactions_of or [],
        every_replica=every_replica,
        quarantine=quarantine,
        beside=into[1:],
    )
    fs, request = TransplantRequest.seeing_snapshots(session.fs, sources, into[0], keywords)
    looking = session.looking(fs)
    if dry_run:
        show_plans(session.console, _planned(looking, request))
        return ExitCode.DONE
    outcomes = _carried_out(looking, request)
    for outcome in outcomes:
        if outcome.run is not None:
            session.remember_run(outcome.run.folder)
    failure = outcomes[0].failure
    code = ExitCode.DONE if failure is None else exit_code_of(failure)
    show_outcomes(session.console, outcomes, code)
    return code


def _planned(session: Session, request: TransplantRequest) -> list[TransplantPlan]:
    from seglog_rescue.operations.transplant import plan_each, plan_transplant

    def plan(part: TransplantRequest) -> TransplantPlan:
        return plan_transplant(session.fs, session.clock, part, session.config_of(part.into), progress.advance)

    with session.progress("look") as progress:
        return plan_each(request, plan)


def _carried_out(session: Session, request: TransplantRequest) -> list[TransplantOutcome]:
    """Plans and applies the transplant under the targets' locks."""
    from seglog_rescue.operations.transplant import carry_out_each, locked_targets
    from seglog_rescue.transplant.apply import carry_out

    def apply(plan: TransplantPlan) -> TransplantOutcome:
        return carry_out(session.fs, session.clock, plan, session.config_of(plan.log_directory), progress.advance)

    with locked_targets(session.fs, request, session.settled):
        plans = _planned(session, request)
        size = sum(partition.source.size for plan in plans for partition in plan.pending)
        with session.progress("transplant", size) as progress:
            return carry_out_each(session.fs, plans, apply)


def _topics(given: Sequence[str]) -> dict[str, str]:
    topics: dict[str, str] = {}
    for text in given:
        old, equals, new = text.partition("=")
        if not old or (equals and not new):
            raise UsageError(f"--topic {text}: not OLD or OLD=NEW")
        if topics.setdefault(old, new or old) != (new or old):
            raise UsageError(f"--topic {text}: {old} is given twice")
    return topics


def show_plans(console: Console, plans: Sequence[TransplantPlan]) -> None:
    """Shows what would be done in each log directory."""
    for plan in plans:
        _partitions(console, plan, dry_run=True, several=len(plans) > 1)
    if console.as_json:
        console.json({"type": "summary", "exit_code": 0, "run": None, "runs": [], **_counts(plans)})
    elif any(plan.pending for plan in plans):
        needed = bytes_text(sum(plan.bytes_needed for plan in plans))
        console.line(f"{_sentence(plans)} would be transplanted; {needed} of disk space is needed")
    else:
        console.line("nothing to do: the target holds this data already")


def show_outcomes(console: Console, outcomes: Sequence[TransplantOutcome], code: ExitCode) -> None:
    """Shows what was done, and what the operator does next. A failure has taken everything back."""
    plans, failure = [outcome.plan for outcome in outcomes], outcomes[0].failure
    done = [outcome for outcome in outcomes if outcome.run is not None and failure is None]
    runs = [outcome.run.name for outcome in done if outcome.run is not None]
    if failure is None:
        for plan in plans:
            _partitions(console, plan, dry_run=False, several=len(plans) > 1)
    else:
        console.error(f"the transplant failed and was taken back: {message_of(failure)}")
    steps = _next_steps([outcome.plan for outcome in done], runs) if runs else []
    if console.as_json:
        run = runs[0] if runs else None
        row = {"type": "summary", "exit_code": int(code), "run": run, "runs": runs, **_counts(plans), "next": steps}
        console.json(row)
    elif runs:
        console.line(console.styled(f"{_sentence(plans)} transplanted", "good"))
        console.line("next:")
        for number, step in enumerate(steps, 1):
            console.line(f"  {number}. {step}")
    elif failure is None:
        console.line("nothing to do: the target holds this data already")


def _partitions(console: Console, plan: TransplantPlan, *, dry_run: bool, several: bool) -> None:
    for partition in plan.partitions:
        if console.as_json:
            console.json(_row(partition, dry_run))
            continue
        name = console.styled(str(partition.partition), "strong")
        console.line(f"{name} from {partition.source.directory}{f' into {plan.log_directory}' if several else ''}")
        for step in () if console.quiet else partition.steps():
            console.line(f"  {step}")
    for sentence in plan.releases:
        console.result({"type": "release", "message": sentence}, sentence)
    for path, reason in plan.left_out:
        console.result({"type": "left_out", "path": path, "reason": reason}, f"left out {path}: {reason}")
    for note in plan.notes:
        console.warning(note)


def _row(partition: PartitionPlan, dry_run: bool) -> dict[str, Any]:
    source = partition.source
    return {
        "type": "transplant",
        "partition": str(partition.partition),
        "source": str(source.directory),
        "log_directory": str(partition.target.directory.parent),
        "dry_run": dry_run,
        "already_there": partition.done,
        "topic_id": partition.target.topic_id,
        "log_start_offset": source.log_start,
        "log_end_offset": partition.log_end,
        "segments": len(source.segments),
        "batches": source.batches,
        "bytes": source.size,
        "torn_bytes": source.torn_bytes,
        "leader_epochs_changed": source.changes.epochs,
        "producers_removed": source.changes.forgotten,
        "producers_moved": source.changes.moved,
        "transactions_ended": [
            {
                "producer_id": ending.transaction.producer_id,
                "first_offset": ending.transaction.first_offset,
                "records": ending.transaction.records,
                "marker": ending.marker,
                "offset": ending.offset,
                "reason": ending.why,
            }
            for ending in partition.endings
        ],
        "steps": list(partition.steps()),
        "notes": list(partition.notes),
    }


def _counts(plans: Sequence[TransplantPlan]) -> dict[str, int]:
    pending = [partition for plan in plans for partition in plan.pending]
    endings = [ending for partition in pending for ending in partition.endings]
    committed = sum(ending.commit for ending in endings)
    return {
        "partitions": len(pending),
        "already_there": sum(len(plan.partitions) for plan in plans) - len(pending),
        "bytes": sum(partition.source.size for partition in pending),
        "transactions_aborted": len(endings) - committed,
        "transactions_committed": committed,
    }


def _sentence(plans: Sequence[TransplantPlan]) -> str:
    counts = _counts(plans)
    aborted, committed = counts["transactions_aborted"], counts["transactions_committed"]
    ended = f", {count_text(aborted, 'open transaction')} ended by ABORT" if aborted else ""
    ended += f", {committed} by COMMIT" if committed else ""
    return f"{count_text(counts['partitions'], 'partition')}, {bytes_text(counts['bytes'])}{ended}:"


def _next_steps(plans: Sequence[TransplantPlan], runs: Sequence[str]) -> list[str]:
    first, places = plans[0].pending[0], ", ".join(str(plan.log_directory) for plan in plans)
    undo = " and ".join(f"seglog undo {run}" for run in runs)
    return [
        f"start the broker of {places}; its log reports {first.partition}: logEndOffset={first.log_end}",
        "restart producers and consumers of the old cluster: their cached state is not valid in this one",
        "add replicas with kafka-reassign-partitions when the broker leads the partitions",
        f"until the broker has started, {undo} {'takes' if len(runs) == 1 else 'take'} it back",
    ]
