"""Rules of the house that no linter knows: where time, printing, numba and heavy packages may appear."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ENGINE = sorted((ROOT / "core" / "seglog").rglob("*.py"))
BUILDER = sorted((ROOT / "core" / "native").rglob("*.py"))
COMMAND_LINE = sorted((ROOT / "seglog_cli").rglob("*.py"))
EVERYTHING = [*ENGINE, *BUILDER, *COMMAND_LINE, *sorted((ROOT / "tests").rglob("*.py"))]
HEAVY = ("numba", "numpy", "pyarrow", "pyspark", "pandas", "rich", "yaml")

BANNED_NAMES = {"utils", "helpers", "common", "misc", "manager2", "tmp", "foo"}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def calls(path: Path) -> Iterator[str]:
    """Dotted names of everything a file calls."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func)


def imports(path: Path, nested: bool = True) -> Iterator[str]:
    """Modules a file imports; without `nested` only those at the top, outside `if TYPE_CHECKING`."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree) if nested else tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


@pytest.mark.parametrize("path", ENGINE, ids=name_of)
def test_the_engine_prints_nothing_and_never_asks_for_the_time(path: Path) -> None:
    banned = {"print", "input", "time.time", "time.time_ns", "datetime.now", "datetime.datetime.now", "os.system"}
    allowed = {"time.time_ns"} if path.name == "clock.py" else set()
    assert set(calls(path)) & banned - allowed == set()


FILE_CALLS = "open stat lstat rename replace remove unlink mkdir makedirs rmdir link symlink chmod chown utime scandir"


@pytest.mark.parametrize("path", ENGINE, ids=name_of)
def test_files_are_reached_through_the_storage_layer_alone(path: Path) -> None:
    """Only there is it known which links may be followed (`storage.links`)."""
    banned = {"open", "io.open", *(f"os.{name}" for name in FILE_CALLS.split())}
    assert not set(calls(path)) & banned or path.parent.name == "storage"


@pytest.mark.parametrize("path", ENGINE, ids=name_of)
def test_numba_comes_in_by_its_one_door(path: Path) -> None:
    found = [name for name in imports(path) if name.partition(".")[0] in ("numba", "llvmlite")]
    assert not found or name_of(path) == "core/seglog/kernels/_numba.py"


@pytest.mark.parametrize("path", ENGINE, ids=name_of)
def test_arrow_and_spark_stay_where_they_belong(path: Path) -> None:
    heavy = [name for name in imports(path) if name.partition(".")[0] in ("pyarrow", "pyspark", "pandas")]
    place = name_of(path)
    assert not heavy or place.startswith(("core/seglog/spark/", "core/seglog/look/export/"))


@pytest.mark.parametrize("path", [p for p in COMMAND_LINE if p.parent.name != "spark"], ids=name_of)
def test_command_line_modules_import_the_engine_when_they_run(path: Path) -> None:
    if name_of(path) == "seglog_cli/manual.py":
        return  # a tool of the build, imported by no command
    engine = [n for n in imports(path, nested=False) if n.startswith("seglog.") or n in HEAVY]
    light = {"seglog.errors", "seglog.escaping"}
    if path.parent.name in ("commands", "views"):
        light.add("seglog.units")  # writes numbers; `seglog --help` imports no command
    assert [name for name in engine if name not in light] == []


@pytest.mark.parametrize("path", EVERYTHING, ids=name_of)
def test_no_file_has_a_name_that_says_nothing(path: Path) -> None:
    assert path.stem not in BANNED_NAMES


@pytest.mark.parametrize("path", [*ENGINE, *BUILDER, *COMMAND_LINE], ids=name_of)
def test_every_module_says_what_it_owns(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert not tree.body or ast.get_docstring(tree)


@pytest.mark.parametrize("path", [*ENGINE, *BUILDER, *COMMAND_LINE], ids=name_of)
def test_nothing_is_left_undone(path: Path) -> None:
    text = path.read_text()
    assert [word for word in ("TO" + "DO", "FIX" + "ME", "HA" + "CK:") if word in text] == []


@pytest.mark.parametrize("path", [*ENGINE, *BUILDER, *COMMAND_LINE], ids=name_of)
def test_no_error_is_swallowed(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ExceptHandler):
            assert not (len(node.body) == 1 and isinstance(node.body[0], ast.Pass)), f"line {node.lineno}"


@pytest.mark.parametrize("arguments", [["--help"], ["verify", "--help"], ["no-such-command"]], ids=" ".join)
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    script = f"import sys; from seglog_cli.app import run; run({arguments!r}); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT / 'core'}:{ROOT}", "PATH": "/usr/bin:/bin"},
    )
    loaded = {name.partition(".")[0] for name in done.stderr.split()}
    assert loaded & set(HEAVY) == set()
    assert "seglog_cli" in loaded
