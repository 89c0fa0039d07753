"""`seglog rebuild`: a cluster whose metadata is lost, from its log directories."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from seglog_cli.exit_codes import ExitCode
from seglog_cli.failures import UsageError
from seglog_cli.options import DryRun, argument, command, flag, option
from seglog_cli.session import Session


@command
def run(
    session: Session,
    directories: Annotated[
        list[Path],
        argument("LOGDIR", "All log directories of all brokers of the cluster, and of its controllers; only read."),
    ],
    output: Annotated[Path, option("--output -o", "DIR", "A new directory for what is made.")],
    metadata: Annotated[
        list[Path] | None,
        option(
            "--metadata",
            "PATH",
            "A copy of __cluster_metadata-0, or one of its snapshots, to read as well; repeatable.",
        ),
    ] = None,
    node: Annotated[
        list[str] | None,
        option("--node", "LOGDIR=ID", "The node id of a directory whose meta.properties is lost; repeatable."),
    ] = None,
    cluster_id: Annotated[
        str | None, option("--cluster-id", "ID", "The cluster's id, if no directory says it.")
    ] = None,
    feature: Annotated[
        list[str] | None,
        option("--feature", "NAME=LEVEL", "A feature's level, as kafka-storage format takes it; repeatable."),
    ] = None,
    allow_missing: Annotated[
        bool, flag("--allow-missing", "Let partitions that no directory has begin empty.")
    ] = False,
    dry_run: DryRun = False,
) -> int:
    """Makes a lost cluster's metadata again, so that the brokers start on their directories as they are.

    It reads topic ids, partitions, leader epochs and producer ids from the brokers' log directories. It also reads what
    is left of the metadata: logs and snapshots of controllers, and of damaged ones all records before the damage. Then
    it writes DIR/bootstrap.checkpoint, with which a controller's empty metadata log begins. That file holds the topics
    under their old ids, partitions with their replicas, configuration, features, quotas, ACLs and users as far as they
    are known, and a producer id above all that were used. DIR/node-ID holds meta.properties and partition.metadata for
    the directories that lack them. The log directories stay as they are.

    The leader of each partition is the replica with the newest leader epoch, and of these the longest log. If the
    metadata does not tell a topic's configuration, retention.ms=-1 keeps its records. The output says what was not
    known, and what to do next.

    The command refuses where it would lose data: directories of several clusters, a partition twice on one broker, a
    topic with several ids, a partition that no directory has (see --allow-missing), a broker that runs, or a run of
    seglog that is unfinished.

    The exit code is 3 when part of the metadata could not be read.

    Examples:
      seglog rebuild --dry-run /mnt/broker1/kafka /mnt/broker2/kafka -o rebuilt
      seglog rebuild /mnt/broker1/kafka /mnt/broker2/kafka /mnt/controller/kafka -o rebuilt
      seglog rebuild /mnt/broker1/kafka --metadata /backup/__cluster_metadata-0 -o rebuilt
    """
    from seglog.operations.rebuild import RebuildRequest, plan_rebuild, require_output, write_rebuilt
    from seglog_cli.views.rebuild import show_plan, show_written

    request = RebuildRequest(
        [session.resolved(path) for path in directories],
        metadata or (),
        {Path(name): _number("--node", text, number) for text, name, number in _pairs("--node", node)},
        cluster_id,
        {name: _number("--feature", text, level) for text, name, level in _pairs("--feature", feature)},
        allow_missing,
    )
    with session.progress("look") as progress:
        plan = plan_rebuild(session.fs, session.clock, request, progress.advance)
    code = ExitCode.INCOMPLETE if plan.problems else ExitCode.DONE
    require_output(session.fs, plan, output)
    show_plan(session.console, plan)
    made = [] if dry_run else write_rebuilt(session.fs, session.clock, plan, output)
    show_written(session.console, plan, session.resolved(output), made, code)
    return code


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
