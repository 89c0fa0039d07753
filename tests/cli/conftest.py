"""Tests of the command line, run against another seglog: those that reach into the process cannot apply, and skip."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

from tests.support.command_line import ANOTHER, needs_this_process

# What a new process has anew: here a test makes it so.
_ANEW = {"_shared", "OF_PROCESS"}


@pytest.fixture(autouse=True)
def patched_here_alone() -> Iterator[None]:
    """A test that replaces a part of seglog, or a module that it imports, skips under SEGLOG_COMMAND."""
    if ANOTHER is None:
        yield
        return

    def refused(_: pytest.MonkeyPatch, target: object, name: Any = None, *rest: object, **more: object) -> None:
        if name not in _ANEW:
            needs_this_process()

    with (
        mock.patch.object(pytest.MonkeyPatch, "setattr", refused),
        mock.patch.object(pytest.MonkeyPatch, "setitem", refused),
        mock.patch.object(pytest.MonkeyPatch, "delitem", refused),
    ):
        yield
