"""`seglog diff`: copies of a partition compared."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seglog_cli.exit_codes import ExitCode
from seglog_cli.failures import UsageError
from seglog_cli.options import command, offset_option, one_of, size_option
from seglog_cli.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from seglog.inspect.diff import Difference

LEVELS = ("bytes", "batches", "view")
MOST_ROWS = 10_000
MEMORY_BYTES = 256 << 20


@command
def run(
    session: Session,
    copies: Annotated[
        list[Path],
        typer.Argument(
            metavar="COPY", help="Copies of a partition, or log directories that hold them.", show_default=False
        ),
    ],
    level: Annotated[str, typer.Option("--level", metavar="bytes|batches|view", help="What to compare.")] = "batches",
    to_offset: Annotated[
        int | None, offset_option("--to-offset", "Of the view: up to this offset, without it.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="At most this many keys.")] = MOST_ROWS,
    memory: Annotated[
        int | None, size_option("--memory", "Memory for the view's tables (default: 256MiB); less takes more passes.")
    ] = None,
) -> int:
    """Compares two or more copies of a partition: replicas, a backup, before and after.

    bytes compares the .log files. batches compares what lies at each offset, wherever segments were rolled. view
    compares the latest value of each key that a reader of committed records sees, which compaction must not change.
    Where checksums show which copy is right, the output says so. In log directories, it compares partitions of the
    same name. The exit code is 1 when there is a difference.

    Examples:
      seglog diff broker1/orders-0 broker2/orders-0
      seglog diff --level view before/customers-0 after/customers-0
      seglog diff --json --level bytes /var/lib/kafka/data /backup/kafka
    """
    from seglog_cli.views.difference import show_diff_summary, show_difference

    if len(copies) < 2:
        raise UsageError("diff: it takes two copies at least")
    one_of("--level", level, LEVELS)
    from seglog_cli.unreadable import Unreadable

    found = 0
    partitions = _partitions(session, copies)
    unreadable = Unreadable(session, alone=len(partitions) == 1)
    for name, directories in partitions:
        with unreadable.passing_over(directories[0]):
            for difference in _differences(session, directories, level, to_offset, limit, memory or MEMORY_BYTES):
                found += 1
                show_difference(session.console, difference, name, [str(path) for path in directories])
    code = ExitCode.FOUND if found else unreadable.exit_code
    show_diff_summary(session.console, len(partitions), found, int(code))
    return code


def _differences(
    session: Session,
    directories: Sequence[Path],
    level: str,
    to_offset: int | None,
    limit: int,
    memory_bytes: int,
) -> Iterator[Difference]:
    from seglog.errors import UnsupportedError
    from seglog.inspect.diff import Difference, diff_batches, diff_bytes
    from seglog.inspect.diff_view import ViewOptions, diff_view
    from seglog.log.viewed_directory import viewed_copies

    with viewed_copies(session.fs, directories) as (fs, listings):
        has = tuple(fs.status(listing.directory) is not None for listing in listings)
        if any(listing.format == "0.7" for listing in listings):
            raise UnsupportedError("logs of Kafka 0.7 cannot be compared: their messages have no offsets of their own")
        if not all(has):
            yield Difference(level, "missing", has, "not every copy has the partition")
        elif level == "bytes":
            yield from diff_bytes(fs, listings)
        elif level == "batches":
            yield from diff_batches(fs, listings)
        else:
            yield from diff_view(fs, listings, ViewOptions(memory_bytes, to_offset, limit), session.clock.now_ms())


def _partitions(session: Session, copies: Sequence[Path]) -> list[tuple[str, list[Path]]]:
    """The copies of each partition, by its name; they need not all be there."""
    from seglog.scan.listing import TargetKind, list_log_directory, resolve_paths

    targets = resolve_paths(session.fs, copies)
    kinds = {target.kind for target in targets}
    if kinds == {TargetKind.PARTITION}:
        return [(targets[0].path.resolve().name, [target.path for target in targets])]
    if kinds != {TargetKind.LOG_DIRECTORY}:
        raise UsageError("diff takes partition directories or log directories, not both, and no files")
    every = [{p.path.name for p in list_log_directory(session.fs, target.path).live} for target in targets]
    return [(name, [target.path / name for target in targets]) for name in sorted(set().union(*every))]
