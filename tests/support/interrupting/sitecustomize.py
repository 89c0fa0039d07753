"""Sends this process a signal at a chosen call of a function: the moment is the same in every run.

On the path of a seglog process, it counts the functions that are called from when seglog has taken over the signals.
SEGLOG_TEST_SIGNAL is such as `SIGINT:1200`, or `SIGINT:1200,1300` for two of them; `SIGINT:` only counts, and
`calls: N` stands on stderr at the end.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from types import FrameType

_NAME, _, _NUMBERS = os.environ.pop("SEGLOG_TEST_SIGNAL", "").partition(":")
_moments = [int(number) for number in _NUMBERS.split(",") if number]
_calls = 0


def _count(frame: FrameType, event: str, argument: object) -> None:
    global _calls
    if event != "call":
        return
    _calls += 1
    if _moments and _calls >= _moments[0]:
        del _moments[0]
        signal.raise_signal(signal.Signals[_NAME])


def _begin(frame: FrameType, event: str, argument: object) -> None:
    armed = frame.f_code.co_name == "arm" and frame.f_code.co_filename.endswith("process.py")
    if armed and event == "return":
        sys.setprofile(_count)


def _tell() -> None:
    sys.setprofile(None)
    if not _NUMBERS:
        os.write(2, f"calls: {_calls}\n".encode())


if _NAME:
    for _each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # whatever whoever runs the tests has switched off
        signal.signal(_each, signal.default_int_handler)
    atexit.register(_tell)
    sys.setprofile(_begin)
