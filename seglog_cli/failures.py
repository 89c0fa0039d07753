"""The one place where an error becomes a message and an exit code.

Commands let errors pass. `guard` runs a command, catches its error and prints one sentence on stderr; with `--json` the
last line of stderr is `{"type":"exit_error",…}`. An unexpected error is a bug in seglog: exit code 70, and a traceback
only with `-v`. A closed pipe ends quietly. `SkippedPartitions` is for commands that skip partitions they cannot read.
"""

from __future__ import annotations

import errno
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from seglog import errors, extras
from seglog_cli.console import Console
from seglog_cli.exit_codes import ExitCode, HungUpError, TerminatedError, signal_sentence

if TYPE_CHECKING:
    from seglog.scan.listing import Target
    from seglog_cli.session import Session

# The first matching class decides.
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
# The package that is missing → the extra that has it.
EXTRAS = {
    "duckdb": "sql",
    "pyspark": "spark",
    "pandas": "spark",
    "pyarrow": "arrow",
    "kio": "serve",
    "_ssl": "serve",  # the bundle's Python goes without OpenSSL
    "cryptography": "tiers",
    "fastavro": "schemas",
    "google": "schemas",
    "orjson": "schemas",
    "msgpack": "schemas",
    "cbor2": "schemas",
}
# Messages of the loader of shared libraries and of the threading module.
_NO_MEMORY = ("failed to map segment", "cannot allocate memory", "can't start new thread")
_FULL = "; make room and run this again (`seglog retain --free` takes whole old segments, and needs no room itself)"
_STREAMS = ("standard output", "standard error")  # retention makes no room for these


class UsageError(errors.SeglogError):
    """Options that contradict each other, or an impossible argument; exit code 2."""


def exit_code_of(error: BaseException) -> ExitCode:
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
    """Returns one sentence for an operator."""
    extra = missing_extra(error)
    if extra is not None:
        return f"this needs an extra that is not installed: {extras.advice(extra)}"
    if isinstance(error, errors.ArgumentError) and error.name:
        return f"--{error.name.replace('_', '-')}: {error.problem}"
    if isinstance(error, errors.SeglogError) or _is_refused_mode(error):
        return str(error)
    if isinstance(error, KeyboardInterrupt):
        return signal_sentence(type(error), str(error.args[0]) if error.args else "")
    if is_out_of_memory(error):
        return f"not enough memory: {error}" if str(error) else "not enough memory"
    if isinstance(error, OSError):
        reason = error.strerror or str(error)
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT) and error.filename not in _STREAMS
        reason += _FULL if is_full else ""
        if error.errno == errno.ENOENT and error.filename is None:  # only the working directory has no name
            return "the working directory was deleted: change to another one"
        return f"{error.filename}: {reason}" if error.filename is not None else reason
    what = f"{type(error).__name__}: {error}"
    return f"internal error: {what} (run again with -v for the traceback, and please report it)"


def missing_extra(error: BaseException) -> str | None:
    """Returns the extra that has the package that could not be imported, or None."""
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return None
    return EXTRAS.get(error.name.partition(".")[0])


def is_out_of_memory(error: BaseException) -> bool:
    """True if the system refused memory or a thread, which it reports in several ways."""
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    return isinstance(error, ImportError | RuntimeError) and any(words in str(error) for words in _NO_MEMORY)


def _is_refused_mode(error: BaseException) -> bool:
    """True if SEGLOG_KERNELS asks for a mode that is not available (`seglog.kernels._mode`)."""
    return isinstance(error, ImportError) and error.name == "seglog.kernels"


def guard(console: Console, run: Callable[[], int | None]) -> int:
    """Runs a command; returns its exit code, or that of its error."""
    try:
        code = run() or ExitCode.DONE
        console.flush()
    except (Exception, KeyboardInterrupt) as error:
        import typer

        if isinstance(error, typer.Exit | typer.Abort | typer.TyperException):
            raise  # for the frame above
        return report(console, error)
    return int(code)


def report(console: Console, error: BaseException) -> int:
    """Prints the error on stderr; returns its exit code."""
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
    """Reports an error from outside all commands, before options are parsed."""
    return report(Console(as_json="--json" in arguments, verbose=int("-v" in arguments)), error)


def exit_error(code: ExitCode, error: BaseException) -> dict[str, object]:
    """Returns the last line of stderr under `--json`: the code, the error's class and its fields."""
    record: dict[str, object] = {"type": "exit_error", "code": int(code), "error": type(error).__name__}
    record["message"] = message_of(error)
    for name in ("path", "position", "first_offset", "last_offset", "offset", "pid"):
        value = getattr(error, name, None)
        if value is not None:
            record[name] = value if isinstance(value, int) else str(value)
    return record


class SkippedPartitions:
    """Skips partitions that cannot be read: warns, and remembers it for the exit code.

    With `alone`, the partition was the only one named, and its error ends the command.
    """

    def __init__(self, session: Session, *, alone: bool = False) -> None:
        self._session, self._alone = session, alone
        self.count = 0

    @classmethod
    def among(cls, session: Session, targets: Sequence[Target]) -> SkippedPartitions:
        """For a command that goes through these targets."""
        from seglog.scan.listing import TargetKind

        return cls(session, alone=len(targets) == 1 and targets[0].kind is not TargetKind.LOG_DIRECTORY)

    @contextmanager
    def passing_over(self, directory: Path) -> Iterator[None]:
        """Reports an error while reading `directory`, and goes on. A partition deleted meanwhile is not an error."""
        try:
            yield
        except (OSError, errors.NotALogError) as error:
            name = str(error.path) if isinstance(error, errors.NotALogError) else error.filename
            if self._alone or not isinstance(name, str | bytes) or name in _STREAMS:
                raise
            if self._session.fs.status(directory, follow=False) is not None:
                self.tell(directory, error)

    def tell(self, directory: Path, error: Exception) -> None:
        """Counts and reports one partition."""
        self.count += 1
        text = message_of(error)
        self._session.console.warning(text if str(directory) in text else f"{directory}: {text}")

    @property
    def exit_code(self) -> ExitCode:
        """INCOMPLETE if anything was skipped."""
        return ExitCode.INCOMPLETE if self.count else ExitCode.DONE
