"""Builds the library for a target, unless it is up to date.

A library contains a *stamp* of the sources, builder and tools it was built from: if the stamp is current, there is
nothing to do. The library is written to a temporary file and renamed, so that no process loads half of it. The same
sources and tools give the same bytes.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from native.platforms import CRC32C_HELPER, Target, named, this_platform
from seglog.kernels._digest import sources_digest

SHARES = 2  # shares of the kernels that are compiled in parallel; the library's bytes depend on it
TOOLS = ("numba", "llvmlite", "ziglang")
if TYPE_CHECKING:
    from native.signatures import Kernel

LIBRARY = "_native.abi3.so"
TARGET_VARIABLE = "SEGLOG_BUILD_TARGET"

_HERE = Path(__file__).parent
_STAMP_MARK = "seglog-native-stamp:"


class BuildError(Exception):
    """The library cannot be built; the message says what is missing."""


def library_for(target: str) -> Path:
    """Returns the path of a target's library: beside the kernels for this platform, else under `build`."""
    here = this_platform()
    if here is not None and here.name == target:
        return _HERE.parent / "seglog" / "kernels" / LIBRARY
    return _HERE.parents[1] / "build" / "native" / target / LIBRARY


def stamp(target: str) -> str:
    """Returns the stamp: a digest of everything that determines the library's bytes."""
    return _STAMP_MARK + digest_of(target, [f"{tool}={_version(tool)}" for tool in TOOLS])


def digest_of(target: str, tools: Iterable[str]) -> str:
    """Returns 32 hexadecimal digits over the kernels' sources, the builder's, the target and the tools as stated."""
    digest = hashlib.blake2b(sources_digest().encode(), digest_size=16)
    for path in sorted([*_HERE.glob("*.py"), *_HERE.glob("*.c")]):
        if path.name in ("__main__.py", "hook.py", "install.py"):
            continue  # they do not affect the library
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    for tool in tools:
        digest.update(f"{tool}\0".encode())
    digest.update(target.encode())
    return digest.hexdigest()


def is_current(library: Path, target: str) -> bool:
    """True if `library` is what `build` would make."""
    return library.is_file() and stamp(target).encode() in library.read_bytes()


def borrow(library: Path, target: str) -> bool:
    """Copies the library from another worktree of this repository, if one has what `build` would make."""
    root = _HERE.parents[1]
    try:
        listed = subprocess.run(
            ["git", "worktree", "list", "--porcelain"], cwd=root, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return False
    for line in listed.stdout.splitlines():
        other = Path(line.removeprefix("worktree ")) / library.relative_to(root)
        if line.startswith("worktree ") and is_current(other, target):
            put(other.read_bytes(), library)
            return True
    return False


def build(wanted: Sequence[tuple[str, Path]], say: Callable[[str], None]) -> None:
    """Builds the library of each (target, path); kernels are lowered once for all targets."""
    missing = [tool for tool in TOOLS if _version(tool) == ""]
    if missing:
        raise BuildError(
            f"building the compiled kernels needs {', '.join(missing)}, which is not installed: pip installs the"
            " packages that pyproject.toml names as `tools`, or set SEGLOG_BUILD_TARGET=none to go without"
            " compiled kernels"
        )
    say("lowering and compiling kernels, which takes a minute")
    with tempfile.TemporaryDirectory(prefix="seglog-native-") as work:
        folder = Path(work)
        names = [name for name, _ in wanted]
        with ProcessPoolExecutor(min(SHARES, os.cpu_count() or 1), multiprocessing.get_context("spawn")) as pool:
            done = list(pool.map(_compile_share, range(SHARES), [names] * SHARES, [folder] * SHARES))
        kernels = [kernel for part in done for kernel in part[0]]
        results = {name: kinds for part in done for name, kinds in part[1].items()}
        for name, path in wanted:
            # imported late, because it loads numba
            from native import glue

            (folder / "kernels.h").write_text(glue.tables(kernels, results, sources_digest(), stamp(name)))
            _link(folder, named(name))
            put((folder / LIBRARY).read_bytes(), path)
            say(f"built {path}")


def _compile_share(share: int, names: list[str], folder: Path) -> tuple[list[Kernel], dict[str, str]]:
    """Writes the object files of a share of the kernels. It runs in its own process, because it modifies numba."""
    from native import lowering, objects
    from seglog import kernels
    from seglog.kernels import _numba

    _numba.CRC32C_FUNCTION = CRC32C_HELPER
    lowering.stripped_numba()
    from seglog.kernels import _jit

    lowered = lowering.lower(kernels, _jit.native_name, share, SHARES, _jit.APART)
    for name in names:
        _object(folder, name, share).write_bytes(objects.object_file(lowered.code, named(name)))
    return lowered.kernels, lowered.results


def _object(folder: Path, target: str, share: int) -> Path:
    return folder / f"{target}-{share}.o"


def _version(tool: str) -> str:
    try:
        return importlib.metadata.version(tool)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _link(folder: Path, target: Target) -> None:
    command = [sys.executable, "-m", "ziglang", "cc", "-target", target.zig, "-O2", "-Wall", "-Wextra"]
    command += ["-shared", "-fPIC", "-fvisibility=hidden", "-s", *target.link, "-I", str(folder)]
    command += ["-o", str(folder / LIBRARY), str(_HERE / "glue.c")]
    command += [str(_object(folder, target.name, share)) for share in range(SHARES)]
    caches = {name: str(folder / name) for name in ("ZIG_LOCAL_CACHE_DIR", "ZIG_GLOBAL_CACHE_DIR")}
    done = subprocess.run(command, env={**os.environ, **caches}, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"linking for {target.name} failed ({done.returncode}):\n{done.stdout}{done.stderr}")


def put(library: bytes, path: Path) -> None:
    """Writes a library, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(library)
        beside.chmod(0o755)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
