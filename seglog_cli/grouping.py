"""Groups findings and diagnoses by code: a count, and the first three of each.

The directory of a killed broker has hundreds of findings of few kinds. They are counted as they come and shown at the
end, the gravest first; an interrupted command shows those so far. With --all each is shown at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Generic, Self, TypeVar

from seglog_cli.failures import UsageError
from seglog_cli.options import OptionGroup, flag, one_of, option

if TYPE_CHECKING:
    from seglog_cli.session import Session

Row = TypeVar("Row")

SHOWN = 3
SEVERITIES = ("error", "warning", "info")
GRAVITIES = ("blocker", "danger", "note")

Every = Annotated[
    bool, flag("--all -a", "Show every one, not only the first three of each code. JSON lines always show all.")
]


@dataclass(frozen=True)
class FindingsShown(OptionGroup):
    """Chooses the findings to show. The exit code and the sums always count all."""

    every: Every = False
    severity: Annotated[
        str | None, option("--severity", "error|warning|info", "Show only this severity and graver ones.")
    ] = None
    codes: Annotated[list[str] | None, option("--code", "CODE", "Show only findings with this code; repeatable.")] = (
        None
    )

    def known_codes(self) -> frozenset[str]:
        """Returns the codes to show, none meaning all; raises UsageError for an unknown one."""
        from seglog.verification.finding_codes import CODES

        for code in self.codes or ():
            if code not in CODES:
                raise UsageError(f"--code: {code!r} is not the code of a finding (man seglog-findings lists them)")
        return frozenset(self.codes or ())


@dataclass(frozen=True)
class DiagnosesShown(OptionGroup):
    """Chooses the diagnoses to show. The exit code and the sums always count all."""

    every: Every = False
    severity: Annotated[
        str | None, option("--severity", "blocker|danger|note", "Show only this severity and graver ones.")
    ] = None


@dataclass
class CodeGroup(Generic[Row]):
    """The rows with one code: the first ones, and their number."""

    severity: str
    code: str
    first: list[Row] = field(default_factory=list)
    count: int = 0

    @property
    def more(self) -> int:
        """The number of rows that are not among the first."""
        return self.count - len(self.first)


@dataclass(frozen=True)
class RowLook(Generic[Row]):
    """How rows are shown: `one` alone, `group` with a heading. `levels` go from the gravest to the mildest."""

    levels: Sequence[str]
    level_of: Callable[[Row], str]
    code_of: Callable[[Row], str]
    one: Callable[[Row], None]
    group: Callable[[CodeGroup[Row]], None]


class Grouped(Generic[Row]):
    """Collects rows; shows them at its end, or at once with `--all` or `--json`. `-q` shows none."""

    def __init__(self, session: Session, look: RowLook[Row], asked: FindingsShown | DiagnosesShown) -> None:
        least = look.levels[-1] if asked.severity is None else one_of("--severity", asked.severity, look.levels)
        self._shown = look.levels[: look.levels.index(least) + 1]
        self._codes = asked.known_codes() if isinstance(asked, FindingsShown) else frozenset()
        self._look, self._at_once = look, asked.every or session.as_json
        self._silent = session.console.quiet and not session.as_json
        self._groups: dict[tuple[str, str], CodeGroup[Row]] = {}

    def add(self, row: Row) -> None:
        level, code = self._look.level_of(row), self._look.code_of(row)
        if self._silent or level not in self._shown or (self._codes and code not in self._codes):
            return
        if self._at_once:
            self._look.one(row)
            return
        key = (level, code)
        group = self._groups.setdefault(key, CodeGroup(*key))
        group.count += 1
        if len(group.first) < SHOWN:
            group.first.append(row)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        rank = {level: number for number, level in enumerate(self._look.levels)}
        for group in sorted(self._groups.values(), key=lambda group: rank[group.severity]):
            if group.count == 1:
                self._look.one(group.first[0])
            else:
                self._look.group(group)
        self._groups.clear()
