"""How commands open the records of several paths as one source (`sql`, `latest`, `where`)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from seglog_cli.exit_codes import ExitCode
from seglog_cli.options import labelled, one_of, option
from seglog_cli.session import Session
from seglog_cli.tiering import Tiers

if TYPE_CHECKING:
    from seglog_ask.table.read.source import Source

OnCorrupt = Annotated[
    str, option("--on-corrupt", "fail|skip", "With skip, go on past damage, and say what was left out.")
]


def source_of(session: Session, paths: Sequence[Path], tiers: Tiers, isolation: str, on_corrupt: str) -> Source:
    """Returns the partitions at the paths, in tiered storage too."""
    logging.getLogger("seglog.table.dataset").addHandler(logging.NullHandler())  # `tell_left_out` says it
    from seglog.model import Isolation
    from seglog_ask.table.engines.opening import open_source

    parts = [text.rpartition("=") for text in tiers.tier_key or ()]
    return open_source(
        session.fs,
        paths,
        isolation=labelled("--isolation", isolation, Isolation),
        on_corrupt="skip" if one_of("--on-corrupt", on_corrupt, ("fail", "skip")) == "skip" else "fail",
        local=tiers.local,
        tier_keys={key_id: Path(file) for key_id, _, file in parts},
        remote_metadata=tiers.remote_metadata or (),
        to_skip="--on-corrupt skip",
    )


def tell_left_out(session: Session, source: Source) -> ExitCode:
    """Warns of timestamps that are shown as others, and of damage that was skipped. Returns the exit code."""
    if source.distant.first:
        session.console.warning(str(source.distant))
    if not source.left_out.ranges:
        return ExitCode.DONE
    session.console.warning(str(source.left_out))
    return ExitCode.INCOMPLETE
