"""How kernels run: which of the three ways is chosen, and what is announced."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from seglog.kernels import _mode
from seglog.kernels._mode import MODE, NATIVE

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "core"
SHOW = "from seglog.kernels import _mode, varint; print(_mode.MODE.name, varint.varint_size(300))"
NO_NUMBA = "raise ImportError('not here')\n"

needs_library = pytest.mark.skipif(MODE.name != NATIVE, reason="this run has no native library")


def package(directory: Path, *, numba: bool = False) -> Path:
    """A copy of the package as far as kernels need it, library and all; without `numba` that cannot be imported."""
    root = directory / "site"
    ignored = shutil.ignore_patterns("__pycache__", ".*")
    shutil.copytree(CORE / "seglog" / "kernels", root / "seglog" / "kernels", ignore=ignored)
    for name in ("__init__.py", "__init__.pyi", "arguments.py", "layout.py", "model.py"):
        shutil.copy(CORE / "seglog" / name, root / "seglog" / name)
    if not numba:
        (root / "numba.py").write_text(NO_NUMBA)
    return root


def run(path: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SEGLOG_")}
    return subprocess.run(
        [sys.executable, "-c", SHOW],
        env={**kept, "PYTHONPATH": str(path), **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_tests_run_what_users_get() -> None:
    asked = os.environ.get("SEGLOG_KERNELS")
    assert MODE.name == (asked or NATIVE), MODE.detail


@needs_library
def test_the_library_is_used_where_it_is_of_these_sources(tmp_path: Path) -> None:
    done = run(package(tmp_path))
    assert (done.stdout, done.stderr) == ("native 2\n", "")


@needs_library
@pytest.mark.parametrize("edited", ["kernels/varint.py", "kernels/_jit.py", "layout.py", "model.py"])
def test_a_library_of_other_sources_is_never_used(tmp_path: Path, edited: str) -> None:
    root = package(tmp_path)
    with (root / "seglog" / edited).open("a") as file:
        file.write("# edited\n")
    done = run(root)
    assert done.stdout == "interpreted 2\n"
    assert done.stderr.count("\n") == 1
    assert "was built from other sources; python -m native builds it anew" in done.stderr
    refused = run(root, SEGLOG_KERNELS="native")
    assert refused.returncode == 1
    assert "SEGLOG_KERNELS=native: the library of compiled kernels was built from other sources" in refused.stderr


@needs_library
def test_a_new_kernel_module_makes_the_library_stale(tmp_path: Path) -> None:
    root = package(tmp_path)
    (root / "seglog" / "kernels" / "more").mkdir()
    (root / "seglog" / "kernels" / "more" / "new.py").touch()
    assert run(root).stdout == "interpreted 2\n"


def test_without_a_library_numba_compiles_and_without_numba_kernels_are_interpreted(tmp_path: Path) -> None:
    pytest.importorskip("numba")
    root = package(tmp_path, numba=True)
    (root / "seglog" / "kernels" / "_native.abi3.so").unlink(missing_ok=True)
    compiled = run(root)
    assert compiled.stdout == "jit 2\n"
    assert "compiled at their first use" in compiled.stderr
    assert "no library of compiled kernels was installed" in compiled.stderr
    (root / "numba.py").write_text(NO_NUMBA)
    interpreted = run(root)
    assert interpreted.stdout == "interpreted 2\n"
    assert interpreted.stderr.count("\n") == 1
    assert "some hundred times slower" in interpreted.stderr
    assert "pip install '.[jit]' in seglog's clone" in interpreted.stderr


def test_where_numba_cannot_be_installed_it_is_not_advised() -> None:
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["dev"]
    (numba,) = [line for line in known if line.startswith("numba")]
    last = _mode.LAST_PYTHON_OF_NUMBA
    assert numba.endswith(f"python_version < '{last[0]}.{last[1] + 1}'")
    assert _mode._remedy((*last, 7)) == "pip install '.[jit]' in seglog's clone helps"
    assert "no release for Python 4.0: seglog is fast up to Python 3.15" in _mode._remedy((4, 0, 0))


def test_a_library_that_cannot_be_loaded_says_why(tmp_path: Path) -> None:
    root = package(tmp_path)
    (root / "seglog" / "kernels" / "_native.abi3.so").write_bytes(b"\x7fELF no more")
    done = run(root)
    assert done.stdout == "interpreted 2\n"
    assert "the library of compiled kernels cannot be loaded" in done.stderr


def test_a_zip_has_no_library_and_runs_interpreted(tmp_path: Path) -> None:
    root = package(tmp_path)
    archive = tmp_path / "seglog.zip"
    with zipfile.ZipFile(archive, "w") as zipped:
        for path in [*root.rglob("*.py"), *root.rglob("*.pyi")]:
            zipped.write(path, path.relative_to(root))
    done = run(archive)
    assert done.stdout == "interpreted 2\n", done.stderr
    assert "no library of compiled kernels was installed" in done.stderr


@needs_library
def test_what_is_asked_for_is_had_and_not_announced(tmp_path: Path) -> None:
    root = package(tmp_path)
    for variables in ({"SEGLOG_KERNELS": "interpreted"}, {"SEGLOG_JIT": "0"}, {"SEGLOG_JIT": "off"}):
        done = run(root, **variables)
        assert (done.stdout, done.stderr) == ("interpreted 2\n", "")
    assert run(root, SEGLOG_JIT="1").stdout == "native 2\n"
    assert run(root, SEGLOG_KERNELS="Native", SEGLOG_JIT="0").stdout == "native 2\n"
    refused = run(root, SEGLOG_KERNELS="jit")
    assert "SEGLOG_KERNELS=jit: numba cannot be imported: not here" in refused.stderr
    assert run(root, SEGLOG_KERNELS="fast").returncode == 1


@needs_library
def test_an_old_processor_is_recognised_before_any_kernel_runs(tmp_path: Path) -> None:
    emulator = shutil.which("qemu-x86_64-static") or shutil.which("qemu-x86_64")
    if emulator is None:
        pytest.skip("needs qemu-user: Debian's package qemu-user-static")
    environment = {**os.environ, "PYTHONPATH": str(package(tmp_path))}
    code = "import seglog.kernels._native"
    done = subprocess.run(
        [emulator, "-cpu", "core2duo", sys.executable, "-S", "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "ImportError: the processor lacks SSE4.2 or POPCNT" in done.stderr
