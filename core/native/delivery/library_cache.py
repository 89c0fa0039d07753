"""Keeps compiled libraries between builds, so that installing an extra compiles nothing and fetches no compiler.

They lie in `$XDG_CACHE_HOME/seglog-kernels` (`~/.cache`), or where SEGLOG_BUILD_CACHE says; `none` keeps none. A file's
name has the target, the digest of all that determines the library (sources, builder, the tools as pyproject.toml pins
them), and the SHA-256 of its bytes.

A library is code that runs as this user. So it is used only if folder and file belong to this user, nobody else may
write them, and the bytes have the digest in the name; the bytes of the open file are checked, and no others are used.
This module needs the standard library alone: numpy is not in a build's environment.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tomllib
from collections.abc import Callable
from pathlib import Path

from native import building

VARIABLE = "SEGLOG_BUILD_CACHE"
KEPT = 8  # libraries; the oldest go
_LARGEST = 64 << 20  # bytes of a library; today's have 400,000
_OTHERS_WRITE = 0o022
_PROJECT = Path(__file__).resolve().parents[3] / "pyproject.toml"

Say = Callable[[str], None]


def folder() -> Path | None:
    """Returns the folder of kept libraries; None if none are kept."""
    asked = os.environ.get(VARIABLE)
    if asked == "none":
        return None
    if asked:
        return Path(asked).absolute()
    home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not home.is_absolute():
        home = Path(os.path.expanduser("~")) / ".cache"  # noqa: PTH111 - Path.home raises where there is no home
    return home / "seglog-kernels" if home.is_absolute() else None


def tools() -> list[str]:
    """Returns the requirements of a build that compiles, as pyproject.toml pins them."""
    hooks = tomllib.loads(_PROJECT.read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]
    return [str(requirement) for requirement in hooks["custom"]["tools"]]


def kept(target: str, say: Say) -> bytes | None:
    """Returns the kept library of a target, of these sources and tools; None if there is none that may be used."""
    place = folder()
    if place is None or not place.is_dir():
        return None
    doubt = _doubt(place.lstat(), stat.S_ISDIR)
    if doubt:
        say(f"{place} {doubt}: the libraries in it are not used")
        return None
    for path in sorted(place.glob(f"{_prefix(target)}*.so")):
        try:
            return _read(path)
        except (OSError, ValueError) as error:
            say(f"{path} is not used: {error}")
    return None


def keep(library: bytes, target: str, say: Say) -> None:
    """Keeps a library for the next build. That it cannot be kept is said, and ends no build."""
    place = folder()
    if place is None:
        return
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.mkdir(mode=0o700, exist_ok=True)
        doubt = _doubt(place.lstat(), stat.S_ISDIR)
        if doubt:
            raise ValueError(f"{place} {doubt}")
        newest = place / f"{_prefix(target)}{hashlib.sha256(library).hexdigest()}.so"
        building.put(library, newest)
        others = sorted(place.glob("*.so"), key=lambda path: (path == newest, path.lstat().st_mtime_ns))
        for old in (*others[:-KEPT], *place.glob(f"{_prefix(target)}*.so")):
            if old != newest:
                old.unlink(missing_ok=True)
    except (OSError, ValueError) as error:
        say(f"the compiled kernels are not kept for the next build: {error}")


def _prefix(target: str) -> str:
    return f"{target}-{building.digest_of(target, tools())}-"


def _read(path: Path) -> bytes:
    """Returns the bytes of a kept library. Raises ValueError if another user, or an accident, may have changed them."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        status = os.fstat(file.fileno())
        doubt = _doubt(status, stat.S_ISREG) or ("has another name (a hard link)" if status.st_nlink > 1 else "")
        if doubt or status.st_size > _LARGEST:
            raise ValueError(f"it {doubt or 'is too large'}")
        library = file.read(_LARGEST)
    if hashlib.sha256(library).hexdigest() != path.stem.rpartition("-")[2]:
        raise ValueError("its bytes do not have the digest in its name")
    return library


def _doubt(status: os.stat_result, is_kind: Callable[[int], bool]) -> str:
    if not is_kind(status.st_mode):
        return "is not a directory" if is_kind is stat.S_ISDIR else "is not a plain file"
    if status.st_uid != os.geteuid():
        return f"belongs to the user with uid {status.st_uid}"
    return "may be written by other users" if status.st_mode & _OTHERS_WRITE else ""
