"""The choice of how kernels run, made once, when the first of them is imported.

1. `native`: the library `_native` beside this module, which `core/native` builds from these sources ahead of time. It
   is used only if it carries the digest of exactly these sources and the processor has the instructions it needs.
2. `jit`: without such a library, numba compiles each kernel when it is first called (extra `jit`). The machine code
   stays in memory: kept in a directory, it would be run by anybody who later uses that directory.
3. `interpreted`: without numba, plain Python, some hundred times slower.

SEGLOG_KERNELS requires one of the three; SEGLOG_JIT=0 is an older way to require `interpreted`. A fallback that the
user did not ask for is logged.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from seglog import layout
from seglog.kernels._digest import sources_digest

NATIVE = "native"
JIT = "jit"
INTERPRETED = "interpreted"
MODES = (NATIVE, JIT, INTERPRETED)

LAST_PYTHON_OF_NUMBA = (3, 15)  # of the one in pyproject.toml

VARIABLE = "SEGLOG_KERNELS"
OLDER_VARIABLE = "SEGLOG_JIT"

_logger = logging.getLogger(__name__)


class Mode(NamedTuple):
    """A mode: `detail` says where the kernels come from; `library` is the module `_native`, or None in other modes."""

    name: str
    detail: str
    library: Any = None


def _wanted() -> str | None:
    named = os.environ.get(VARIABLE, "").strip().lower()
    if named and named not in MODES:
        _refuse(f"{VARIABLE}={named} is not one of {', '.join(MODES)}")
    if named:
        return named
    switched_off = os.environ.get(OLDER_VARIABLE, "1").lower() in ("0", "false", "no", "off")
    return INTERPRETED if switched_off else None


def _refuse(reason: str) -> NoReturn:
    raise ImportError(reason, name=__package__)


def _library() -> tuple[Any, str]:
    """Returns (the native library or None, its path or the reason for not using it)."""
    try:
        library = importlib.import_module("seglog.kernels._native")
    except ModuleNotFoundError:
        return None, "no library of compiled kernels was installed"
    except ImportError as error:
        return None, f"the library of compiled kernels cannot be loaded: {error}"
    if sources_digest() != library.SOURCES:
        return None, "the library of compiled kernels was built from other sources; python -m native builds it anew"
    library.bind(tuple(getattr(layout, name) if name.isupper() else np.dtype(name) for name in library.ITEMS))
    return library, str(library.__file__)


def _numba() -> str | None:
    """Returns the reason why numba cannot be used, or None."""
    try:
        importlib.import_module("numba")
    except ImportError as error:
        return f"numba cannot be imported: {error}"
    return None


def _remedy(version: Sequence[int]) -> str:
    """Says how kernels become fast on this version of Python, without a library of compiled ones."""
    if tuple(version[:2]) > LAST_PYTHON_OF_NUMBA:
        python, last = (".".join(map(str, pair[:2])) for pair in (version, LAST_PYTHON_OF_NUMBA))
        return f"numba, which compiles them, has no release for Python {python}: seglog is fast up to Python {last}"
    return "pip install '.[jit]' in seglog's clone helps"


def _choose() -> Mode:
    wanted = _wanted()
    reason = f"{VARIABLE} or {OLDER_VARIABLE} asks for it"
    if wanted in (None, NATIVE):
        library, reason = _library()
        if library is not None:
            return Mode(NATIVE, reason, library)
        if wanted == NATIVE:
            _refuse(f"{VARIABLE}={NATIVE}: {reason}")
    if wanted in (None, JIT):
        missing = _numba()
        if missing is None:
            if wanted is None:
                _logger.warning("kernels are compiled at their first use, which takes seconds: %s", reason)
            return Mode(JIT, reason)
        if wanted == JIT:
            _refuse(f"{VARIABLE}={JIT}: {missing}")
        _logger.warning(
            "kernels run interpreted, some hundred times slower: %s (%s)", reason, _remedy(sys.version_info)
        )
    warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"seglog\.kernels\.")  # integers may wrap
    return Mode(INTERPRETED, reason)


MODE = _choose()
