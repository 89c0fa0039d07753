"""`seglog ls`."""

from __future__ import annotations

from seglog_cli.options import Paths, command
from seglog_cli.session import Session


@command
def run(session: Session, paths: Paths) -> int:
    """Lists topics, partitions, segments and leftovers: sizes, offsets, times.

    Examples:
      seglog ls /var/lib/kafka/data
      seglog ls --json orders-0
    """
    raise NotImplementedError(paths)
