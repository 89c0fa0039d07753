"""The single door to numba: `@kernel` compiles a function, or leaves it as it is.

One source runs at two speeds. `SEGLOG_JIT=0`, or a Python without numba, runs kernels interpreted: right,
and some hundred times slower, so the second case is announced once. Compiled code is cached under
`<user cache>/seglog/<digest>`, where the digest covers every kernel source and `layout.py`: numba's own
cache looks at one file only and would keep machine code whose helper changed. Where no cache can be written
(read-only executors), kernels compile in memory.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

_logger = logging.getLogger(__name__)


def _wanted() -> bool:
    return os.environ.get("SEGLOG_JIT", "1").lower() not in ("0", "false", "no", "off")


def _cache_directory() -> Path:
    folder = Path(__file__).parent
    digest = hashlib.sha256()
    for source in [*sorted(folder.glob("*.py")), folder.parent / "layout.py"]:
        digest.update(source.read_bytes())
    root = os.environ.get("SEGLOG_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "seglog" / digest.hexdigest()[:16]


try:
    if not _wanted():
        raise ImportError("SEGLOG_JIT=0")
    import numba

    COMPILED = True
except ImportError as _error:
    COMPILED = False
    if _wanted():
        _logger.warning("numba is not usable (%s): kernels run interpreted, some hundred times slower", _error)


def _writable_cache() -> str | None:
    try:
        directory = _cache_directory()
        directory.mkdir(parents=True, exist_ok=True)
        probe = directory / f".probe-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except (OSError, RuntimeError) as error:
        _logger.info("kernels compile in memory, because no cache can be written: %s", error)
        return None
    return str(directory)


_CACHE = _writable_cache() if COMPILED else None


def kernel(function: F) -> F:
    """Compiles `function` without the GIL and without Python objects, or returns it when kernels are interpreted.

    `kernel(...)` results carry the Python source as `.py_func` in both modes, so tests can compare.
    """
    if not COMPILED:
        function.py_func = function  # type: ignore[attr-defined]
        return function
    if _CACHE is None:
        return cast(F, numba.njit(nogil=True)(function))
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = _CACHE
    try:
        return cast(F, numba.njit(nogil=True, cache=True)(function))
    except (OSError, RuntimeError) as error:
        _logger.info("kernel %s compiles in memory: %s", function.__name__, error)
        return cast(F, numba.njit(nogil=True)(function))
    finally:
        numba.config.CACHE_DIR = before
