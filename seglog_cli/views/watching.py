"""What `seglog top` draws: a table of partitions, or of one partition's segments, that fits the screen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from seglog.escaping import escaped
from seglog_cli.progress import bytes_text

if TYPE_CHECKING:
    from rich.table import Table

    from seglog.look.report.watch import WatchedPartition

_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s"))
_NAME_CELLS = 18  # at least, of a partition's name
UNKNOWN = "…"
NOTHING = "-"


@dataclass(frozen=True)
class Column:
    """A column: its heading, width, the text of a row, and what rows are sorted by. `detailed` needs details."""

    name: str
    heading: str
    width: int
    text: Callable[[WatchedPartition, int], str]
    key: Callable[[WatchedPartition], Any]
    detailed: bool = False
    wide: bool = False
    right: bool = True


def age_text(milliseconds: int) -> str:
    """Returns a duration in its largest unit: `3h`; `now` below a second."""
    return next((f"{milliseconds // length}{unit}" for length, unit in _UNITS if milliseconds >= length), "now")


def _of_details(text: Callable[[Any, int], str]) -> Callable[[WatchedPartition, int], str]:
    def shown(partition: WatchedPartition, now_ms: int) -> str:
        if partition.details is None:
            return "?" if partition.problem else UNKNOWN
        return text(partition.details, now_ms)

    return shown


def newest_ms(partition: WatchedPartition) -> int:
    """The newest record by the time indexes; before they were read, the last write."""
    newest = None if partition.details is None else partition.details.newest_ms
    return partition.modified_ms if newest is None else newest


def due_ms(partition: WatchedPartition, now_ms: int = 0) -> int | None:
    """When retention deletes next: `now_ms` for what is due, None if nothing comes due by age."""
    retention = None if partition.details is None else partition.details.retention
    if retention is None:
        return None
    return now_ms if retention.due_bytes else retention.next_ms


def cleaner_text(details: Any) -> str:
    """The state of compaction in a word."""
    if details.compaction is None:
        return NOTHING
    return str(details.compaction.state.value)


def blocked_text(details: Any) -> str:
    """What keeps a log from being cleaned."""
    compaction = details.compaction
    if compaction is None or not compaction.blocked_bytes:
        return NOTHING
    return "transaction" if compaction.state.value == "blocked" else "age"


def _due_text(partition: WatchedPartition, now_ms: int) -> str:
    moment = due_ms(partition, now_ms)
    return NOTHING if moment is None else age_text(max(0, moment - now_ms))


def _transaction_text(details: Any, _now_ms: int) -> str:
    return f"@{details.transactions[0].first_offset}" if details.transactions else NOTHING


def _ratio(partition: WatchedPartition) -> float:
    compaction = None if partition.details is None else partition.details.compaction
    return -1.0 if compaction is None else compaction.dirty_ratio


def _growth_text(partition: WatchedPartition, _now_ms: int) -> str:
    return NOTHING if not partition.growth else bytes_text(round(partition.growth))


def _ratio_text(details: Any, _now_ms: int) -> str:
    return NOTHING if details.compaction is None else f"{100 * details.compaction.dirty_ratio:.0f}%"


COLUMNS = (
    Column("size", "SIZE", 7, lambda row, _now: bytes_text(row.bytes), lambda row: row.bytes),
    Column("growth", "GROWTH/S", 8, _growth_text, lambda row: row.growth or 0.0),
    Column(
        "segments",
        "SEGS",
        5,
        lambda row, _now: str(len(row.segments)),
        lambda row: len(row.segments),
    ),
    Column("dirty", "DIRTY", 5, _of_details(_ratio_text), _ratio, detailed=True),
    Column(
        "cleaner",
        "CLEANER",
        9,
        _of_details(lambda details, _now: cleaner_text(details)),
        lambda row: "" if row.details is None else cleaner_text(row.details),
        detailed=True,
        right=False,
    ),
    Column(
        "blocked",
        "BLOCKED BY",
        11,
        _of_details(lambda details, _now: blocked_text(details)),
        lambda row: (
            0 if row.details is None or row.details.compaction is None else row.details.compaction.blocked_bytes
        ),
        detailed=True,
        wide=True,
        right=False,
    ),
    Column(
        "due",
        "DUE IN",
        6,
        lambda row, now: _due_text(row, now) if row.details is not None else UNKNOWN,
        lambda row: -(due_ms(row) or 0) if due_ms(row) is not None else float("-inf"),
        detailed=True,
    ),
    Column(
        "transaction",
        "OPEN TXN",
        9,
        _of_details(_transaction_text),
        lambda row: len(row.details.transactions) if row.details is not None else 0,
        detailed=True,
        wide=True,
    ),
    Column("newest", "NEWEST", 6, lambda row, now: age_text(max(0, now - newest_ms(row))), newest_ms),
)


def _name_key(partition: WatchedPartition) -> tuple[str, int, str]:
    topic, _, number = partition.name.rpartition("-")
    return topic, int(number) if number.isascii() and number.isdigit() else 0, partition.directory


NAMED = Column("name", "PARTITION", 0, lambda partition, _now: partition.name, _name_key, right=False)
SORTS = {column.name: column for column in (NAMED, *COLUMNS)}


def fitting(width: int) -> list[Column]:
    """Returns the columns that fit a width beside the name: at 80 all but the wide ones."""
    fitting = [column for column in COLUMNS if not column.wide]
    taken = _NAME_CELLS + sum(column.width + 1 for column in fitting)
    for column in COLUMNS:
        if column.wide and taken + column.width + 1 <= width:
            fitting.append(column)
            taken += column.width + 1
    while len(fitting) > 1 and _NAME_CELLS + sum(column.width + 1 for column in fitting) > width:
        fitting.pop()
    return [column for column in COLUMNS if column in fitting]


def partitions_table(
    rows: Sequence[WatchedPartition], sort: str, reverse: bool, selected: str, width: int, now_ms: int
) -> Table:
    """Returns the table of the partitions on the screen. Names come in as text, never as markup."""
    columns = fitting(width)
    drawn = _empty(width)
    _head(drawn, NAMED, sort, reverse, width - sum(column.width + 1 for column in columns))
    for column in columns:
        _head(drawn, column, sort, reverse, column.width)
    for partition in rows:
        cells = [_cell(partition.name, "reverse" if partition.path == selected else "bold")]
        cells += [_cell(column.text(partition, now_ms), _style(column, partition)) for column in columns]
        drawn.add_row(*cells)
    return drawn


def segments_table(partition: WatchedPartition, first: int, rows: int, width: int, now_ms: int) -> Table:
    """Returns the table of a partition's segments from number `first` on, the oldest first."""
    drawn = _empty(width)
    for heading, cells, right in (("SEGMENT", 24, False), ("SIZE", 8, True), ("STATE", 8, False), ("WRITTEN", 8, True)):
        drawn.add_column(heading, width=cells, justify="right" if right else "left", no_wrap=True)
    states = (
        {}
        if partition.details is None
        else {segment.base_offset: segment.state for segment in partition.details.segments}
    )
    for segment in partition.segments[first : first + rows]:
        stem = segment.name.partition(".")[0]
        state = states.get(int(stem), "") if stem.isascii() and stem.isdigit() else ""
        age = age_text(max(0, now_ms - segment.modified_ns // 1_000_000))
        drawn.add_row(_cell(segment.name, ""), _cell(bytes_text(segment.size), ""), _cell(state, ""), _cell(age, ""))
    return drawn


def _empty(width: int) -> Table:
    from rich.table import Table

    return Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold", width=width)


def _head(table: Table, column: Column, sort: str, reverse: bool, width: int) -> None:
    mark = "" if column.name != sort else "▴" if reverse else "▾"
    heading = column.heading if len(column.heading) + len(mark) <= width else column.heading[: width - len(mark)]
    right = column.right
    table.add_column(
        f"{heading}{mark}", width=width, justify="right" if right else "left", no_wrap=True, overflow="ellipsis"
    )


def _cell(text: str, style: str) -> Any:
    from rich.text import Text

    return Text(escaped(text), style=style)


def _style(column: Column, partition: WatchedPartition) -> str:
    """Red for what a transaction blocks, yellow for what is to be cleaned or deleted now."""
    if partition.details is None:
        return "dim" if column.detailed else ""
    state = cleaner_text(partition.details)
    if column.name in ("cleaner", "blocked", "transaction") and state == "blocked":
        return "bold red"
    if column.name == "cleaner" and state == "cleanable":
        return "yellow"
    is_due = (
        column.name == "due" and partition.details.retention is not None and partition.details.retention.due_bytes > 0
    )
    return "yellow" if is_due else ""
