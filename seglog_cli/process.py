"""What the process does around a command line: standard streams, signals, the exit code.

1. Standard streams that are closed get a descriptor that takes nothing, so that no file of ours becomes number 1.
2. SIGINT, SIGTERM and SIGHUP end the process with one sentence and 128 + number. While a command runs, the first one
   raises in the main thread, so that every `with` and `finally` on the way out runs; the second ends at once, as a
   crash would. Before a command runs nothing has begun, and after it the outcome stands: then one ends at once, too.
3. What the standard streams do not take is thrown away at the end, as the interpreter would complain (exit code 120).

4. numpy's library for linear algebra, which nothing here needs, starts no threads: while they wait for their first work
   they keep a processor busy, longer than a small log takes.

Only light modules are imported here: until `main` has begun, a signal ends the process without a word (`__main__`).
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import os
import signal
import sys
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from seglog_cli.interruptions import SENTENCES, HungUpError, TerminatedError

if TYPE_CHECKING:
    from collections.abc import Sequence

_STREAMS = ("stdin", "stdout", "stderr")
_AGAIN_SECONDS = 0.001
# New objects between two looks for cycles. Python's 700 makes it look some hundred times while modules are imported,
# which are there to stay.
_YOUNG_OBJECTS = 10_000
_TWICE = "ended at once by a second signal, as by a crash; the next command that writes settles what was begun"


_RAISED = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: TerminatedError, signal.SIGHUP: HungUpError}


class Signals:
    """What a signal does now, and which one came."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self.as_json = "--json" in arguments
        self.running = False
        self.outcome: int | None = None
        self.received: int | None = None

    def arm(self) -> None:
        """Takes over the signals, except those that whoever started us has switched off (`nohup`, `&`)."""
        for number in _RAISED:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._on_signal)
        sys.unraisablehook = self._on_unraisable
        atexit.register(self._ignore)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self.outcome is not None:
            os._exit(self.outcome)
        kind = _RAISED[signal.Signals(number)]
        if self.running and self.received is None:
            self.received = number
            raise kind
        self._end_at_once(number, kind)

    def _end_at_once(self, number: int, kind: type[KeyboardInterrupt]) -> NoReturn:
        code = 128 + number
        sentence = SENTENCES[kind] if self.received is None else _TWICE
        said = f"error: {sentence}\n"
        if self.as_json:
            said += f'{{"type":"exit_error","code":{code},"error":"{kind.__name__}","message":"{sentence}"}}\n'
        with contextlib.suppress(OSError):
            os.write(2, said.encode())
        os._exit(code)

    def _on_unraisable(self, unraisable: Any) -> None:
        """A signal raised where no exception can go on (a finalizer, a callback from C) is raised again soon."""
        if self.received is not None and issubclass(unraisable.exc_type, KeyboardInterrupt):
            number, self.received = self.received, None
            signal.signal(signal.SIGALRM, lambda _, frame: self._on_signal(number, frame))
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)
            return
        with contextlib.suppress(Exception):
            from seglog.escaping import escaped

            what = escaped(f"{unraisable.exc_type.__name__}: {unraisable.exc_value}")
            os.write(2, f"warning: an error while cleaning up: {what}\n".encode())

    @staticmethod
    def _ignore() -> None:
        """At the very end: what Python tears down then is no place for a handler."""
        for number in _RAISED:
            signal.signal(number, signal.SIG_IGN)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs the command line and ends the process with the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    signals = Signals(given)
    signals.arm()
    gc.set_threshold(_YOUNG_OBJECTS)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    open_streams()
    code = _guarded(given, signals)
    signals.outcome = code
    # Python notes an interrupt that leaves code which was given as a string, as dataclasses are made of, and would end
    # the process by SIGINT, whoever has handled it; running another string forgets that.
    exec("")
    discard_unwritten()
    sys.exit(code)


def _guarded(arguments: list[str], signals: Signals) -> int:
    """The exit code of the command line, also where a signal falls between what handles it and what it guards."""
    from seglog_cli.app import run
    from seglog_cli.failures import report_outside

    try:
        signals.running = True
        code = run(arguments)
        signals.running = False
    except BaseException as error:  # noqa: BLE001 (nothing is above)
        signals.running = False
        code = report_outside(arguments, error)
    return code


def open_streams() -> None:
    """Gives descriptors 0, 1 and 2 and their Python files where whoever started us has closed them.

    A descriptor that is free would be that of the next file that is opened, and everybody's output would go there.
    """
    for number, name in enumerate(_STREAMS):
        try:
            os.fstat(number)
        except OSError:
            # the wrong way round, so that using it is an error (EBADF), as on a closed one
            os.open(os.devnull, os.O_WRONLY if name == "stdin" else os.O_RDONLY)
        if getattr(sys, name) is None:
            raw = io.FileIO(number, "r" if name == "stdin" else "w", closefd=False)
            buffer = io.BufferedReader(raw) if name == "stdin" else io.BufferedWriter(raw)
            setattr(sys, name, io.TextIOWrapper(buffer, encoding="utf-8", errors="backslashreplace"))


def discard_unwritten() -> None:
    """Writes what is buffered; lets go nowhere what cannot be, so that the interpreter's own flush stays silent."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, stream.fileno())
                os.close(nowhere)
