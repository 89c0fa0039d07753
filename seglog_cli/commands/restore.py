"""`seglog restore`: what a broker set aside, or a repair took out, is a partition again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from seglog_cli.exit_codes import ExitCode
from seglog_cli.options import DryRun, argument, command, option
from seglog_cli.session import Session


@command
def run(
    session: Session,
    sources: Annotated[
        list[Path],
        argument(
            "SOURCE",
            "Directories such as orders-0.UUID-delete, folders of repairs' runs, or log directories; only read.",
        ),
    ],
    output: Annotated[
        Path, option("--output -o", "DIR", "The directory in which the partitions are made, as DIR/TOPIC-N.")
    ],
    dry_run: DryRun = False,
) -> int:
    """Makes partitions of directories that a broker set aside, and of what repairs took out of logs.

    A broker renames the directory of a deleted topic to -delete, and of a topic that it does not know to -stray. A copy
    that was not finished ends with -future. Name a log directory to take all that were set aside in it. A run's folder
    in a quarantine holds the old files of partitions, or the ends that a repair cut off. Name the log's own directory
    too, and both are joined. (`seglog quarantine restore` copies a run's files as they are.)

    Parts of one partition are joined by their offsets. Where two parts hold the same offsets, one copy is taken if
    their bytes are equal. If they contradict each other, the command refuses and names files and offsets. Only good
    batches are taken. Indexes, snapshots and leader epochs are made anew. The sources stay as they are. If a restore is
    killed, run it again: partitions that it has made stay as they are.

    `seglog transplant DIR/TOPIC-N --into LOGDIR` brings the partition into a cluster.

    The exit code is 1 when parts are damaged, or when offsets are missing between them; the output names each place.

    Examples:
      seglog restore /var/lib/kafka/data/orders-0.6b9f2c7d3e5a4f0c8d1b2a3c4d5e6f70-delete -o restored
      seglog restore --dry-run /var/lib/kafka/data -o restored
      seglog restore /var/lib/kafka/.seglog-quarantine/20261121T015349Z-7f3a /var/lib/kafka/data/orders-0 -o restored
    """
    from seglog.operations.restore import plan_restore, restore
    from seglog_cli.views.restore import show_restored

    with session.progress("look") as progress:
        plan = plan_restore(session.fs, sources, output, progress.advance)
    if not dry_run:
        restore(session.fs, session.clock, plan)
    code = ExitCode.DONE if plan.is_whole else ExitCode.FOUND
    show_restored(session.console, plan, code, dry_run=dry_run)
    return code
