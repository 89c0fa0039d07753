"""The launcher of a bundle: it finds the Python beside it, and says why that does not start."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from native.bundle.registries import HERE


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("the launcher is compiled by cc here, which is not installed")
    made = tmp_path_factory.mktemp("launcher") / "seglog"
    flags = ["-Wall", "-Wextra", "-Werror", "-O1", '-DPYTHON_NAME="python9"']
    subprocess.run([compiler, *flags, "-o", made, HERE / "launcher.c"], check=True)
    return made


@pytest.fixture
def bundle(launcher: Path, tmp_path: Path) -> Path:
    """A bundle in a directory with a blank, whose Python shows what it was called with."""
    root = tmp_path / "a bundle"
    for name in ("bin", "python/bin"):
        (root / name).mkdir(parents=True)
    shutil.copy(launcher, root / "bin/seglog")
    python = root / "python/bin/python9"
    python.write_text('#!/bin/sh\nprintf "%s\\n" "$0" "$@"\n')
    python.chmod(0o755)
    return root


def called(program: Path | str, *arguments: str, directory: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, *arguments], env={}, capture_output=True, text=True, cwd=directory, check=False)


def test_python_is_isolated_and_gets_every_argument(bundle: Path) -> None:
    done = called(bundle / "bin/seglog", "verify", "", "two words", "--", "-I")
    expected = [f"{bundle}/python/bin/python9", "-I", "-B", f"{bundle}/python/start.py"]
    assert done.stdout.split("\n")[:-1] == [*expected, "verify", "", "two words", "--", "-I"]


def test_it_may_be_called_through_links_and_by_a_relative_path(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "seglog").symlink_to("other")
    (tmp_path / "other").symlink_to(bundle / "bin/seglog")
    for program, directory in ((tmp_path / "seglog", None), ("./seglog", tmp_path), ("bin/seglog", bundle)):
        assert called(program, directory=directory).stdout.startswith(f"{bundle}/python/bin/python9\n-I\n")


def test_without_glibc_it_says_so(bundle: Path) -> None:
    (bundle / "python/bin/python9").write_text("#!/lib64/no-such-loader.so\n")
    done = called(bundle / "bin/seglog")
    assert (done.returncode, "needs glibc 2.17 or later" in done.stderr) == (126, True)


def test_where_nothing_may_be_executed_it_says_so(bundle: Path) -> None:
    (bundle / "python/bin/python9").chmod(0o644)
    done = called(bundle / "bin/seglog")
    assert (done.returncode, "noexec" in done.stderr, "glibc" in done.stderr) == (126, True, False)


def test_half_a_bundle_is_named(bundle: Path) -> None:
    (bundle / "python/bin/python9").unlink()
    done = called(bundle / "bin/seglog")
    assert (done.returncode, done.stderr) == (126, f"error: {bundle}/python/bin/python9: No such file or directory\n")
