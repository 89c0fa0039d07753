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
    def shown(one: WatchedPartition, now_ms: int) -> str:
        if one.details is None:
            return "?" if one.problem else UNKNOWN
        return text(one.details, now_ms)

    return shown


def newest_ms(one: WatchedPartition) -> int:
    """The newest record by the time indexes; before they were read, the last write."""
    known = None if one.details is None else one.details.newest_ms
    return one.modified_ms if known is None else known


def due_ms(one: WatchedPartition, now_ms: int = 0) -> int | None:
    """When retention deletes next: `now_ms` for what is due, None if nothing comes due by age."""
    found = None if one.details is None else one.details.retention
    if found is None:
        return None
    return now_ms if found.due_bytes else found.next_ms


def cleaner_text(details: Any) -> str:
    """The state of compaction in a word."""
    if details.compaction is None:
        return NOTHING
    return str(details.compaction.state.value)


def blocked_text(details: Any) -> str:
    """What keeps a log from being cleaned."""
    found = details.compaction
    if found is None or not found.blocked_bytes:
        return NOTHING
    return "transaction" if found.state.value == "blocked" else "age"


def _due_text(one: WatchedPartition, now_ms: int) -> str:
    moment = due_ms(one, now_ms)
    return NOTHING if moment is None else age_text(max(0, moment - now_ms))


def _transaction_text(details: Any, _now_ms: int) -> str:
    return f"@{details.transactions[0].first_offset}" if details.transactions else NOTHING


def _ratio(one: WatchedPartition) -> float:
    found = None if one.details is None else one.details.compaction
    return -1.0 if found is None else found.dirty_ratio


def _growth_text(one: WatchedPartition, _now_ms: int) -> str:
    return NOTHING if not one.growth else bytes_text(round(one.growth))


def _ratio_text(details: Any, _now_ms: int) -> str:
    return NOTHING if details.compaction is None else f"{100 * details.compaction.dirty_ratio:.0f}%"


COLUMNS = (
    Column("size", "SIZE", 7, lambda one, _now: bytes_text(one.bytes), lambda one: one.bytes),
    Column("growth", "GROWTH/S", 8, _growth_text, lambda one: one.growth or 0.0),
    Column("segments", "SEGS", 5, lambda one, _now: str(len(one.segments)), lambda one: len(one.segments)),
    Column("dirty", "DIRTY", 5, _of_details(_ratio_text), _ratio, detailed=True),
    Column(
        "cleaner",
        "CLEANER",
        9,
        _of_details(lambda details, _now: cleaner_text(details)),
        lambda one: "" if one.details is None else cleaner_text(one.details),
        detailed=True,
        right=False,
    ),
    Column(
        "blocked",
        "BLOCKED BY",
        11,
        _of_details(lambda details, _now: blocked_text(details)),
        lambda one: (
            0 if one.details is None or one.details.compaction is None else one.details.compaction.blocked_bytes
        ),
        detailed=True,
        wide=True,
        right=False,
    ),
    Column(
        "due",
        "DUE IN",
        6,
        lambda one, now: _due_text(one, now) if one.details is not None else UNKNOWN,
        lambda one: -(due_ms(one) or 0) if due_ms(one) is not None else float("-inf"),
        detailed=True,
    ),
    Column(
        "transaction",
        "OPEN TXN",
        9,
        _of_details(_transaction_text),
        lambda one: len(one.details.transactions) if one.details is not None else 0,
        detailed=True,
        wide=True,
    ),
    Column("newest", "NEWEST", 6, lambda one, now: age_text(max(0, now - newest_ms(one))), newest_ms),
)


def _name_key(one: WatchedPartition) -> tuple[str, int, str]:
    topic, _, number = one.name.rpartition("-")
    return topic, int(number) if number.isascii() and number.isdigit() else 0, one.directory


NAMED = Column("name", "PARTITION", 0, lambda one, _now: one.name, _name_key, right=False)
SORTS = {column.name: column for column in (NAMED, *COLUMNS)}


def fitting(width: int) -> list[Column]:
    """Returns the columns that fit a width beside the name: at 80 all but the wide ones."""
    shown = [column for column in COLUMNS if not column.wide]
    taken = _NAME_CELLS + sum(column.width + 1 for column in shown)
    for column in COLUMNS:
        if column.wide and taken + column.width + 1 <= width:
            shown.append(column)
            taken += column.width + 1
    while len(shown) > 1 and _NAME_CELLS + sum(column.width + 1 for column in shown) > width:
        shown.pop()
    return [column for column in COLUMNS if column in shown]


def partitions_table(
    rows: Sequence[WatchedPartition], sort: str, reverse: bool, selected: str, width: int, now_ms: int
) -> Table:
    """Returns the table of the partitions on the screen. Names come in as text, never as markup."""
    columns = fitting(width)
    drawn = _empty(width)
    _head(drawn, NAMED, sort, reverse, width - sum(column.width + 1 for column in columns))
    for column in columns:
        _head(drawn, column, sort, reverse, column.width)
    for one in rows:
        cells = [_cell(one.name, "reverse" if one.path == selected else "bold")]
        cells += [_cell(column.text(one, now_ms), _style(column, one)) for column in columns]
        drawn.add_row(*cells)
    return drawn


def segments_table(one: WatchedPartition, first: int, rows: int, width: int, now_ms: int) -> Table:
    """Returns the table of a partition's segments from number `first` on, the oldest first."""
    drawn = _empty(width)
    for heading, cells, right in (("SEGMENT", 24, False), ("SIZE", 8, True), ("STATE", 8, False), ("WRITTEN", 8, True)):
        drawn.add_column(heading, width=cells, justify="right" if right else "left", no_wrap=True)
    states = {} if one.details is None else {found.base_offset: found.state for found in one.details.segments}
    for segment in one.segments[first : first + rows]:
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


def _style(column: Column, one: WatchedPartition) -> str:
    """Red for what a transaction blocks, yellow for what is to be cleaned or deleted now."""
    if one.details is None:
        return "dim" if column.detailed else ""
    state = cleaner_text(one.details)
    if column.name in ("cleaner", "blocked", "transaction") and state == "blocked":
        return "bold red"
    if column.name == "cleaner" and state == "cleanable":
        return "yellow"
    is_due = column.name == "due" and one.details.retention is not None and one.details.retention.due_bytes > 0
    return "yellow" if is_due else ""
