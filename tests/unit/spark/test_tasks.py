"""What Spark raises for a failed task becomes the task's own error, where that is known."""

from __future__ import annotations

import errno

import pytest

from seglog.errors import CorruptRecordError, IncompleteError, SeglogError, UnsupportedError
from seglog.spark.tasks import remote_errors

TRACEBACK = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "worker.py", line 1, in main
{}
"""


def raised(last: str) -> BaseException:
    from pyspark.errors import PythonException

    with pytest.raises((SeglogError, OSError)) as caught, remote_errors():
        raise PythonException(TRACEBACK.format(last))
    return caught.value


def test_an_error_of_seglog_comes_back_as_itself() -> None:
    error = raised("seglog.errors.CorruptRecordError: /a/0.log: position 7: the checksum is wrong")
    assert type(error) is CorruptRecordError
    assert str(error) == "/a/0.log: position 7: the checksum is wrong"


def test_an_error_of_the_file_system_keeps_its_number_and_file() -> None:
    error = raised("PermissionError: [Errno 13] Permission denied: '/a/0.log'")
    assert isinstance(error, PermissionError)
    assert (error.errno, error.filename) == (errno.EACCES, "/a/0.log")


def test_another_error_is_one_sentence() -> None:
    error = raised("ValueError: no such thing")
    assert type(error) is IncompleteError
    assert str(error) == "a Spark job failed: ValueError: no such thing"


def test_an_executor_without_seglog_is_told_what_to_install() -> None:
    assert type(raised("ModuleNotFoundError: No module named 'seglog'")) is UnsupportedError
