"""Rules of the house that no linter knows: where time, printing, numba and heavy packages may appear."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.tidy.sources import COMMAND_LINE, ENGINE, PACKAGES, ROOT, SOURCES, TESTS, name_of, source

pytestmark = pytest.mark.xdist_group("tidy")  # one process parses the sources

HEAVY = ("numba", "numpy", "pyarrow", "pyspark", "pandas", "duckdb", "polars", "rich", "yaml")

BANNED_NAMES = {"utils", "helpers", "common", "misc", "manager2", "tmp", "foo"}


def offenders(paths: Iterable[Path], rule: Callable[[Path], Iterable[object]]) -> list[str]:
    """The files that break a rule, a line each with what breaks it."""
    return [f"{name_of(path)}: {broken}" for path in paths if (broken := list(rule(path)))]


def test_the_engine_prints_nothing_and_never_asks_for_the_time() -> None:
    banned = {"print", "input", "time.time", "time.time_ns", "datetime.now", "datetime.datetime.now", "os.system"}

    def rule(path: Path) -> set[str]:
        return source(path).calls & banned - ({"time.time_ns"} if path.name == "clock.py" else set())

    assert offenders(ENGINE, rule) == []


FILE_CALLS = "open stat lstat rename replace remove unlink mkdir makedirs rmdir link symlink chmod chown utime scandir"


def test_files_are_reached_through_the_storage_layer_alone() -> None:
    """Only there is it known which links may be followed (`storage.links`)."""
    banned = {"open", "io.open", *(f"os.{name}" for name in FILE_CALLS.split())}
    outside = (path for path in ENGINE if path.parent.name != "storage")
    assert offenders(outside, lambda path: source(path).calls & banned) == []


def roots(path: Path) -> set[str]:
    """The top packages that a file imports."""
    return {name.partition(".")[0] for name in source(path).modules()}


def test_numba_comes_in_by_its_one_door() -> None:
    outside = (path for path in ENGINE if name_of(path) != "core/seglog/kernels/_numba.py")
    assert offenders(outside, lambda path: roots(path) & {"numba", "llvmlite"}) == []


def test_arrow_and_spark_stay_where_they_belong() -> None:
    home = ("core/seglog_ask/spark/", "core/seglog_ask/table/")
    outside = (path for path in ENGINE if not name_of(path).startswith(home))
    assert offenders(outside, lambda path: roots(path) & {"pyarrow", "pyspark", "pandas"}) == []


def test_command_line_modules_import_the_engine_when_they_run() -> None:
    below = tuple(f"{package}." for package in PACKAGES)

    def rule(path: Path) -> list[str]:
        light = {"seglog.errors", "seglog.escaping"}
        if path.parent.name in ("commands", "views", "report_page"):
            light.add("seglog.units")  # writes numbers; `seglog --help` imports no command
        engine = [name for name in source(path).modules(at_top=True) if name.startswith(below) or name in HEAVY]
        return [name for name in engine if name not in light]

    # The manual's writer is a tool of the build, imported by no command.
    lazy = (p for p in COMMAND_LINE if p.parent.name != "spark" and name_of(p) != "seglog_cli/manual.py")
    assert offenders(lazy, rule) == []


def test_all_loggers_are_below_that_of_the_library() -> None:
    """A program that listens to the logger `seglog` hears every package."""

    def rule(path: Path) -> list[str]:
        own = {"__name__"} if name_of(path).startswith("core/seglog/") else set()
        names = re.findall(r"getLogger\(([^)]*)\)", path.read_text())
        return [name for name in names if name not in own and not re.match(r'"seglog["\.]', name)]

    assert offenders((*ENGINE, *COMMAND_LINE), rule) == []


def test_no_file_has_a_name_that_says_nothing() -> None:
    assert [name_of(path) for path in (*SOURCES, *TESTS) if path.stem in BANNED_NAMES] == []


def test_every_module_says_what_it_owns() -> None:
    assert [name_of(path) for path in SOURCES if not source(path).documented] == []


def test_nothing_is_left_undone() -> None:
    words = ("TO" + "DO", "FIX" + "ME", "HA" + "CK:")
    assert offenders(SOURCES, lambda path: [word for word in words if word in path.read_text()]) == []


def test_no_error_is_swallowed() -> None:
    assert offenders(SOURCES, lambda path: source(path).swallowed) == []


def test_help_imports_nothing_heavy() -> None:
    for arguments in (["--help"], ["verify", "--help"], ["no-such-command"]):
        assert modules_after(arguments) & {*HEAVY, "seglog_cli"} == {"seglog_cli"}


def modules_after(arguments: list[str]) -> set[str]:
    """The top packages that a process has imported after a command line."""
    script = f"import sys; from seglog_cli.app import run; run({arguments!r}); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT / 'core'}:{ROOT}", "PATH": "/usr/bin:/bin"},
    )
    return {name.partition(".")[0] for name in done.stderr.split()}
