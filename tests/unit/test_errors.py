"""Errors pass from process to process as they are."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from seglog import errors
from seglog.remote_path import RemotePath
from seglog.storage.frozen import VanishedError
from seglog_stores.remote.failures import ShortBodyError

E = TypeVar("E", bound=Exception)
PLACE = Path("/logs/t-0/00000000000000000000.log")
OBJECT = RemotePath("s3://bucket/t-0/00000000000000000000.log")
GIVEN = {"line": 3, "pid": 7, "errors": (errors.ConfigError("a"), errors.RefusedError("b")), "position": 61}
GIVEN |= {"offset": 5, "log_start_offset": 0, "log_end_offset": 4, "base_offset": 0, "path": PLACE, "target": PLACE}
GIVEN |= {"error": OSError(28, "No space left on device", str(PLACE)), "begun_at": 3, "flushed_end": 4}


def kinds(base: type[errors.SeglogError]) -> Iterator[type[errors.SeglogError]]:
    yield base
    for one in base.__subclasses__():
        yield from kinds(one)


def made(kind: type[errors.SeglogError]) -> errors.SeglogError:
    """One with every argument given by its name; `args` of the plain ones is their sentence."""
    if kind.__init__ is Exception.__init__:
        return kind("a sentence")
    names = list(inspect.signature(kind.__init__).parameters)[1:]
    return kind(**{name: GIVEN.get(name, name) for name in names if name not in ("first_offset", "last_offset")})


@pytest.mark.parametrize("kind", sorted(set(kinds(errors.SeglogError)), key=lambda kind: kind.__name__))
def test_an_error_of_seglogs_is_the_same_in_another_process(kind: type[errors.SeglogError]) -> None:
    require_same(made(kind))


@pytest.mark.parametrize(
    "error", [VanishedError(PLACE), errors.ChangedObjectError(OBJECT), ShortBodyError(OBJECT, "cut")]
)
def test_an_error_of_the_operating_system_is_the_same_in_another_process(error: OSError) -> None:
    again = require_same(error)
    assert (again.errno, again.strerror, again.filename) == (error.errno, error.strerror, error.filename)


def require_same(error: E) -> E:
    error.add_note("met while a test ran")
    again: E = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (type(error), str(error))
    assert {name: str(value) for name, value in vars(again).items()} == {n: str(v) for n, v in vars(error).items()}
    return again
