"""`seglog diff`: copies of a partition compared."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seglog_cli.exit_codes import ExitCode
from seglog_cli.failures import UsageError
from seglog_cli.options import command, one_of, size_option
from seglog_cli.selecting import Limit, Wanted
from seglog_cli.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from seglog.dump.selection import Selection
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
    wanted: Wanted,
    level: Annotated[str, typer.Option("--level", metavar="bytes|batches|view", help="What to compare.")] = "batches",
    limit: Limit = None,
    memory: Annotated[
        int | None, size_option("--memory", "Memory for the view's tables (default: 256MiB); less takes more passes.")
    ] = None,
) -> int:
    """Compares two or more copies of a partition: replicas, a backup, before and after.

    bytes compares the .log files. batches compares what lies at each offset, wherever segments were rolled. view
    compares the latest value of each key that a reader of committed records sees, which compaction must not change.
    --from-offset, --to-offset, --since and --producer-id choose batches, or for view records; --until, --key and
    --isolation are for view. --limit bounds the differences shown of each partition (for view 10,000).
    Where checksums show which copy is right, the output says so. In log directories, it compares partitions of the
    same name. The exit code is 1 when there is a difference.

    Examples:
      seglog diff broker1/orders-0 broker2/orders-0
      seglog diff --level view before/customers-0 after/customers-0
      seglog diff --json --level bytes /var/lib/kafka/data /backup/kafka
    """
    from seglog_cli.views.difference import show_diff_summary, show_difference

    if len(copies) < 2:
        raise UsageError("diff needs at least two copies")
    compared = Compared(level, check_level(level, wanted, memory), limit, memory or MEMORY_BYTES)
    from seglog_cli.unreadable import Unreadable

    found = 0
    partitions = _partitions(session, copies)
    unreadable = Unreadable(session, alone=len(partitions) == 1)
    for name, directories in partitions:
        with unreadable.passing_over(directories[0]):
            for difference in _differences(session, directories, compared):
                found += 1
                show_difference(session.console, difference, name, [str(path) for path in directories])
    code = ExitCode.FOUND if found else unreadable.exit_code
    show_diff_summary(session.console, len(partitions), found, int(code))
    return code


@dataclass(frozen=True, slots=True)
class Compared:
    """What is compared: a level, the records that count there, the most differences shown, and memory for the view."""

    level: str
    selection: Selection
    limit: int | None
    memory_bytes: int


def check_level(level: str, wanted: Wanted, memory: int | None = None) -> Selection:
    """The records that count at a level; wrong usage for what has no meaning there."""
    one_of("--level", level, LEVELS)
    if level == "bytes":
        every = ("from_offset", "to_offset", "since", "until", "key", "producer_id", "isolation")
        wanted.refuse("the level bytes compares whole files; use --level batches or view", *every)
    if level == "batches":
        wanted.refuse("the level batches compares batches, not records; use --level view", "until", "key", "isolation")
    if level != "view" and memory is not None:
        raise UsageError("--memory is for --level view")
    return wanted.selection("read_committed" if level == "view" else "read_uncommitted")


def _differences(session: Session, directories: Sequence[Path], compared: Compared) -> Iterator[Difference]:
    from itertools import islice

    found = _all_differences(session, directories, compared)
    return found if compared.limit is None else islice(found, compared.limit)


def _all_differences(session: Session, directories: Sequence[Path], compared: Compared) -> Iterator[Difference]:
    from seglog.errors import UnsupportedError
    from seglog.inspect.diff import Difference, diff_batches, diff_bytes
    from seglog.inspect.diff_view import ViewOptions, diff_view
    from seglog.log.viewed_directory import viewed_copies

    with viewed_copies(session.fs, directories) as (fs, listings):
        has = tuple(fs.status(listing.directory) is not None for listing in listings)
        if any(listing.format == "0.7" for listing in listings):
            raise UnsupportedError("logs of Kafka 0.7 cannot be compared: their messages have no offsets of their own")
        if not all(has):
            yield Difference(compared.level, "missing", has, "not every copy has the partition")
        elif compared.level == "bytes":
            yield from diff_bytes(fs, listings)
        elif compared.level == "batches":
            yield from diff_batches(fs, listings, compared.selection)
        else:
            options = ViewOptions(compared.memory_bytes, compared.selection, compared.limit or MOST_ROWS)
            yield from diff_view(fs, listings, options)


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
