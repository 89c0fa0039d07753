"""Redirects a child process's stderr to a file: Spark's JVM writes much there that is not ours."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from typing import BinaryIO

_MOST_BYTES = 64 << 10


@contextlib.contextmanager
def stderr_aside() -> Iterator[BinaryIO]:
    """Makes stderr a temporary file while open. Children that start meanwhile write there as long as they live."""
    sys.stderr.flush()
    number = sys.__stderr__.fileno() if sys.__stderr__ is not None else 2
    with tempfile.TemporaryFile() as file:
        ours = os.dup(number)
        os.dup2(file.fileno(), number)
        try:
            yield file
        finally:
            sys.stderr.flush()
            os.dup2(ours, number)
            os.close(ours)


def beginning_of(file: BinaryIO) -> str:
    """Returns the first 64 KiB that were written."""
    return os.pread(file.fileno(), _MOST_BYTES, 0).decode("utf-8", "replace")
