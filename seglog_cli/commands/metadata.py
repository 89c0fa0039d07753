"""`seglog metadata`: what a controller's metadata log says of a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from seglog_cli.exit_codes import ExitCode
from seglog_cli.options import argument, command, offset_option, option, takes_urls
from seglog_cli.session import Session


@command
@takes_urls("path", "diff")
def run(
    session: Session,
    path: Annotated[Path, argument("PATH", "A controller's log directory, its __cluster_metadata-0, or a snapshot.")],
    at: Annotated[
        int | None, offset_option("--at", "Show the cluster as it was after the record of this offset.")
    ] = None,
    diff: Annotated[Path | None, option("--diff", "OTHER", "Compare with the metadata log of another voter.")] = None,
) -> int:
    """Shows the cluster that a KRaft controller's metadata log describes, without a broker.

    PATH is a controller's log directory, its __cluster_metadata-0, or one snapshot (*.checkpoint). The output has
    features, controllers, brokers, topics with their partitions, replicas, ISR and configuration, quotas, ACLs, and the
    names of SCRAM users and delegation tokens. It never shows a secret: neither credentials nor values of sensitive
    keys. Records near the end may not be committed yet; only a majority of the voters knows.

    --diff compares two voters up to the smaller of their end offsets. The exit code is 1 when they differ.

    Damage ends the replay. The output names the last record before it, and the exit code is 3.

    Examples:
      seglog metadata /var/lib/kafka/data
      seglog metadata --at 300 --json /var/lib/kafka/data/__cluster_metadata-0
      seglog metadata --diff /disk2/kafka /var/lib/kafka/data
    """
    from seglog.inspect.metadata_image import differences, read_metadata_image
    from seglog_cli.views.metadata import show_metadata, show_metadata_differences

    end = None if at is None else at + 1
    image = read_metadata_image(session.fs, path, end=end)
    images = [image]
    code = ExitCode.DONE
    if diff is None:
        show_metadata(session.console, image)
    else:
        other = read_metadata_image(session.fs, diff, end=end)
        common = min(image.end_offset, other.end_offset)
        left, right = (
            one if one.end_offset == common else read_metadata_image(session.fs, one.source, end=common)
            for one in (image, other)
        )
        found = differences(left, right)
        show_metadata_differences(session.console, found, (image, other))
        images.append(other)
        code = ExitCode.FOUND if found else ExitCode.DONE
    problems = [problem for one in images for problem in one.problems]
    for problem in problems:
        session.console.warning(problem)
    return code or (ExitCode.INCOMPLETE if problems else ExitCode.DONE)
