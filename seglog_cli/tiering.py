"""Tiered storage on the command line: the options of the reading commands, and the file system that shows a tier."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from seglog_cli.exit_codes import ExitCode
from seglog_cli.failures import UsageError
from seglog_cli.options import OptionGroup, option
from seglog_cli.session import Session

if TYPE_CHECKING:
    from seglog.format.tier_keys import PrivateKey
    from seglog.tiers.metadata import RemoteLogs
    from seglog.tiers.segments import Remark
    from seglog.tiers.tiered_partition import TierOptions


@dataclass
class Tiers(OptionGroup):
    """How a path in tiered storage is read.

    After reading, `grave` holds the remarks about missing data, and `lacking` is True if something else could not be
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
    grave: list[Remark] = field(default_factory=list, init=False)
    lacking: bool = field(default=False, init=False)
    _heard: set[str] = field(default_factory=set, init=False)

    @property
    def given(self) -> dict[str, object]:
        """The options that were given, and their values."""
        every = {"--local": self.local, "--tier-key": self.tier_key, "--remote-metadata": self.remote_metadata}
        return {name: value for name, value in every.items() if value is not None}

    def seen(self, session: Session, paths: Sequence[Path], *, warn_of_runs: bool = True) -> tuple[Session, list[Path]]:
        """Returns the session and the paths to work with; they are unchanged if no path is in tiered storage.

        Also warns of log directories with an unfinished run, unless the command checks that itself.
        """
        from seglog.tiers.recognition import recognise

        if warn_of_runs:
            session.warn_of_runs([*paths, *filter(None, (self.local,))])
        recognised = recognise(session.fs, paths)
        if not any(found.is_tier for found in recognised):
            for name in self.given:
                raise UsageError(f"{name} is only for a PATH in tiered storage, and none of these is one")
            return session, list(paths)
        # imported only now: most paths are not tiers
        from seglog.tiers.view import show_tiers

        fs, shown = show_tiers(session.fs, recognised, self.options(session), lambda found: self.hear(session, [found]))
        looking = replace(session)
        looking.__dict__["fs"] = fs
        return looking, shown

    def hear(self, session: Session, remarks: Iterable[Remark]) -> None:
        """Reports remarks about a tier, each one once."""
        from seglog.tiers.segments import GRAVE

        for found in remarks:
            if str(found) in self._heard:
                continue
            self._heard.add(str(found))
            session.console.warning(str(found))
            if found.problem in GRAVE:
                self.grave.append(found)

    def options(self, session: Session) -> TierOptions:
        """Returns these options as the engine takes them."""
        from seglog.tiers.segments import KeyPairs
        from seglog.tiers.tiered_partition import TierOptions

        keys = KeyPairs(dict(_key(session, text) for text in self.tier_key or ()))
        return TierOptions(self.local, keys, self._metadata(session))

    def code(self, code: ExitCode, instead: ExitCode = ExitCode.INCOMPLETE) -> ExitCode:
        """Returns a command's exit code; `instead` of DONE if the tier lacks something."""
        return instead if self.grave and code is ExitCode.DONE else code

    def _metadata(self, session: Session) -> RemoteLogs | None:
        from seglog.tiers.metadata import read_remote_logs

        if self.remote_metadata is None:
            return None
        found = read_remote_logs(session.fs, self.remote_metadata)
        self.lacking = found.unreadable > 0
        for sentence in found.problems:
            session.console.warning(sentence)
        if found.unreadable > len(found.problems):
            session.console.warning(f"{found.unreadable - len(found.problems)} more records or batches cannot be read")
        return found


def _key(session: Session, text: str) -> tuple[str, PrivateKey]:
    from seglog.tiers.segments import read_private_key

    key_id, _, name = text.rpartition("=")
    path = Path(name)
    try:
        return key_id, read_private_key(session.fs, path)
    except OSError as error:
        raise UsageError(f"--tier-key {text}: {path} cannot be read: {error.strerror or error}") from error
