"""A rebuilt cluster: its topics and partitions, what was not known, and what an operator does next."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from seglog.units import count_text
from seglog_cli.console import Console
from seglog_cli.tables import Layout, number_cell

if TYPE_CHECKING:
    from seglog.reconstruction.plan import PlannedPartition, PlannedTopic, RebuildPlan
    from seglog_cli.exit_codes import ExitCode

_HEADING = ("PARTITION", "REPLICAS", "LEADER", "EPOCH", "LOG-END-OFFSET", "FROM")


def show_plan(console: Console, plan: RebuildPlan) -> None:
    """The cluster, and what has to be said about it."""
    if console.as_json:
        _show_json(console, plan)
    else:
        _show_text(console, plan)
    for note in (*plan.problems, *plan.notes):
        console.warning(note)


def show_written(console: Console, plan: RebuildPlan, output: Path, made: list[Path], code: ExitCode) -> None:
    """What was made, or would be, and the next steps."""
    steps = _next_steps(plan, output)
    if console.as_json:
        for path in made:
            console.json({"type": "written", "file": str(path)})
        counts = {"topics": len(plan.topics), "partitions": plan.partitions, "problems": len(plan.problems)}
        console.json({"type": "summary", "exit_code": int(code), "written": len(made), **counts, "next": steps})
        return
    if not made:
        console.line(f"{output} would get {count_text(1 + len(plan.files), 'file')}")
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
    console.line(f"producer ids: from {plan.next_producer_id} on")
    console.line(f"other records as they were: {len(plan.records)}")
    console.line()
    rows = [_cells(topic, one) for topic in plan.topics for one in topic.partitions]
    console.table(_HEADING, rows, Layout(right=(3, 4)))
    for topic in plan.topics:
        values = ", ".join(f"{key}={value}" for key, value in topic.configuration.items())
        console.line(f"{topic.name}: id {topic.topic_id}{f', {values}' if values else ''}")
    for path, reason in plan.left_out:
        console.line(f"left out {path}: {reason}")


def _cells(topic: PlannedTopic, one: PlannedPartition) -> tuple[str, ...]:
    replicas = ",".join(map(str, one.replicas))
    numbers = (str(one.leader), str(one.leader_epoch), number_cell(one.log_end))
    return (f"{topic.name}-{one.number}", replicas, *numbers, one.origin)


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
    from seglog.format.filenames import BOOTSTRAP_CHECKPOINT
    from seglog.operations.rebuild import copies

    made = output / BOOTSTRAP_CHECKPOINT
    steps = ["stop all brokers and controllers of this cluster, and keep copies of their directories"]
    steps += [f"cp {source} {place}" for source, place in copies(plan, output)]
    return [
        *steps,
        "on each controller, move __cluster_metadata-0 out of metadata.log.dir (or log.dirs)",
        "only without controller.quorum.voters: give the first controller a new, empty metadata.log.dir, and run"
        f" kafka-storage format --standalone --ignore-formatted -t {plan.cluster_id} -c FILE",
        f"on each controller, cp {made} to the metadata.log.dir, in place of the {BOOTSTRAP_CHECKPOINT} there",
        "give these files to the user that Kafka runs as",
        "start the controllers, then all brokers; until a partition's leader is there, the partition waits for it",
    ]
