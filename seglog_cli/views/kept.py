"""One line on records that earlier runs took out of the logs that a command looks at, and where they are kept."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from seglog.escaping import command_line
from seglog.units import count_text
from seglog_cli.progress import bytes_text
from seglog_cli.session import Session

if TYPE_CHECKING:
    from seglog.scan.listing import Target


def tell_of_kept_records(session: Session, targets: Sequence[Target]) -> None:
    """Says what finished runs took out of the targets and keep in quarantines; nothing if there are none.

    A verification after a repair finds nothing wrong with the files, although records left the log.
    """
    from seglog.remote_path import RemotePath
    from seglog.repairs.undo.places import quarantines

    paths = [target.directory for target in targets if not isinstance(target.path, RemotePath)]
    places = quarantines(session.fs, os.environ, *paths)
    if not places:
        return
    from seglog.repairs.undo.kept import kept_records

    runs = kept_records(session.fs, places, paths)
    if not runs:
        return
    size = bytes_text(sum(sum(taken.values()) for _, taken in runs))
    partitions = sorted({directory for _, taken in runs for directory in taken})
    where = partitions[0] if len(partitions) == 1 else count_text(len(partitions), "partition")
    last, _ = runs[-1]
    if len(runs) == 1:
        when = datetime.fromtimestamp(last.started_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M")
        session.console.message(
            f"not in the log any more: {size} of records of {where}, which the {last.command} of {when} UTC keeps in"
            f" {last.folder}; `{command_line('seglog', 'undo', last.name)}` takes it back"
        )
        return
    listing = command_line("seglog", "quarantine", paths[0])
    session.console.message(
        f"not in the log any more: {size} of records of {where}, which {len(runs)} runs keep, the last one in"
        f" {last.folder}; `{listing}` lists them"
    )
