"""What cannot be read among many: said on standard error, passed over, and remembered for the exit code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from seglog_cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from seglog.scan.listing import Target
    from seglog_cli.session import Session


class Unreadable:
    """Passes over partitions that cannot be read. One that was named `alone` ends the command with its error."""

    def __init__(self, session: Session, *, alone: bool = False) -> None:
        self._session, self._alone = session, alone
        self.count = 0

    @classmethod
    def among(cls, session: Session, targets: Sequence[Target]) -> Unreadable:
        """For a command that goes through these targets."""
        from seglog.scan.listing import TargetKind

        return cls(session, alone=len(targets) == 1 and targets[0].kind is not TargetKind.LOG_DIRECTORY)

    @contextmanager
    def passing_over(self, directory: Path) -> Iterator[None]:
        """Tells of an error of reading `directory`, and goes on; a partition that a broker deleted is no error."""
        from seglog.errors import NotALogError

        try:
            yield
        except (OSError, NotALogError) as error:
            named = isinstance(error, NotALogError) or isinstance(error.filename, str | bytes)
            if self._alone or not named:  # standard output has no name
                raise
            if self._session.fs.status(directory, follow=False) is not None:
                self.tell(directory, error)

    def tell(self, directory: Path, error: Exception) -> None:
        """Counts and says it."""
        from seglog_cli.failures import message_of

        self.count += 1
        text = message_of(error)
        self._session.console.warning(text if str(directory) in text else f"{directory}: {text}")

    @property
    def exit_code(self) -> ExitCode:
        """Incomplete when anything was passed over."""
        return ExitCode.INCOMPLETE if self.count else ExitCode.DONE
