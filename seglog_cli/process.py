"""The process around a command line: standard streams, signals, threads, the exit code.

1. A closed standard stream gets a descriptor that takes nothing, so that no file of ours becomes descriptor 1.
2. SIGINT, SIGTERM and SIGHUP end the process with one sentence and 128 + number. While a command runs, the first signal
   raises in the main thread, so that every `with` and `finally` on the way out runs; a second one ends the process at
   once, as a crash would. Before a command runs nothing has begun, and after it the outcome stands: there the first
   signal ends the process at once.
3. Output that the standard streams do not take is discarded at the end: the interpreter would complain (exit code 120).
4. NumPy's linear algebra library, which nothing here needs, starts no threads: while they wait for their first work
   they keep a processor busy for longer than a small log takes.

Only light modules are imported here: until `main` has begun, a signal ends the process without a message (`__main__`).
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

from seglog_cli.exit_codes import HungUpError, TerminatedError, signal_sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

_STREAMS = ("stdin", "stdout", "stderr")
_AGAIN_SECONDS = 0.001
# New objects between two collections of cycles. With Python's default of 700 there are some hundred collections while
# modules are imported, whose objects stay.
_YOUNG_OBJECTS = 10_000
_TWICE = "ended at once by a second signal, as by a crash; the next command that writes settles the unfinished work"


_RAISED = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: TerminatedError, signal.SIGHUP: HungUpError}


class Signals:
    """The effect of a signal at this moment, and the signal that came."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self.as_json = "--json" in arguments
        self.running = False
        self.outcome: int | None = None
        self.received: int | None = None

    def arm(self) -> None:
        """Installs the handlers, except for signals that the parent process ignores (`nohup`, `&`)."""
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
        sentence = signal_sentence(kind) if self.received is None else _TWICE
        text = f"error: {sentence}\n"
        if self.as_json:
            text += f'{{"type":"exit_error","code":{code},"error":"{kind.__name__}","message":"{sentence}"}}\n'
        with contextlib.suppress(OSError):
            os.write(2, text.encode())
        os._exit(code)

    def _on_unraisable(self, unraisable: Any) -> None:
        """Raises a signal again that came where no exception can propagate (a finalizer, a callback from C)."""
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
        """At the very end, when Python is torn down and no handler can run."""
        for number in _RAISED:
            signal.signal(number, signal.SIG_IGN)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs the command line and ends the process with its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    signals = Signals(given)
    signals.arm()
    gc.set_threshold(_YOUNG_OBJECTS)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    open_streams()
    code = _guarded(given, signals)
    signals.outcome = code
    # Python remembers an interrupt that left code compiled from a string (dataclasses are such code), and would end the
    # process by SIGINT although it was handled. Running another string clears that.
    exec("")
    discard_unwritten()
    sys.exit(code)


def _guarded(arguments: list[str], signals: Signals) -> int:
    """Returns the command line's exit code, even if a signal comes between two handlers."""
    try:
        signals.running = True
        code = _run(arguments)
        signals.running = False
    except BaseException as error:  # noqa: BLE001 (nothing is above)
        signals.running = False
        from seglog_cli.failures import report_outside

        code = report_outside(arguments, error)
    return code


def _run(arguments: list[str]) -> int:
    """Runs the command line. The overview needs neither Typer nor a command, and is shown without them."""
    if (arguments or ["--help"]) in (["--help"], ["-h"], ["help"]) and "_SEGLOG_COMPLETE" not in os.environ:
        from seglog_cli.help_text import render_overview, show

        show(render_overview)
        return 0
    from seglog_cli.app import run

    return run(arguments)


def open_streams() -> None:
    """Opens descriptors 0, 1 and 2, and their Python files, where the parent process has closed them.

    Otherwise the next file that is opened would get a free descriptor, and all output would go there.
    """
    for number, name in enumerate(_STREAMS):
        try:
            os.fstat(number)
        except OSError:
            # opened for the wrong direction, so that using it fails with EBADF as on a closed descriptor
            os.open(os.devnull, os.O_WRONLY if name == "stdin" else os.O_RDONLY)
        if getattr(sys, name) is None:
            raw = io.FileIO(number, "r" if name == "stdin" else "w", closefd=False)
            buffer = io.BufferedReader(raw) if name == "stdin" else io.BufferedWriter(raw)
            setattr(sys, name, io.TextIOWrapper(buffer, encoding="utf-8", errors="backslashreplace"))


def discard_unwritten() -> None:
    """Flushes the streams; discards what they do not take, so that the interpreter's own flush stays silent."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, stream.fileno())
                os.close(nowhere)
