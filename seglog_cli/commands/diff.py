"""`seglog diff`: copies of a partition compared."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from seglog_cli.exit_codes import ExitCode
from seglog_cli.failures import UsageError
from seglog_cli.options import argument, command, one_of, option, size_option, takes_urls
from seglog_cli.selecting import DifferenceLimit, Wanted
from seglog_cli.session import Session
from seglog_cli.tiering import Tiers

if TYPE_CHECKING:
    from seglog.dump.selection import Selection

MOST_ROWS = 10_000
MEMORY_BYTES = 256 << 20

Copies = Annotated[list[Path], argument("COPY", "Copies of a partition, or log directories that hold them.")]
ComparedLevel = Annotated[str, option("--level", "bytes|batches|view", "What to compare.")]


@command
@takes_urls("copies")
def run(
    session: Session,
    copies: Copies,
    wanted: Wanted,
    tiers: Tiers,
    level: ComparedLevel = "batches",
    limit: DifferenceLimit = None,
    memory: Annotated[
        int | None,
        size_option(
            "--memory",
            "Memory for the tables of view, at least 1MiB (default: 256MiB). Less memory takes more passes.",
            least=1 << 20,
        ),
    ] = None,
) -> int:
    """Compares two or more copies of a partition: replicas, a backup, before and after.

    bytes compares the .log files. batches compares what lies at each offset, wherever segments were rolled. view
    compares the latest value of each key that a reader of committed records sees, which compaction must not change.
    --from-offset, --to-offset, --since and --producer-id choose batches, or for view records; --until, --key and
    --isolation are for view. --limit bounds the differences shown of each partition (for view 10,000), and the last
    line says where there are more. Where checksums show which copy is right, the output says so. In log directories, it
    compares partitions of the same name. The exit code is 1 when there is a difference.

    Examples:
      seglog diff broker1/orders-0 broker2/orders-0
      seglog diff --level view before/customers-0 after/customers-0
      seglog diff --json --level bytes /var/lib/kafka/data /backup/kafka
    """
    from seglog.inspect.diff_view import ViewOptions
    from seglog.operations.diff import copies_by_partition, differences
    from seglog_cli.unreadable import Unreadable
    from seglog_cli.views.difference import show_diff_summary, show_difference

    most = MOST_ROWS if limit is None and level == "view" else limit
    asked = None if most is None else most + 1  # one more tells whether there are more
    options = ViewOptions(memory or MEMORY_BYTES, check_level(level, wanted, memory), asked or MOST_ROWS)
    session, copies = tiers.seen(session, copies)
    try:
        partitions = copies_by_partition(session.fs, copies)
    except ValueError as error:
        raise UsageError(f"diff {error}") from error
    shown = cut = 0
    unreadable = Unreadable(session, alone=len(partitions) == 1)
    for name, directories in partitions:
        with unreadable.passing_over(directories[0]):
            for number, difference in enumerate(differences(session.fs, directories, level, options, asked)):
                if number == most:
                    cut += 1
                    break
                shown += 1
                show_difference(session.console, difference, name, [str(path) for path in directories])
    code = ExitCode.FOUND if shown or cut else tiers.code(unreadable.exit_code)
    show_diff_summary(session.console, len(partitions), shown, cut, int(code))
    return code


def check_level(level: str, wanted: Wanted, memory: int | None = None) -> Selection:
    """The records that count at a level; wrong usage for what has no meaning there."""
    from seglog.operations.diff import LEVELS

    one_of("--level", level, LEVELS)
    if level == "bytes":
        every = ("from_offset", "to_offset", "since", "until", "key", "producer_id", "isolation")
        wanted.refuse("the level bytes compares whole files; use --level batches or view", *every)
    if level == "batches":
        wanted.refuse("the level batches compares batches, not records; use --level view", "until", "key", "isolation")
    if level != "view" and memory is not None:
        raise UsageError("--memory is for --level view")
    return wanted.selection("read_committed" if level == "view" else "read_uncommitted")
