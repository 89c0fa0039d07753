"""`seglog transplant`: partitions of a dead cluster, in another one."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from seglog_cli.exit_codes import ExitCode
from seglog_cli.failures import UsageError, exit_code_of
from seglog_cli.options import DryRun, Quarantine, argument, command, flag, option
from seglog_cli.quarantines import remember_run
from seglog_cli.session import Session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from seglog.configuration.settings import DirectorySettings
    from seglog.operations.transplant import TransplantRequest
    from seglog.transplant.apply import TransplantOutcome
    from seglog.transplant.plan import TransplantPlan


@command
def run(
    session: Session,
    sources: Annotated[
        list[Path],
        argument("SOURCE", "Partition directories of the dead cluster, or whole log directories; only read."),
    ],
    into: Annotated[Path, option("--into", "LOGDIR", "The log directory of a stopped broker of another cluster.")],
    topic: Annotated[
        list[str] | None,
        option("--topic", "OLD[=NEW]", "Take only this topic, under a new name if one is given; repeatable."),
    ] = None,
    transactions_of: Annotated[
        list[Path] | None,
        option(
            "--transactions-of",
            "LOGDIR",
            "Another log directory whose __transaction_state says how open transactions ended; repeatable.",
        ),
    ] = None,
    every_replica: Annotated[
        bool, flag("--every-replica", "Confirm that every replica gets the same data before any broker starts.")
    ] = False,
    dry_run: DryRun = False,
    quarantine: Quarantine = None,
) -> int:
    """Puts partitions of a dead cluster into a stopped broker of another one; offsets stay as they are.

    First make the topics in the new cluster, on that broker, with the same number of partitions and one replica. Then
    stop the broker in order. Records keep their offset, timestamp, key, value and headers. The topics keep the ids that
    the new cluster gave them. Leader epochs become 0. Plain batches lose their producer id, and transactions get ids
    that no cluster hands out: otherwise the broker could take a new producer's write for an old one's. A marker ends
    each transaction that is still open: COMMIT where its coordinator had committed it, else ABORT. Indexes are rebuilt.
    The source may come from a killed broker, and stays as it is.

    __consumer_offsets is taken along where the new cluster has it with as many partitions, so that groups resume; no
    group may have committed there before. __transaction_state stays behind, and so do topics that know other topics by
    id; the output says so.

    The command refuses, and changes nothing, where data would be lost: the broker runs or was not stopped in order, a
    partition holds other data, the numbers of partitions differ, the broker does not know the topic, the source is
    damaged, a run of seglog is unfinished there, or there is no room. You may run it again: it recognises what is
    already there. Until the broker has written, `seglog undo` takes it back.

    Examples:
      seglog transplant --dry-run /mnt/old/kafka --into /var/lib/kafka/data
      seglog transplant /mnt/old/kafka --into /var/lib/kafka/data
      seglog transplant /mnt/old/kafka/orders-0 --into /var/lib/kafka/data --topic orders=orders-restored
    """
    from seglog.operations.transplant import TransplantRequest
    from seglog.scan.listing import resolve_paths
    from seglog_cli.views.transplant import show_outcome, show_plan

    request = TransplantRequest(
        sources=resolve_paths(session.fs, sources),
        into=session.resolved(into),
        topics=_topics(topic or ()),
        transactions_of=[session.resolved(path) for path in transactions_of or ()],
        every_replica=every_replica,
        quarantine=quarantine,
    )
    if dry_run:
        plan, _ = _planned(session, request)
        show_plan(session.console, plan)
        return ExitCode.DONE
    outcome = _carried_out(session, request)
    if outcome.run is not None:
        remember_run(session, outcome.run.folder)
    code = ExitCode.DONE if outcome.failure is None else exit_code_of(outcome.failure)
    show_outcome(session.console, outcome, code)
    return code


def _planned(session: Session, request: TransplantRequest) -> tuple[TransplantPlan, DirectorySettings]:
    """The plan, and the target's configuration, by which it was made."""
    from seglog.operations.transplant import plan_transplant

    config_of = session.config_of(request.into)
    with session.progress("look") as progress:
        return plan_transplant(session.fs, session.clock, request, config_of, progress.advance), config_of


def _carried_out(session: Session, request: TransplantRequest) -> TransplantOutcome:
    """Plans and does it under the target's lock."""
    from seglog.operations.undo import settle
    from seglog.storage.lock import DirectoryLock
    from seglog.transplant.apply import carry_out

    with nullcontext() if session.fs.status(request.into) is None else DirectoryLock(request.into):
        settle(session.fs, request.into, session.settled)
        plan, config_of = _planned(session, request)
        with session.progress("transplant", sum(one.source.size for one in plan.pending)) as progress:
            return carry_out(session.fs, session.clock, plan, config_of, progress.advance)


def _topics(given: Sequence[str]) -> dict[str, str]:
    topics: dict[str, str] = {}
    for text in given:
        old, equals, new = text.partition("=")
        if not old or (equals and not new):
            raise UsageError(f"--topic {text}: not OLD or OLD=NEW")
        if topics.setdefault(old, new or old) != (new or old):
            raise UsageError(f"--topic {text}: {old} is given twice")
    return topics
