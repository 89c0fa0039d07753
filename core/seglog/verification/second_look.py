"""Repeated looks beside a running broker: a grave finding counts only if it lasts.

A view of a partition (`scan.view`) is consistent, but the broker may be between two renames, or rebuilding an index.
Such a state is gone a moment later, while real damage stays. So a grave finding counts if every look over a few seconds
shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Generic, NamedTuple, TypeVar

from seglog.clock import Clock

STAYS_S = 2.0  # a finding seen for this long is real
_PAUSES_S = (0.2, 0.6, 1.4, 1.0, 1.0, 1.5, 2.0)

T = TypeVar("T")


class SettledRows(NamedTuple, Generic[T]):
    """`rows` of the last look, without grave ones that did not last. `restless` are grave rows that were still new at
    the last look.
    """

    rows: list[T]
    restless: list[T]


def look_until_settled(
    look: Callable[[Sequence[T] | None], list[T]],
    key: Callable[[T], Hashable],
    is_grave: Callable[[T], bool],
    clock: Clock,
) -> SettledRows[T]:
    """Calls `look` until every grave row that it returns was already there `STAYS_S` seconds before that look began, or
    until there are no grave rows.

    `look` receives None first, later the grave rows in question; it may then skip work that these do not depend on.
    Rows with equal `key` are the same finding.
    """
    rows = first = look(None)
    seen = clock.monotonic()
    since: dict[Hashable, float] = {key(row): seen for row in rows if is_grave(row)}
    began = seen  # when the last look began; only a look that began later proves that a row lasted
    for pause in _PAUSES_S:
        if not since or all(began - noted >= STAYS_S for noted in since.values()):
            break
        clock.sleep(pause)
        began = clock.monotonic()
        rows = look([row for row in rows if is_grave(row)])
        seen = clock.monotonic()
        since = {key(row): since.get(key(row), seen) for row in rows if is_grave(row)}
    grave = [row for row in rows if is_grave(row)]
    stayed = [row for row in grave if began - since[key(row)] >= STAYS_S]
    restless = [row for row in grave if began - since[key(row)] < STAYS_S]
    return SettledRows([row for row in first if not is_grave(row)] + stayed, restless)
