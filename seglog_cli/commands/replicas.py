"""`seglog replicas`: which copy of each partition to trust, and what each choice loses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from seglog.units import count_text
from seglog_cli.commands.rebuild import Nodes, nodes_of
from seglog_cli.console import Console
from seglog_cli.exit_codes import ExitCode
from seglog_cli.failures import UsageError
from seglog_cli.options import argument, command, flag, option
from seglog_cli.session import Session
from seglog_cli.tables import Layout, time_cell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from seglog_rescue.operations.replicas import ReplicasReport
    from seglog_rescue.replicas.comparison import Choice, CopyVerdict, Loss, PartitionVerdict
    from seglog_rescue.replicas.facts import HostFacts

_HEADING = ("PARTITION", "BROKER", "LOG-END-OFFSET", "WHY", "LOSES", "OTHER BROKERS LOSE")


@command(urls=["sources", "metadata"])
def run(
    session: Session,
    sources: Annotated[
        list[Path],
        argument("FACTS|LOGDIR", "Files that --collect wrote, and log directories of brokers; only read."),
    ],
    collect: Annotated[
        Path | None,
        option("--collect", "FACTS", "Write the facts about these log directories to this file, and compare nothing."),
    ] = None,
    replace: Annotated[bool, flag("--replace", "Replace the file of --collect if it is there.")] = False,
    output: Annotated[
        Path | None, option("--output -o", "DIR", "A new directory for the steps as a script, and its files.")
    ] = None,
    metadata: Annotated[
        list[Path] | None,
        option("--metadata", "PATH", "A copy of __cluster_metadata-0, or one of its snapshots; repeatable."),
    ] = None,
    node: Nodes = None,
) -> int:
    """Shows which copy to start from, and what each choice loses.

    Use it when brokers died one after the other, a disk is lost, or an unclean election is due. Give the log
    directories of all brokers and controllers. If they are on several hosts, run --collect on each of them, and give
    the files to one command anywhere. Facts are offsets, leader epochs, damage and digests, and never a record. Brokers
    must be stopped.

    Each partition that needs a decision has a row: the broker to start from and why, what that loses, and what any
    other choice loses. A loss is what another copy holds and the chosen one lacks after its broker's start. Offsets are
    exact. Records are counted exactly if no offset is missing among them; otherwise there are at most that many.

    Losses are `acknowledged` if they lie below a high watermark, `not acknowledged` if a replica in sync lacks them by
    the newest metadata, and otherwise `perhaps acknowledged`: brokers write their high watermarks every five seconds.
    Acknowledged here means to producers with acks=all.

    The choice is a replica in sync if the metadata is no older than the logs and the log has not lost records since;
    then the newest leader epoch, the fewest acknowledged offsets missing, the longest log, and the least damaged one.
    rebuild and transplant choose by the same rule.

    The end of the output says what to do, as lines for a shell: what to copy first, in which order to start the
    brokers, and where to elect a leader by hand. --output writes them as a script, with the files that they need.

    The exit code is 0 if all copies agree, 1 if a choice would lose something or a copy is damaged or missing, and 3
    if some of the input could not be read.

    Examples:
      seglog replicas --collect broker1.facts /var/lib/kafka/data
      seglog replicas broker1.facts broker2.facts broker3.facts
      seglog replicas --json /mnt/broker1/kafka /mnt/broker2/kafka /mnt/controller/kafka
    """
    from seglog_rescue.operations.replicas import ReplicasRequest, compare, write_steps
    from seglog_rescue.operations.replicas import collect as collect_facts

    request = ReplicasRequest(sources, metadata or (), nodes_of(node))
    if collect is not None:
        if output is not None:
            raise UsageError("--output is for comparing; give --collect alone")
        with session.progress("read") as progress:
            facts = collect_facts(session.fs, session.clock, request, progress.advance)
        return write(session, facts, collect, replace=replace)
    if replace:
        raise UsageError("--replace is for --collect")
    with session.progress("read") as progress:
        report = compare(session.fs, session.clock, request, progress.advance)
    show_report(session.console, report)
    made = [] if output is None else write_steps(session.fs, report, session.resolved(output))
    code = ExitCode.FOUND if report.in_question else ExitCode.DONE
    code = code if report.is_complete else ExitCode.INCOMPLETE
    show_end(session.console, report, made, code)
    return code


def write(session: Session, facts: HostFacts, place: Path, *, replace: bool) -> int:
    """Writes the facts, and says what they hold."""
    from seglog_rescue.operations.replicas import write_collected

    size = write_collected(session.fs, facts, session.resolved(place), replace=replace)
    replicas = [replica for directory in facts.directories for replica in directory.replicas]
    code = ExitCode.INCOMPLETE if any(replica.problem for replica in replicas) else ExitCode.DONE
    if session.console.as_json:
        session.console.json({"type": "written", "file": str(place)})
        counts = {"directories": len(facts.directories), "replicas": len(replicas), "bytes": size}
        session.console.json({"type": "summary", "exit_code": int(code), **counts})
        return code
    for replica in replicas:
        if replica.problem:
            session.console.warning(f"{replica.directory}: {replica.problem}")
    session.console.line(f"{place}: facts about {count_text(len(replicas), 'replica')}, {count_text(size, 'byte')}")
    return code


def show_report(console: Console, report: ReplicasReport) -> None:
    """Shows the partitions that need a decision, and the remarks."""
    cluster = report.cluster
    if console.as_json:
        for verdict in report.in_question:
            console.json(_json(verdict))
    else:
        if cluster.metadata is not None:
            console.line(f"metadata: {cluster.metadata.source} up to offset {cluster.metadata.end - 1}")
        rows = [_row(verdict) for verdict in report.in_question]
        if rows:
            console.table(_HEADING, rows, Layout(right=(1, 2), yielding=(3,)))
        for verdict in report.in_question:
            for sentence in _sentences(verdict):
                console.line(f"{verdict.partition}: {sentence}")
    for remark in cluster.remarks:
        console.warning(remark)


def show_end(console: Console, report: ReplicasReport, made: Sequence[Path], code: ExitCode) -> None:
    """Shows how many partitions agree, and what to do."""
    from seglog_rescue.operations.replicas import step_lines

    agree = len(report.partitions) - len(report.in_question)
    if console.as_json:
        for step in report.steps:
            console.json(
                {
                    "type": "step",
                    "where": step.where,
                    "message": step.why,
                    "lines": list(step.lines),
                    "file": step.file or None,
                    "contents": step.contents or None,
                }
            )
    else:
        verb = "agrees" if agree == 1 else "agree"
        console.line(f"{count_text(len(report.partitions), 'partition')}: {agree} {verb} on all brokers")
        console.lines([*(["next:"] if report.steps else []), *step_lines(report)])
    for path in made:
        console.result({"type": "written", "file": str(path)}, str(path))
    if console.as_json:
        counts = {"partitions": len(report.partitions), "agree": agree, "in_question": len(report.in_question)}
        order = list(report.start.order)
        console.json({"type": "summary", "exit_code": int(code), **counts, "start_order": order})


def _row(verdict: PartitionVerdict) -> tuple[str, ...]:
    chosen = verdict.chosen()
    if chosen is None or verdict.choice is None:
        return (str(verdict.partition), "-", "-", verdict.why, "-", "-")
    end = next(copy.copy.facts.end for copy in verdict.copies if copy.copy.node == verdict.choice)
    others = "; ".join(f"{choice.node}: {losses_text(choice)}" for choice in verdict.choices[1:])
    return (str(verdict.partition), str(verdict.choice), str(end), verdict.why, losses_text(chosen), others or "-")


def losses_text(choice: Choice) -> str:
    """Says in short what a choice loses."""
    return ", ".join(_loss_text(loss) for loss in choice.lost) or "nothing"


def _loss_text(loss: Loss) -> str:
    words = {"yes": "acknowledged", "perhaps": "perhaps acknowledged", "no": "not acknowledged"}
    span = str(loss.first) if loss.end == loss.first + 1 else f"{loss.first} to {loss.end - 1}"
    bound = "" if loss.exact else "at most "
    since = "" if loss.first_timestamp < 0 else f" since {time_cell(loss.first_timestamp)}"
    return f"{span} ({bound}{count_text(loss.records, 'record')}{since}, {words[loss.acknowledged.value]})"


def _sentences(verdict: PartitionVerdict) -> list[str]:
    """Returns what a row has no room for: divergence, damage, what is missing, groups."""
    sentences = list(verdict.remarks)
    for copy in verdict.copies:
        sentences += _of_copy(copy)
    if verdict.missing:
        names = ", ".join(map(str, verdict.missing))
        several = len(verdict.missing) > 1
        whose = f"the replicas of brokers {names} are" if several else f"the replica of broker {names} is"
        sentences.append(f"{whose} in none of the given directories")
    for choice in verdict.choices[:1]:
        sentences += [_given_up(loss) for loss in choice.losses if loss.was_given_up]
        for group, offset in choice.groups_above:
            sentences.append(
                f"the group {group} has committed offset {offset}, above the end of broker {choice.node}'s copy"
            )
    return sentences


def _given_up(loss: Loss) -> str:
    return (
        f"broker {loss.node} has acknowledged records ({_span(loss.first, loss.end)}) that a later leader lacked when"
        " it was elected (uncleanly, or its log had lost them); newer records stand in their place, and the lines"
        " below save them"
    )


def _span(first: int, end: int) -> str:
    return f"offset {first}" if end == first + 1 else f"offsets {first} to {end - 1}"


def _of_copy(copy: CopyVerdict) -> list[str]:
    facts, node = copy.copy.facts, copy.copy.node
    sentences = [f"broker {node}: {facts.problem}"] if facts.problem else []
    if copy.parts_at is not None and copy.parts_at < facts.disk_end:
        sentences.append(
            f"broker {node} has records of its own from offset {copy.parts_at} on, up to {facts.disk_end - 1}"
        )
    for hole in copy.holes:
        place = f" ({hole.file} from position {hole.position} on)" if hole.file else ""
        several = ", in several places" if hole.is_coarse else ""
        sentences.append(f"broker {node}: {_span(hole.first, hole.end)}: {hole.reason}{place}{several}")
    for first, end in copy.differs:
        sentences.append(
            f"broker {node} holds other batches than the chosen copy somewhere in {first} to {end - 1}, and no leader"
            " epoch says why: no broker mends that; seglog diff shows them"
        )
    if copy.keys is not None and copy.lacks_keys:
        sentences.append(
            f"broker {node} has other newest records of some keys than the chosen copy, below offset {copy.keys.end}"
            f" ({copy.keys.other} keys, and {copy.keys.chosen} in the chosen copy), and compaction does not explain"
            " that: seglog diff --level view shows them"
        )
    if facts.end < facts.disk_end:
        sentences.append(f"broker {node}: a start cuts {_span(facts.end, facts.disk_end)}")
    return sentences


def _json(verdict: PartitionVerdict) -> dict[str, Any]:
    entry = verdict.entry
    return {
        "type": "replicas",
        "partition": str(verdict.partition),
        "topic_id": verdict.topic_id or None,
        "broker": verdict.choice,
        "why": verdict.why,
        "leader": None if entry is None else entry.leader,
        "leader_epoch": None if entry is None else entry.leader_epoch,
        "isr": None if entry is None else list(entry.isr),
        "elr": None if entry is None else list(entry.eligible),
        "metadata_is_current": verdict.current,
        "missing": list(verdict.missing),
        "copies": [_json_copy(copy) for copy in verdict.copies],
        "choices": [_json_choice(choice) for choice in verdict.choices],
        "aside": [copy.facts.directory for copy in verdict.aside],
        "remarks": list(verdict.remarks),
    }


def _json_copy(verdict: CopyVerdict) -> dict[str, Any]:
    facts = verdict.copy.facts
    return {
        "broker": verdict.copy.node,
        "directory": facts.directory,
        "in_sync": verdict.in_sync,
        "start_offset": facts.start,
        "end_offset": facts.end,
        "disk_end_offset": facts.disk_end,
        "leader_epoch": facts.on_disk.newest_epoch,
        "high_watermark": facts.high_watermark,
        "diverges_at": verdict.parts_at,
        "newest_timestamp": facts.newest_timestamp,
        "open_transactions": facts.open_transactions,
        "torn_bytes": facts.torn_bytes,
        "damage": [
            {
                "first_offset": hole.first,
                "last_offset": hole.end - 1,
                "reason": hole.reason,
                "file": hole.file or None,
                "position": hole.position if hole.file else None,
            }
            for hole in verdict.holes
        ],
        "keys": _json_keys(verdict),
        "differs": [{"first_offset": first, "last_offset": end - 1} for first, end in verdict.differs],
        "problem": facts.problem or None,
    }


def _json_keys(verdict: CopyVerdict) -> dict[str, Any] | None:
    keys = verdict.keys
    if keys is None:
        return None
    return {"end_offset": keys.end, "agree": keys.agree, "keys": keys.other, "chosen_keys": keys.chosen}


def _json_choice(choice: Choice) -> dict[str, Any]:
    return {
        "broker": choice.node,
        "losses": [
            {
                "held_by": loss.node,
                "first_offset": loss.first,
                "last_offset": loss.end - 1,
                "records": loss.records,
                "exact": loss.exact,
                "first_timestamp": loss.first_timestamp,
                "last_timestamp": loss.last_timestamp,
                "acknowledged": loss.acknowledged.value,
                "cause": loss.cause.value,
            }
            for loss in choice.losses
        ],
        "groups_above": [{"group": group, "offset": offset} for group, offset in choice.groups_above],
    }
