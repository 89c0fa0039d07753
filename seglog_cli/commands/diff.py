"""`seglog diff`: compares copies of a partition."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from seglog.units import count_text
from seglog_cli.console import Console, key_fields
from seglog_cli.exit_codes import ExitCode
from seglog_cli.failures import SkippedPartitions, UsageError
from seglog_cli.options import argument, command, one_of, option, size_option
from seglog_cli.selecting import DifferenceLimit, Wanted
from seglog_cli.session import Session
from seglog_cli.tiering import Tiers

if TYPE_CHECKING:
    from seglog.look.inspect.diff import Difference
    from seglog.scan.selection import Selection

MOST_ROWS = 10_000
MEMORY_BYTES = 256 << 20
Copies = Annotated[list[Path], argument("COPY", "Copies of a partition, or log directories that hold them.")]
ComparedLevel = Annotated[str, option("--level", "bytes|batches|view", "What to compare.")]


@command(urls=["copies"])
def run(
    session: Session,
    copies: Copies,
    wanted: Wanted,
    level: ComparedLevel = "batches",
    limit: DifferenceLimit = None,
    memory: Annotated[
        int | None,
        size_option(
            "--memory",
            "Memory for the tables of --level view, at least 1MiB (default: 256MiB). Less takes more passes.",
            least=1 << 20,
        ),
    ] = None,
    *,
    tiers: Tiers,
) -> int:
    """Compares copies of a partition, such as replicas or a backup.

    Two or more copies are compared: replicas, a backup, or the states before and after a change. --level says what is
    compared:

      bytes    the .log files
      batches  the batch at each offset, wherever segments were rolled
      view     the latest value of each key that a reader of committed records
               sees, which compaction must not change

    When checksums show which copy is right, the output says so. In log directories, partitions of the same name are
    compared; several log directories of one broker together are one copy. The exit code is 1 if there is a difference.

    --from-offset, --to-offset, --since and --producer-id choose batches, or with view, records. --until, --key and
    --isolation are only for view. --limit bounds the differences shown for each partition (with view: 10,000 by
    default); the last line says whether there are more.

    Examples:
      seglog diff broker1/orders-0 broker2/orders-0
      seglog diff --level view before/customers-0 after/customers-0
      seglog diff --json --level bytes /var/lib/kafka/data /backup/kafka
    """
    from seglog.look.inspect.diff_view import ViewOptions
    from seglog.operations.diff import copies_by_partition, differences

    most = MOST_ROWS if limit is None and level == "view" else limit
    asked = None if most is None else min(most + 1, sys.maxsize)  # one more, to know whether there are more
    options = ViewOptions(memory or MEMORY_BYTES, check_level(level, wanted, memory), asked or MOST_ROWS)
    session, copies = tiers.seen(session, copies)
    try:
        partitions = copies_by_partition(session.fs, copies)
    except ValueError as error:
        raise UsageError(f"diff {error}") from error
    shown = cut = 0
    unreadable = SkippedPartitions(session, alone=len(partitions) == 1)
    with session.reading("diff", [each for _, directories in partitions for each in directories]) as reading:
        for name, directories in partitions:
            with unreadable.passing_over(directories[0]):
                for number, difference in enumerate(differences(reading.fs, directories, level, options, asked)):
                    if number == most:
                        cut += 1
                        break
                    shown += 1
                    show_difference(session.console, difference, name, [str(path) for path in directories])
    code = ExitCode.FOUND if shown or cut else tiers.code(unreadable.exit_code)
    show_diff_summary(session.console, len(partitions), shown, cut, int(code))
    return code


def check_level(level: str, wanted: Wanted, memory: int | None = None) -> Selection:
    """Returns the records that count at a level; raises UsageError for options that have no meaning there."""
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


def show_difference(console: Console, found: Difference, partition: str, copies: Sequence[str]) -> None:
    """Shows one difference: JSON, or text."""
    row = found.as_dict(partition, copies)
    if found.key is not None:
        row.update(key_fields(found.key))
    kind = console.styled(found.kind, "warning")
    what = partition if not found.file else f"{partition}/{found.file}"
    where = _offsets(found) if found.level != "bytes" else ""
    key = "" if found.key is None else f" key {found.key.decode('utf-8', 'backslashreplace')!r}"
    missing = [name for name, has in zip(copies, found.has, strict=True) if not has]
    lacks = f"; not in {', '.join(missing)}" if missing and len(missing) < len(copies) else ""
    right = "" if not found.right else f"; right: {', '.join(copies[i] for i in found.right)}"
    console.result(row, f"{kind} {what}{key}{where}: {found.message}{lacks}{right}")


def show_diff_summary(console: Console, partitions: int, shown: int, cut: int, exit_code: int) -> None:
    """Shows how much was compared and how many differences there are, or in how many partitions there are more."""
    counts = {"partitions": partitions, "differences": shown, "partitions_with_more": cut}
    verdict = console.styled(count_text(shown, "difference"), "warning") if shown or cut else ""
    verdict = verdict or console.styled("no difference", "good")
    more = f" shown; there are more in {count_text(cut, 'partition')} (--limit)" if cut else ""
    console.result(
        {"type": "summary", "exit_code": exit_code, **counts},
        f"{count_text(partitions, 'partition')} compared: {verdict}{more}",
    )


def _offsets(found: Difference) -> str:
    if found.offsets:
        each = ", ".join("none" if offset is None else str(offset) for offset in found.offsets)
        return f" offsets {each}"
    if found.first_offset is None:
        return ""
    if found.last_offset is None:
        return f" from offset {found.first_offset}"
    batches = "" if found.count == 1 else f" ({count_text(found.count, 'batch')})"
    return f" offsets {found.first_offset} to {found.last_offset}{batches}"
