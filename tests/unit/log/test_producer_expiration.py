"""Producers expire by the broker's configuration, and keys that seglog does not use are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.clock import FixedClock
from seglog.configuration.settings import DirectorySettings, load_settings
from seglog.log.directory import LogDirectory
from tests.support.log_files import FS, idempotent, write_segment

GIVEN = load_settings(FS, overrides=[], environment={}, config=None, working_directory=Path("/"))


@pytest.mark.parametrize(("expiration_ms", "known"), [(None, False), ("172800000", True), ("3600000", False)])
def test_producers_are_known_as_long_as_the_configuration_says(
    tmp_path: Path, expiration_ms: str | None, known: bool
) -> None:
    write_segment(tmp_path / "t-0", 0, idempotent(0, 7, 0))
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    later = FixedClock(1000 + 100_000_000)  # a day and more after the batch
    chosen = {} if expiration_ms is None else {"producer.id.expiration.ms": expiration_ms}
    settings = DirectorySettings(FS, tmp_path, GIVEN, chosen)
    with LogDirectory.open(tmp_path, fs=FS, clock=later, config_of=settings, writable=True) as owner:
        (log,) = owner.load_all()
        assert (7 in log.producers.producers) == known


def test_a_key_that_seglog_does_not_use_is_named_where_a_user_sets_it(tmp_path: Path) -> None:
    settings = DirectorySettings(FS, tmp_path, GIVEN, {"preallocate": "true", "segment.bytes": "2000000"})
    assert settings.resolve("t").warnings == ("seglog does not use preallocate: only brokers do",)
