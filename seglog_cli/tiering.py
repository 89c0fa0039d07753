"""Tiered storage on the command line: the options of the reading commands, and the file system that shows a tier."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from seglog_cli.exit_codes import ExitCode
from seglog_cli.failures import UsageError
from seglog_cli.options import OptionGroup, option
from seglog_cli.session import Session

if TYPE_CHECKING:
    from seglog_stores.formats.tier_keys import PrivateKey
    from seglog_stores.tiers.segments import Remark
    from seglog_stores.tiers.tiered_partition import TierOptions


@dataclass
class Tiers(OptionGroup):
    """How a path in tiered storage is read.

    After reading, `grave` is the first remark about missing data, and `lacking` is True if something else could not be
    read.
    """

    TITLE: ClassVar[str] = "Options for a PATH in tiered storage"

    local: Annotated[
        Path | None,
        option("--local", "LOGDIR", "The log directory with the local part of a PATH in tiered storage."),
    ] = None
    tier_key: Annotated[
        list[str] | None,
        option(
            "--tier-key",
            "[ID=]FILE",
            "The private key (PEM) for data that a tier has encrypted with key pair ID; repeatable.",
        ),
    ] = None
    remote_metadata: Annotated[
        list[Path] | None,
        option(
            "--remote-metadata",
            "DIR",
            "A log directory that has __remote_log_metadata, or one of its partitions; repeatable.",
        ),
    ] = None
    grave: Remark | None = field(default=None, init=False)
    lacking: bool = field(default=False, init=False)

    @property
    def given(self) -> dict[str, object]:
        """The options that were given, and their values."""
        every = {"--local": self.local, "--tier-key": self.tier_key, "--remote-metadata": self.remote_metadata}
        return {name: value for name, value in every.items() if value is not None}

    def seen(self, session: Session, paths: Sequence[Path], *, warn_of_runs: bool = True) -> tuple[Session, list[Path]]:
        """Returns the session and the paths to work with; they are unchanged if no path is in tiered storage.

        Also warns of log directories with an unfinished run, unless the command checks that itself.
        """
        from seglog.doors import door

        if warn_of_runs:
            session.warn_of_runs([*paths, *filter(None, (self.local,))])
        shown = door("tiers")(
            session.fs, paths, lambda: self.options(session), lambda remark: self.hear(session, [remark])
        )
        if shown is None:
            for name in self.given:
                raise UsageError(f"{name} is only for a PATH in tiered storage, and none of these is one")
            return session, list(paths)
        return session.looking(shown[0]), shown[1]

    def hear(self, session: Session, remarks: Iterable[Remark]) -> None:
        """Reports remarks about a tier."""
        for remark in remarks:
            session.console.warning(str(remark))
            if remark.is_grave:
                self.grave = self.grave or remark

    def options(self, session: Session) -> TierOptions:
        """Returns these options as the engine takes them."""
        from seglog.doors import door

        keys = dict(_key(session, text) for text in self.tier_key or ())
        made: TierOptions = door("tier options")(
            session.fs, self.local, keys, self.remote_metadata, session.console.warning
        )
        self.lacking = made.metadata is not None and made.metadata.unreadable > 0
        return made

    def code(self, code: ExitCode, instead: ExitCode = ExitCode.INCOMPLETE) -> ExitCode:
        """Returns a command's exit code; `instead` of DONE if the tier lacks something."""
        return instead if self.grave and code is ExitCode.DONE else code


def _key(session: Session, text: str) -> tuple[str, PrivateKey]:
    from seglog.doors import door

    key_id, _, name = text.rpartition("=")
    path = Path(name)
    try:
        return key_id, door("tier key")(session.fs, path)
    except OSError as error:
        raise UsageError(f"--tier-key {text}: {path} cannot be read: {error.strerror or error}") from error
