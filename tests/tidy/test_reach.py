"""How much code a verb reaches by imports, those in functions too but not those for types: what its reader may meet.

The bounds are lines, rounded up to the next 500, and only go down. `open_log` has the 24,000 that it was to have. The
nine verbs of the card were to come from 58,366 to 45,000. They are where they are after all that plugs in has come
through doors (`seglog.doors`: object stores, tiers, values, committed offsets, appends of Spark's), nothing but
kernels (there is one native library) is left in the engine that only other packages use, and each room was read for
what is said twice. What remains is the verbs' own work: a log 7,300, findings 5,100, kernels 5,000, repairs 4,300,
cleaning 4,300, formats 3,700, files 3,300, operations 3,100. 4,000 lines less would be verbs that do less.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.tidy.sources import source
from tests.tidy.test_cycles import modules

pytestmark = pytest.mark.xdist_group("tidy")  # one process parses the sources

CARD = ("append", "read", "recover", "retain", "clean", "dump", "verify", "repair", "stats")
STARTS = {
    "the card": ([f"seglog_cli.commands.{verb}" for verb in CARD], 49_000),
    "open_log": (["seglog.api.opening"], 23_000),
}
_STEP = 500


def needed(path: Path, known: dict[str, Path]) -> set[str]:
    """The modules that a module imports when it runs."""
    names: set[str] = set()
    for statement in source(path).imports:
        if statement.for_types:
            continue
        if statement.module is None:
            names |= set(statement.names)
        elif statement.module:
            below = {f"{statement.module}.{name}" for name in statement.names}
            names |= below & known.keys() or {statement.module}
            if below - known.keys():
                names.add(statement.module)
    return names & known.keys()


def reached(starts: Iterable[str], known: dict[str, Path]) -> set[str]:
    """All modules that these need, and they themselves."""
    found: set[str] = set()
    open_ = list(starts)
    while open_:
        name = open_.pop()
        if name not in found:
            found.add(name)
            open_ += needed(known[name], known)
    return found


@pytest.mark.parametrize("start", STARTS)
def test_a_verb_reaches_no_more_lines(start: str) -> None:
    known = modules()
    names, bound = STARTS[start]
    lines = sum(len(known[name].read_text().splitlines()) for name in reached(names, known))
    assert bound - 2 * _STEP < lines <= bound, f"{lines} lines: the bound is {bound}, and a lower one is kept"
