"""No circle of modules: none imports another that imports it, neither at the top nor inside a function, nor for types.

`from seglog.log import swap` counts as an import of `seglog.log.swap`. A package's `__init__` does not count as a part
of what is below it. Lazy names of `seglog/__init__` are its users' imports.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy.sources import PACKAGES, ROOT, source

pytestmark = pytest.mark.xdist_group("tidy")  # one process parses the sources

PLACES = {**dict.fromkeys((*PACKAGES, "native"), ROOT / "core"), "seglog_cli": ROOT}


def modules() -> dict[str, Path]:
    found = {}
    for package, root in PLACES.items():
        for path in (root / package).rglob("*.py"):
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(path: Path, known: dict[str, Path]) -> Iterator[str]:
    for statement in source(path).imports:
        if statement.module is None:
            yield from (name for name in statement.names if name in known)
        elif statement.module:
            below = [f"{statement.module}.{name}" for name in statement.names]
            yield from (name for name in below if name in known)
            if statement.module in known and any(name not in known for name in below):
                yield statement.module


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected components of more than one module (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(edges[name]):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            at = stack.index(name)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for name in sorted(edges):
        if name not in index:
            visit(name)
    return found


def test_a_circle_is_seen_by_its_members_alone() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}) == [["b", "c"]]
    assert circles({"a": {"b"}, "b": set()}) == []


def test_no_modules_import_each_other() -> None:
    known = modules()
    edges = {name: set(imported(path, known)) - {name} for name, path in known.items()}
    edges["seglog"] = set()  # its names are imported when they are used
    assert circles(edges) == []
