"""`seglog ls`: the partitions and segments in log directories."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any

from seglog.units import count_text
from seglog_cli.console import Console
from seglog_cli.failures import SkippedPartitions
from seglog_cli.options import PathsHere, command, flag, one_of, option
from seglog_cli.progress import bytes_text
from seglog_cli.session import Session
from seglog_cli.tables import Cell, Layout, number_cell, time_cell
from seglog_cli.tiering import Tiers
from seglog_cli.views.kept import tell_of_kept_records

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
    "name": lambda row: row.partition,
    "size": lambda row: -row.size,
    "segments": lambda row: -len(row.segments),
    "start": lambda row: -(row.start_offset or 0),
    "end": lambda row: -(row.end_offset or 0),
    "newest": lambda row: -(_newest(row) or -1),
}


@command(urls=["paths"])
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

    if sort is not None:
        one_of("--sort", sort, tuple(SORTED_BY))
    session, paths = tiers.seen(session, session.paths_or_here(paths))
    targets = resolve_paths(session.fs, paths)
    named = all(target.kind is not TargetKind.LOG_DIRECTORY for target in targets)
    unreadable = SkippedPartitions.among(session, targets)

    def readable() -> Iterator[PartitionOverview]:
        for row in overview(session.fs, targets):
            if isinstance(row, Unlisted):
                with unreadable.passing_over(row.directory):
                    raise row.error
            else:
                yield row

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
        for row in overviews if sort is None else sorted(overviews, key=SORTED_BY[sort]):
            total.add(row)
            _json(console, row)
        console.json({"type": "summary", "exit_code": exit_code(), **dataclasses.asdict(total)})
        return
    listed = list(overviews)
    if sort is not None:
        listed.sort(key=SORTED_BY[sort])
    heading: tuple[str, ...] = _PARTITION_HEADING
    largest = max((row.size for row in listed), default=0)
    places = {row.directory.parent for row in listed}
    rows = [_partition_row(row, largest) for row in listed]
    if len(places) > 1:
        heading = (*heading, "DIRECTORY")
        rows = [(*cells, str(row.directory.parent)) for cells, row in zip(rows, listed, strict=True)]
    layout = _LIVE_PARTITIONS if all(cells[_STATE] == "live" for cells in rows) else _PARTITIONS
    if not segments:
        console.table(heading, rows, layout)
    total = Total()
    for row, cells in zip(listed, rows, strict=True):
        total.add(row)
        if segments:
            console.table(heading, [cells], layout)
            console.table(_SEGMENT_HEADING, [_segment_row(segment) for segment in row.segments], _SEGMENTS)
        console.indented([console.styled(f"leftover {row.partition}/{name}", "warning") for name in row.leftovers])
        console.indented([console.styled(f"stranger {row.partition}/{name}", "warning") for name in row.strangers])
    if len(listed) > 1:
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

    def add(self, row: PartitionOverview) -> None:
        self.partitions += 1
        self.segments += len(row.segments)
        self.size += row.size


def _json(console: Console, row: PartitionOverview) -> None:
    fields = {name: getattr(row, name) for name in ("state", "format", "size", "start_offset", "end_offset")}
    console.json(
        {
            "type": "partition",
            "partition": row.partition,
            "directory": str(row.directory),
            **fields,
            "modified": row.modified_ms,
            "segments": len(row.segments),
            "leftovers": list(row.leftovers),
            "strangers": list(row.strangers),
        }
    )
    for segment in row.segments:
        values = dataclasses.asdict(segment)
        values["modified"] = values.pop("modified_ms")
        console.json({"type": "segment", "partition": row.partition, **values})


def _newest(row: PartitionOverview) -> int | None:
    return max((s.max_timestamp for s in row.segments if s.max_timestamp is not None), default=None)


def _partition_row(row: PartitionOverview, largest: int) -> tuple[str, ...]:
    state = row.state if row.format == "kafka" else f"{row.state} {row.format}"
    offsets = (number_cell(row.start_offset), number_cell(row.end_offset))
    share = "█" * -(-row.size * _SHARE_CELLS // largest) if largest else ""
    return (
        Cell(row.partition, "strong"),
        Cell(state, "" if row.state == "live" else "warning"),
        str(len(row.segments)),
        bytes_text(row.size),
        *offsets,
        _time(_newest(row)),
        _time(row.modified_ms),
        Cell(share, "dim"),
    )


def _segment_row(segment: SegmentOverview) -> tuple[str, ...]:
    return (
        segment.file,
        Cell("active" if segment.active else "", "good"),
        bytes_text(segment.size),
        bytes_text(segment.index_size),
        number_cell(segment.base_offset),
        number_cell(segment.end_offset),
        _time(segment.max_timestamp),
        _time(segment.modified_ms),
    )


def _time(timestamp: int | None) -> str:
    return "-" if timestamp is None or timestamp < 0 else time_cell(timestamp)
