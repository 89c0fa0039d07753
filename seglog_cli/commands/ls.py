"""`seglog ls`: the partitions and segments in log directories."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any

from seglog.units import count_text
from seglog_cli.console import Console
from seglog_cli.failures import Unreadable
from seglog_cli.options import PathsHere, command, flag, one_of, option, takes_urls
from seglog_cli.progress import bytes_text
from seglog_cli.session import Session
from seglog_cli.tables import Cell, Layout, number_cell, time_cell
from seglog_cli.tiering import Tiers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from seglog.look.inspect.overview import PartitionOverview, SegmentOverview

_PARTITION_HEADING = ("PARTITION", "STATE", "SEGMENTS", "SIZE", "START", "END", "NEWEST", "MODIFIED", "SHARE")
_SEGMENT_HEADING = ("SEGMENT", "", "SIZE", "INDEXES", "START", "END", "NEWEST", "MODIFIED")
_STATE = 1
_PARTITIONS = Layout(right=(2, 3, 4, 5), extra=(7, 8), yielding=(8, 7, 4, 2, 6))
_LIVE_PARTITIONS = dataclasses.replace(_PARTITIONS, yielding=(8, 7, 4, 2, _STATE, 6))  # the state tells nothing
_SEGMENTS = Layout(right=(2, 3, 4, 5), spare=(3, 4, 7), indent=2)
_SHARE_CELLS = 20
SORTED_BY: dict[str, Callable[[PartitionOverview], Any]] = {
    "name": lambda one: one.partition,
    "size": lambda one: -one.size,
    "segments": lambda one: -len(one.segments),
    "start": lambda one: -(one.start_offset or 0),
    "end": lambda one: -(one.end_offset or 0),
    "newest": lambda one: -(_newest(one) or -1),
}


@command
@takes_urls("paths")
def run(
    session: Session,
    paths: PathsHere = None,
    segments: Annotated[
        bool, flag("--long -l", "Show segments too. A named partition and JSON lines always show them.")
    ] = False,
    sort: Annotated[
        str | None,
        option(
            "--sort",
            "name|size|segments|start|end|newest",
            "Sort by name from a to z, or by number or time from the largest down.",
        ),
    ] = None,
    *,
    tiers: Tiers,
) -> int:
    """Lists partitions, segments and leftovers: sizes, offsets, times.

    END is the offset of the next record. NEWEST is the largest timestamp in the indexes and at the end of the log. In a
    log of Kafka 0.7, offsets are byte positions.

    Leftovers of a crash and files that are not Kafka's are listed by name. A segment stands for the partition that it
    is in. The last line holds the sums. One line more, on stderr, names the records that an earlier run, such as a
    repair, took out of these logs and keeps.

    Rows are in the order of the PATHs and of names, unless --sort is given. With several log directories, each row
    names its directory. A terminal of 120 columns or more shows more columns than a file or a pipe gets; a narrow one
    leaves out what matters least until a row fits.

    Examples:
      seglog ls
      seglog ls /var/lib/kafka/data
      seglog ls --json orders-none-0
      seglog ls --long customers-0 payments-0
      seglog ls --sort size /var/lib/kafka/data
    """
    from seglog.look.inspect.overview import Unlisted, overview
    from seglog.scan.listing import TargetKind, resolve_paths
    from seglog_cli.views.kept import tell_of_kept_records

    if sort is not None:
        one_of("--sort", sort, tuple(SORTED_BY))
    session, paths = tiers.seen(session, session.paths_or_here(paths))
    targets = resolve_paths(session.fs, paths)
    named = all(target.kind is not TargetKind.LOG_DIRECTORY for target in targets)
    unreadable = Unreadable.among(session, targets)

    def readable() -> Iterator[PartitionOverview]:
        for one in overview(session.fs, targets):
            if isinstance(one, Unlisted):
                with unreadable.passing_over(one.directory):
                    raise one.error
            else:
                yield one

    show_overviews(session.console, readable(), segments or named, sort, lambda: int(unreadable.exit_code))
    tell_of_kept_records(session, targets)
    return tiers.code(unreadable.exit_code)


def show_overviews(
    console: Console,
    overviews: Iterable[PartitionOverview],
    segments: bool,
    sort: str | None,
    exit_code: Callable[[], int],
) -> None:
    """Shows one line for each partition, or with `segments` a table of its segments below it; then the sums."""
    if console.as_json:
        total = Total()
        for one in overviews if sort is None else sorted(overviews, key=SORTED_BY[sort]):
            total.add(one)
            _json(console, one)
        console.json({"type": "summary", "exit_code": exit_code(), **dataclasses.asdict(total)})
        return
    found = list(overviews)
    if sort is not None:
        found.sort(key=SORTED_BY[sort])
    heading: tuple[str, ...] = _PARTITION_HEADING
    largest = max((one.size for one in found), default=0)
    places = {one.directory.parent for one in found}
    rows = [_partition_row(one, largest) for one in found]
    if len(places) > 1:
        heading = (*heading, "DIRECTORY")
        rows = [(*row, str(one.directory.parent)) for row, one in zip(rows, found, strict=True)]
    layout = _LIVE_PARTITIONS if all(row[_STATE] == "live" for row in rows) else _PARTITIONS
    if not segments:
        console.table(heading, rows, layout)
    total = Total()
    for one, row in zip(found, rows, strict=True):
        total.add(one)
        if segments:
            console.table(heading, [row], layout)
            console.table(_SEGMENT_HEADING, [_segment_row(segment) for segment in one.segments], _SEGMENTS)
        console.indented([console.styled(f"leftover {one.partition}/{name}", "warning") for name in one.leftovers])
        console.indented([console.styled(f"stranger {one.partition}/{name}", "warning") for name in one.strangers])
    if len(found) > 1:
        console.line(
            f"{count_text(total.partitions, 'partition', ',')}, {count_text(total.segments, 'segment', ',')},"
            f" {bytes_text(total.size)}"
        )


@dataclasses.dataclass
class Total:
    """The sums of a listing; `size` in bytes."""

    partitions: int = 0
    segments: int = 0
    size: int = 0

    def add(self, one: PartitionOverview) -> None:
        """Adds a partition."""
        self.partitions += 1
        self.segments += len(one.segments)
        self.size += one.size


def _json(console: Console, one: PartitionOverview) -> None:
    fields = {name: getattr(one, name) for name in ("state", "format", "size", "start_offset", "end_offset")}
    console.json(
        {
            "type": "partition",
            "partition": one.partition,
            "directory": str(one.directory),
            **fields,
            "modified": one.modified_ms,
            "segments": len(one.segments),
            "leftovers": list(one.leftovers),
            "strangers": list(one.strangers),
        }
    )
    for segment in one.segments:
        values = dataclasses.asdict(segment)
        values["modified"] = values.pop("modified_ms")
        console.json({"type": "segment", "partition": one.partition, **values})


def _newest(one: PartitionOverview) -> int | None:
    return max((s.max_timestamp for s in one.segments if s.max_timestamp is not None), default=None)


def _partition_row(one: PartitionOverview, largest: int) -> tuple[str, ...]:
    state = one.state if one.format == "kafka" else f"{one.state} {one.format}"
    offsets = (number_cell(one.start_offset), number_cell(one.end_offset))
    share = "█" * -(-one.size * _SHARE_CELLS // largest) if largest else ""
    return (
        Cell(one.partition, "strong"),
        Cell(state, "" if one.state == "live" else "warning"),
        str(len(one.segments)),
        bytes_text(one.size),
        *offsets,
        _time(_newest(one)),
        _time(one.modified_ms),
        Cell(share, "dim"),
    )


def _segment_row(one: SegmentOverview) -> tuple[str, ...]:
    return (
        one.file,
        Cell("active" if one.active else "", "good"),
        bytes_text(one.size),
        bytes_text(one.index_size),
        number_cell(one.base_offset),
        number_cell(one.end_offset),
        _time(one.max_timestamp),
        _time(one.modified_ms),
    )


def _time(timestamp: int | None) -> str:
    return "-" if timestamp is None or timestamp < 0 else time_cell(timestamp)
