"""Looking again: which of the things found beside a broker at work are there to stay?

A view of a partition (`scan.view`) is consistent as far as one can see; but a broker may be stopped between two
renames, or be rebuilding an index. What it is in the middle of is gone a moment later; what is wrong stays. So a
grave finding counts when every look over some seconds shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Generic, NamedTuple, TypeVar

from seglog.clock import Clock

STAYS_S = 2.0  # what is seen this long is there
_PAUSES_S = (0.2, 0.6, 1.4, 1.0, 1.0, 1.5, 2.0)

T = TypeVar("T")


class Settled(NamedTuple, Generic[T]):
    """`rows` of the last look, without grave ones that did not stay; `restless` are those that were still new when
    there was no more looking.
    """

    rows: list[T]
    restless: list[T]


def look_until_settled(
    look: Callable[[Sequence[T] | None], list[T]],
    key: Callable[[T], Hashable],
    is_grave: Callable[[T], bool],
    clock: Clock,
) -> Settled[T]:
    """Calls `look` until every grave row that it gives was there `STAYS_S` seconds before that look began, or there is
    none.

    `look` gets None at first, later the grave rows in question: it may leave out whatever these do not depend on,
    but not change its mind about the others. `key` tells whether two rows are the same thing.
    """
    rows = first = look(None)
    seen = clock.monotonic()
    since: dict[Hashable, float] = {key(row): seen for row in rows if is_grave(row)}
    began = seen  # of the last look: that time has passed shows nothing, a look that began later does
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
    return Settled([row for row in first if not is_grave(row)] + stayed, restless)
