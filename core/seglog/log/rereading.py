"""Loads a log again if its files are gone meanwhile: a live broker deletes and renames what was listed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from seglog.scan.listing import require_directory
from seglog.storage.filesystem import FileSystem

_Loaded = TypeVar("_Loaded")

_logger = logging.getLogger(__name__)

_READ_ATTEMPTS = 4


def reread(fs: FileSystem, directory: Path, load: Callable[[], _Loaded]) -> _Loaded:
    """Returns the result of `load`, repeated if files are gone: a live broker deletes and renames listed files.

    Raises NotALogError once the directory itself is gone, FileNotFoundError if the last attempt fails, too.
    """
    for left in reversed(range(_READ_ATTEMPTS)):
        try:
            return load()
        except FileNotFoundError as error:
            require_directory(fs, directory)
            if not left:
                raise
            _logger.info("%s: changed while it was opened, trying again (%s)", directory, error)
    raise AssertionError("every attempt returns or raises")
