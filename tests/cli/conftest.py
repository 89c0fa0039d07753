"""Tests of the command line, run against another seglog: those that reach into the process cannot apply, and skip."""

from __future__ import annotations

import sys
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
    setattr_, setitem, delitem = pytest.MonkeyPatch.setattr, pytest.MonkeyPatch.setitem, pytest.MonkeyPatch.delitem

    def attribute(patch: pytest.MonkeyPatch, target: Any, name: Any, *rest: Any, **more: Any) -> None:
        if name not in _ANEW:
            needs_this_process()
        setattr_(patch, target, name, *rest, **more)

    def item(patch: pytest.MonkeyPatch, mapping: Any, *rest: Any, **more: Any) -> None:
        if mapping is sys.modules:  # and not the environment, which the other process gets too
            needs_this_process()
        (delitem if len(rest) == 1 else setitem)(patch, mapping, *rest, **more)

    with (
        mock.patch.object(pytest.MonkeyPatch, "setattr", attribute),
        mock.patch.object(pytest.MonkeyPatch, "setitem", item),
        mock.patch.object(pytest.MonkeyPatch, "delitem", item),
    ):
        yield
