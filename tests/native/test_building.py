"""Building the native library: when there is something to do, what is missing, what kernels must not do."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from native import building, platforms
from native.signatures import parameters_of
from seglog.kernels import arrays
from seglog.kernels._mode import MODE, NATIVE
from seglog_cli.app import VERSION

pytestmark = pytest.mark.slow

CORE = Path(__file__).resolve().parents[2] / "core"

HERE = platforms.this_platform()
needs_library = pytest.mark.skipif(MODE.name != NATIVE, reason="this run has no native library")


def native(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "native", *arguments],
        env={**os.environ, "PYTHONPATH": str(CORE), **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@needs_library
def test_a_library_of_these_sources_is_not_built_again() -> None:
    pytest.importorskip("ziglang")
    assert HERE is not None
    before = building.library_for(HERE.name).stat().st_mtime_ns
    done = native()
    assert (done.returncode, done.stderr) == (0, "")
    assert building.library_for(HERE.name).stat().st_mtime_ns == before


@needs_library
def test_the_library_asks_for_no_memcpy() -> None:
    """It names no versions, and glibc binds such a memcpy on x86-64 to the slow one of before 2.14."""
    assert HERE is not None
    names = building.library_for(HERE.name).read_bytes().split(b"\0")
    assert {b"memmove", b"_memmove"} & set(names)
    assert not {b"memcpy", b"_memcpy"} & set(names)


@needs_library
def test_the_development_environment_makes_the_wheel_of_a_target(tmp_path: Path) -> None:
    pytest.importorskip("ziglang")
    pytest.importorskip("hatchling")
    assert HERE is not None
    done = native("--wheels", str(tmp_path), "--target", HERE.name)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.iterdir()
    assert wheel.name == f"seglog-{VERSION}-{HERE.tag}.whl"
    with zipfile.ZipFile(wheel) as packed:
        assert packed.read(f"seglog/kernels/{building.LIBRARY}") == building.library_for(HERE.name).read_bytes()
        assert {"seglog/__init__.py", "seglog_cli/app.py"} <= set(packed.namelist())


def test_the_stamp_is_of_sources_tools_and_target(monkeypatch: pytest.MonkeyPatch) -> None:
    first = building.stamp("x86_64-linux")
    assert building.stamp("x86_64-linux") == first
    assert building.stamp("aarch64-linux") != first
    monkeypatch.setattr(building, "sources_digest", lambda: "others")
    assert building.stamp("x86_64-linux") != first
    monkeypatch.undo()
    monkeypatch.setattr(building.importlib.metadata, "version", lambda tool: "0")
    assert building.stamp("x86_64-linux") != first


def test_missing_tools_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(building, "_version", lambda tool: "1" if tool == "numba" else "")
    with pytest.raises(building.BuildError, match="needs llvmlite, ziglang, which is not installed"):
        building.build([("x86_64-linux", tmp_path / "library.so")], lambda said: None)


def test_a_target_that_is_none_is_named() -> None:
    done = native("--target", "s390x-linux")
    assert done.returncode == 1
    assert done.stderr == "native: s390x-linux is not one of the targets x86_64-linux, aarch64-linux, arm64-macos\n"


def test_a_parameter_without_a_type_is_named() -> None:
    module = ModuleType("made_up")

    def kernel(data: arrays.Bytes, size: float) -> int:
        return 0

    kernel.__module__ = module.__name__
    kernel.__annotations__ = {"data": arrays.Bytes, "size": float}
    with pytest.raises(TypeError, match=r"made_up\.kernel: size: a kernel takes int, bool and the arrays"):
        parameters_of(kernel)


FORBIDDEN = {
    "allocates": ("    return len(np.zeros(size)) + data[0]\n", "np.zeros"),
    "raises": ("    if size > 3:\n        raise ValueError('no')\n    return size\n", "kernels"),
    "divides by what may be 0": ("    return size // data[0]\n", "kernels"),
}


@pytest.mark.parametrize(("body", "said"), FORBIDDEN.values(), ids=FORBIDDEN)
def test_a_kernel_that_allocates_or_raises_is_refused(body: str, said: str, tmp_path: Path) -> None:
    pytest.importorskip("llvmlite")
    (tmp_path / "made_up.py").write_text(
        "import numpy as np\nfrom seglog.kernels._jit import kernel\nfrom seglog.kernels.arrays import Bytes\n"
        f"@kernel\ndef probe(data: Bytes, size: int) -> int:\n{body}"
    )
    script = (
        "from native import lowering, objects, platforms\n"
        "lowering.stripped_numba()\n"
        "import made_up\n"
        "from seglog.kernels._jit import native_name\n"
        "lowered = lowering.lower(made_up, native_name)\n"
        "objects.object_file(lowered.code, platforms.named('x86_64-linux'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": f"{CORE}{os.pathsep}{tmp_path}", "SEGLOG_KERNELS": "jit"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert said in done.stderr.rpartition("Error")[2], done.stderr
