"""`seglog rebuild`: rebuilds a cluster's lost metadata from its log directories."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from seglog.units import count_text
from seglog_cli.console import Console
from seglog_cli.exit_codes import ExitCode
from seglog_cli.failures import UsageError
from seglog_cli.options import DryRun, argument, command, flag, option
from seglog_cli.session import Session
from seglog_cli.tables import Layout, number_cell

if TYPE_CHECKING:
    from seglog_rescue.rebuild.plan import PlannedTopic, RebuildPlan

_SNAPSHOTS = 2  # one snapshot, in the two places where a controller may look for it
Nodes = Annotated[
    list[str] | None,
    option("--node", "LOGDIR=ID", "The node id of a directory whose meta.properties is lost; repeatable."),
]
_HEADING = ("PARTITION", "REPLICAS", "LEADER", "EPOCH", "LOG-END-OFFSET", "FROM")


@command()
def run(
    session: Session,
    directories: Annotated[
        list[Path],
        argument("LOGDIR", "All log directories of all brokers of the cluster, and of its controllers; only read."),
    ],
    output: Annotated[Path, option("--output -o", "DIR", "A new directory for the files that are made.")],
    metadata: Annotated[
        list[Path] | None,
        option(
            "--metadata",
            "PATH",
            "A copy of __cluster_metadata-0, or one of its snapshots, to read too; repeatable.",
        ),
    ] = None,
    node: Nodes = None,
    cluster_id: Annotated[str | None, option("--cluster-id", "ID", "The cluster's id, if no directory has it.")] = None,
    feature: Annotated[
        list[str] | None,
        option("--feature", "NAME=LEVEL", "A feature's level, as kafka-storage format takes it; repeatable."),
    ] = None,
    allow_missing: Annotated[
        bool, flag("--allow-missing", "Start partitions that no directory has as empty ones.")
    ] = False,
    without: Annotated[
        list[int] | None,
        option(
            "--without",
            "ID",
            "Go on without this broker's missing log directories: records that only they have are lost; repeatable.",
        ),
    ] = None,
    dry_run: DryRun = False,
) -> int:
    """Rebuilds a cluster's lost metadata from its log directories.

    The brokers then start on their directories as they are.

    Give all log directories of all brokers, and of the controllers if they are left. They are only read.

    The command reads topic ids, partitions, leader epochs and producer ids from the brokers' directories. It also reads
    the metadata that is left: logs and snapshots of controllers, and from damaged ones all records before the damage.

    It writes the snapshot with which a controller's empty metadata log begins: the topics under their old ids, the
    partitions with their replicas, configuration, features, quotas, ACLs and users as far as they are known, and a
    producer id above all that were used. The snapshot lies in DIR twice: Kafka up to 4.3 reads bootstrap.checkpoint,
    Kafka from 4.4 on reads the one in __cluster_metadata-0. DIR/node-ID holds meta.properties and partition.metadata
    for the directories that lack them. The output says what was not known, and what to do next.

    If the quorum is dynamic (no controller.quorum.voters in server.properties), the snapshot names its voters: those of
    a controller's directory that was newly formatted, else those that the old metadata names last.

    The leader of a partition is the replica that `seglog replicas` would choose: with the newest leader epoch, and
    among those the longest log; where the metadata says which replicas were in sync, one of these, unless its log has
    lost acknowledged records since. If a topic's configuration is not known, retention.ms=-1 keeps its records.

    The command refuses where it would lose data: brokers or log directories that the metadata names and that are not
    given (see --without), directories of several clusters, a partition twice on one broker, a topic with several ids, a
    partition that no directory has (see --allow-missing), a running broker, or an unfinished run of seglog.

    The exit code is 3 if part of the metadata could not be read.

    Examples:
      seglog rebuild --dry-run /mnt/broker1/kafka /mnt/broker2/kafka -o rebuilt
      seglog rebuild /mnt/broker1/kafka /mnt/broker2/kafka /mnt/controller/kafka -o rebuilt
      seglog rebuild /mnt/broker1/kafka /mnt/broker2/kafka --metadata /backup/__cluster_metadata-0 -o rebuilt
    """
    from seglog_rescue.operations.rebuild import RebuildRequest, plan_rebuild, require_output, write_rebuilt

    request = RebuildRequest(
        [session.resolved(path) for path in directories],
        metadata or (),
        nodes_of(node),
        cluster_id,
        {name: _number("--feature", text, level) for text, name, level in _pairs("--feature", feature)},
        allow_missing,
        without or (),
    )
    with session.progress("look") as progress:
        plan = plan_rebuild(session.fs, session.clock, request, progress.advance)
    code = ExitCode.INCOMPLETE if plan.problems else ExitCode.DONE
    require_output(session.fs, plan, output)
    show_plan(session.console, plan)
    made = [] if dry_run else write_rebuilt(session.fs, session.clock, plan, output)
    show_written(session.console, plan, session.resolved(output), made, code)
    return code


def nodes_of(given: Sequence[str] | None) -> dict[Path, int]:
    """Returns the node ids by log directory that --node gives. Raises UsageError."""
    return {Path(name): _number("--node", text, number) for text, name, number in _pairs("--node", given)}


def _pairs(option: str, given: Sequence[str] | None) -> list[tuple[str, str, str]]:
    found = []
    for text in given or ():
        name, equals, value = text.rpartition("=")
        if not equals or not name:
            raise UsageError(f"{option} {text}: not of the form NAME=NUMBER")
        found.append((text, name, value))
    return found


def _number(option: str, text: str, number: str) -> int:
    if not (number.isascii() and number.isdigit() and int(number) < 1 << 31):
        raise UsageError(f"{option} {text}: {number!r} is not a number from 0 to 2147483647")
    return int(number)


def show_plan(console: Console, plan: RebuildPlan) -> None:
    """Shows the cluster, problems and notes."""
    if console.as_json:
        _show_json(console, plan)
    else:
        _show_text(console, plan)
    for note in (*plan.problems, *plan.notes):
        console.warning(note)


def show_written(console: Console, plan: RebuildPlan, output: Path, made: list[Path], code: ExitCode) -> None:
    """Shows the files that were made, or would be, and the next steps."""
    steps = _next_steps(plan, output)
    if console.as_json:
        for path in made:
            console.json({"type": "written", "file": str(path)})
        counts = {"topics": len(plan.topics), "partitions": plan.partitions, "problems": len(plan.problems)}
        console.json({"type": "summary", "exit_code": int(code), "written": len(made), **counts, "next": steps})
        return
    if not made:
        console.line(f"{output} would get {count_text(_SNAPSHOTS + len(plan.files), 'file')}")
        return
    for path in made:
        console.line(str(path))
    console.line("next:")
    for number, step in enumerate(steps, 1):
        console.line(f"  {number}. {step}")


def _show_text(console: Console, plan: RebuildPlan) -> None:
    new = ", a new id: no directory has one" if plan.cluster_id_is_new else ""
    console.line(f"cluster {plan.cluster_id}{new}")
    for number, paths in plan.nodes.items():
        console.line(f"broker {number}: {', '.join(map(str, paths))}")
    if plan.source is not None:
        console.line(f"metadata: {plan.source} up to offset {plan.end_offset - 1}")
    console.line(f"features: {', '.join(f'{name} {level}' for name, level in plan.features.items())}")
    if plan.voters:
        console.line(f"voters: {', '.join(map(str, plan.voters))}, from {plan.voters_source}")
    console.line(f"producer ids: from {plan.next_producer_id} on")
    console.line(f"other records, unchanged: {len(plan.records)}")
    console.line()
    rows = [
        (
            f"{topic.name}-{one.number}",
            ",".join(map(str, one.replicas)),
            str(one.leader),
            str(one.leader_epoch),
            number_cell(one.log_end),
            one.origin,
        )
        for topic in plan.topics
        for one in topic.partitions
    ]
    console.table(_HEADING, rows, Layout(right=(3, 4)))
    for topic in plan.topics:
        values = ", ".join(f"{key}={value}" for key, value in topic.configuration.items())
        console.line(f"{topic.name}: id {topic.topic_id}{f', {values}' if values else ''}")
    for path, reason in plan.left_out:
        console.line(f"left out {path}: {reason}")


def _show_json(console: Console, plan: RebuildPlan) -> None:
    console.json(
        {
            "type": "cluster",
            "cluster_id": plan.cluster_id,
            "cluster_id_is_new": plan.cluster_id_is_new,
            "brokers": {str(number): [str(path) for path in paths] for number, paths in plan.nodes.items()},
            "metadata": None if plan.source is None else str(plan.source),
            "metadata_end_offset": plan.end_offset,
            "features": dict(plan.features),
            "voters": [str(voter) for voter in plan.voters],
            "voters_from": None if plan.voters_source is None else str(plan.voters_source),
            "next_producer_id": plan.next_producer_id,
            "other_records": len(plan.records),
        }
    )
    for topic in plan.topics:
        console.json(_topic_row(topic))
    for path, reason in plan.left_out:
        console.json({"type": "left_out", "path": str(path), "reason": reason})
    for note in (*plan.problems, *plan.notes):
        console.json({"type": "note", "message": note})


def _topic_row(topic: PlannedTopic) -> dict[str, Any]:
    return {
        "type": "topic",
        "topic": topic.name,
        "topic_id": topic.topic_id,
        "topic_id_is_new": topic.id_is_new,
        "configs": dict(topic.configuration),
        "configs_known": topic.configuration_known,
        "partitions": [
            {
                "partition": one.number,
                "replicas": list(one.replicas),
                "leader": one.leader,
                "leader_epoch": one.leader_epoch,
                "log_end_offset": one.log_end,
                "from": one.origin,
            }
            for one in topic.partitions
        ],
    }


def _next_steps(plan: RebuildPlan, output: Path) -> list[str]:
    from seglog_rescue.operations.rebuild import copies, snapshot_places

    old = f": {', '.join(map(str, plan.old_metadata))}" if plan.old_metadata else ""
    made = " ".join(str(path) for path in snapshot_places(output))
    steps = ["stop all brokers and controllers of this cluster, and keep copies of their directories"]
    steps += [f"cp {source} {place}" for source, place in copies(plan, output)]
    steps.append(
        "on each controller and on each broker, move __cluster_metadata-0 out of metadata.log.dir (or log.dirs); a copy"
        f" that stays on a broker loses its partitions{old}"
    )
    if not plan.quorum_is_known:
        steps.append(
            "only without controller.quorum.voters: no directory names the quorum's voters; give the first controller a"
            " new, empty metadata.log.dir, run kafka-storage format --standalone --ignore-formatted"
            f" --cluster-id={plan.cluster_id} -c FILE, and run seglog rebuild once more with that directory, too"
        )
    for node in plan.without:
        joins = " --no-initial-controllers" if any(voter.node == node for voter in plan.voters) else ""
        steps.append(
            f"on broker {node}, make new, empty directories in place of the lost ones, and format them:"
            f" kafka-storage format --ignore-formatted{joins} --cluster-id={plan.cluster_id} -c FILE, with its"
            " server.properties"
        )
    return [
        *steps,
        f"on each controller, cp -R {made} METADATA_LOG_DIR/, over files of these names",
        "give these files to the user that Kafka runs as",
        "start the controllers, then all brokers; a partition is offline until its leader has started",
    ]
