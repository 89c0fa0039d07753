"""Patterns of paths on this machine and in object stores."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.errors import ConfigError, NotALogError
from seglog.scan.patterns import matching_paths
from seglog.storage.local import LocalFileSystem
from seglog_cli.app import run
from seglog_stores.remote.routing import files_with
from seglog_stores.remote.settings import StoreSettings
from tests.support.object_server import object_server

FS = LocalFileSystem()
NAMES = ("a-0", "a-1", "b-0", "b-10", "c-0")


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    for name in NAMES:
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{0:020}.log").touch()
    return tmp_path


PATTERNS = {
    "a-*": ["a-0", "a-1"],
    "?-0": ["a-0", "b-0", "c-0"],
    "[ab]-[0-9]": ["a-0", "a-1", "b-0"],
    "{b-10,a-0}": ["b-10", "a-0"],
    "{a,c}-*": ["a-0", "a-1", "c-0"],
    "{a,b}-{0,1}": ["a-0", "a-1", "b-0", "b-1"],
    "*/*.log": [f"{name}/{0:020}.log" for name in NAMES],
    "a-0": ["a-0"],
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_match_in_a_directory_and_in_a_store(logs: Path, pattern: str) -> None:
    assert matching_paths(FS, f"{logs}/{pattern}") == [logs / name for name in PATTERNS[pattern]]
    if "?" in pattern:  # begins a query in a URL, where credentials could be
        with pytest.raises(ConfigError, match="a URL cannot have"):
            matching_paths(FS, f"s3://bkt/k/{pattern}")
        return
    with object_server() as store:
        for name in NAMES:
            store.objects[f"bkt/k/{name}/{0:020}.log"] = b""
        fs = files_with(StoreSettings.of(store.environment))
        assert [str(path) for path in matching_paths(fs, f"s3://bkt/k/{pattern}")] == [
            f"s3://bkt/k/{name}" for name in PATTERNS[pattern]
        ]


def test_a_path_that_exists_is_no_pattern(logs: Path) -> None:
    for name in ("x[1]", "{a,b}-0", "*"):
        (logs / name).mkdir()
        assert matching_paths(FS, f"{logs}/{name}") == [logs / name]


def test_a_relative_pattern_gives_relative_paths(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(logs)
    assert matching_paths(FS, "b-*") == [Path("b-0"), Path("b-10")]


def test_patterns_without_a_match_and_nested_braces_are_refused(logs: Path) -> None:
    with pytest.raises(NotALogError, match="nothing matches"):
        matching_paths(FS, f"{logs}/z*")
    with pytest.raises(ConfigError, match="braces inside braces"):
        matching_paths(FS, f"{logs}/{{a,{{b,c}}}}-0")
    with pytest.raises(ConfigError, match="more than 10000"):
        matching_paths(FS, f"{logs}/" + "{a,b}" * 20)


def test_the_command_line_expands_what_the_shell_has_left(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ls", f"{logs}/{{a,c}}-*"]) == 0
    shown = capsys.readouterr().out
    assert [name for name in NAMES if name in shown] == ["a-0", "a-1", "c-0"]
    assert run(["ls", f"{logs}/z*"]) != 0
    assert "nothing matches" in capsys.readouterr().err
