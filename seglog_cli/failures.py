"""The one place where an error becomes a message and an exit code.

Commands let errors pass. `guard` runs a command, catches what it raises and says it as one sentence on
stderr; with `--json` the last line of stderr is `{"type":"exit_error",…}`. What is not expected is a defect
of seglog: exit code 70, and the traceback only with `-v`. A closed pipe ends quietly.
"""

from __future__ import annotations

import errno
import traceback
from collections.abc import Callable, Sequence

from seglog import errors
from seglog_cli.console import Console
from seglog_cli.exit_codes import ExitCode
from seglog_cli.interruptions import SENTENCES, HungUpError, TerminatedError

# The first class that fits decides.
CODES: tuple[tuple[type[BaseException], ExitCode], ...] = (
    (errors.ConfigError, ExitCode.USAGE),
    (errors.InputError, ExitCode.USAGE),
    (errors.OffsetOutOfRangeError, ExitCode.USAGE),
    (errors.NotALogError, ExitCode.NOT_A_LOG),
    (errors.LockedError, ExitCode.LOCKED),
    (errors.RefusedError, ExitCode.REFUSED),
    (errors.AppendCutShortError, ExitCode.IO_ERROR),
    (errors.AppendError, ExitCode.REFUSED),
    (errors.UnsupportedError, ExitCode.UNSUPPORTED),
    (errors.IncompleteError, ExitCode.INCOMPLETE),
    (errors.CorruptionError, ExitCode.FOUND),
    (errors.SegmentOffsetOverflowError, ExitCode.FOUND),
    (errors.SeglogError, ExitCode.REFUSED),
    (BrokenPipeError, ExitCode.PIPE_CLOSED),
    (OSError, ExitCode.IO_ERROR),
    (TerminatedError, ExitCode.TERMINATED),
    (HungUpError, ExitCode.HUNG_UP),
    (KeyboardInterrupt, ExitCode.INTERRUPTED),
)

# Packages of extras: what is missing says what to install.
EXTRAS = {"pyspark": "spark", "pandas": "spark", "pyarrow": "arrow", "kio": "serve", "cryptography": "tiers"}


# What a loader of shared libraries, and the threading module, say.
_NO_MEMORY = ("failed to map segment", "cannot allocate memory", "can't start new thread")
_FULL = "; make room and run this again (`seglog retain --free` takes whole old segments, and needs no room itself)"
_STREAMS = ("standard output", "standard error")  # what retention makes no room for


class UsageError(errors.SeglogError):
    """Options that do not go together, or an argument that cannot be; exit code 2."""


def exit_code_of(error: BaseException) -> ExitCode:
    """The exit code of an error that left a command."""
    if isinstance(error, UsageError):
        return ExitCode.USAGE
    if missing_extra(error) is not None:
        return ExitCode.UNSUPPORTED
    if is_out_of_memory(error):
        return ExitCode.REFUSED
    if _is_refused_mode(error):
        return ExitCode.USAGE
    return next((code for kind, code in CODES if isinstance(error, kind)), ExitCode.INTERNAL)


def message_of(error: BaseException) -> str:
    """One sentence for an operator."""
    extra = missing_extra(error)
    if extra is not None:
        return f"this needs an extra that is not installed: pip install 'seglog[{extra}]'"
    if isinstance(error, errors.SeglogError) or _is_refused_mode(error):
        return str(error)
    if isinstance(error, KeyboardInterrupt):
        return SENTENCES[type(error)]
    if is_out_of_memory(error):
        return f"not enough memory: {error}" if str(error) else "not enough memory"
    if isinstance(error, OSError):
        reason = error.strerror or str(error)
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT) and error.filename not in _STREAMS
        reason += _FULL if is_full else ""
        return f"{error.filename}: {reason}" if error.filename is not None else reason
    what = f"{type(error).__name__}: {error}"
    return f"internal error: {what} (run again with -v for the traceback, and please report it)"


def missing_extra(error: BaseException) -> str | None:
    """The extra that would bring the package that could not be imported, or None."""
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return None
    return EXTRAS.get(error.name.partition(".")[0])


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the system refused memory, or a thread; it says so in several ways."""
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    return isinstance(error, ImportError | RuntimeError) and any(words in str(error) for words in _NO_MEMORY)


def _is_refused_mode(error: BaseException) -> bool:
    """Whether SEGLOG_KERNELS asks for what cannot be had (`seglog.kernels._mode`)."""
    return isinstance(error, ImportError) and error.name == "seglog.kernels"


def guard(console: Console, run: Callable[[], int | None]) -> int:
    """Runs a command; returns its exit code, or that of the error that left it."""
    try:
        code = run() or ExitCode.DONE
        console.flush()
    except (Exception, KeyboardInterrupt) as error:
        if _is_frame_exit(error):
            raise
        return report(console, error)
    return int(code)


def report(console: Console, error: BaseException) -> int:
    """Says on stderr what went wrong; returns the exit code."""
    code = exit_code_of(error)
    if code is ExitCode.PIPE_CLOSED:
        return int(code)
    if console.verbose and code is ExitCode.INTERNAL:
        for line in "".join(traceback.format_exception(error)).splitlines():
            console.say(line)
    console.error(message_of(error))
    if console.as_json:
        console.say_json(exit_error(code, error))
    return int(code)


def report_outside(arguments: Sequence[str], error: BaseException) -> int:
    """The same where no option has been parsed, or outside of all commands."""
    return report(Console(as_json="--json" in arguments, verbose=int("-v" in arguments)), error)


def exit_error(code: ExitCode, error: BaseException) -> dict[str, object]:
    """The last line of stderr under `--json`: the code, the error's class and what it knows."""
    record: dict[str, object] = {"type": "exit_error", "code": int(code), "error": type(error).__name__}
    record["message"] = message_of(error)
    for name in ("path", "position", "first_offset", "last_offset", "offset", "pid"):
        value = getattr(error, name, None)
        if value is not None:
            record[name] = value if isinstance(value, int) else str(value)
    return record


def _is_frame_exit(error: BaseException) -> bool:
    """Exits and usage errors that Typer raises belong to the frame above."""
    import typer

    return isinstance(error, typer.Exit | typer.Abort | typer.TyperException)
