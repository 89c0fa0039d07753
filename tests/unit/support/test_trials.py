"""A trial accepts the log of a salvage that could not read a file, if the log is whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.log_files import batch, write_segment
from tests.support.trials import Bench, Trial

LINK = f"link {0:020d}.index to /outside/file"


@pytest.mark.parametrize(
    ("command", "exit_code", "mutation", "problem"),
    [
        ("salvage", 3, LINK, None),
        ("salvage", 3, "a byte changes", "salvage failed, and left something"),
        ("salvage", 74, LINK, "salvage failed, and left something"),
        ("convert", 3, LINK, "convert failed, and left something"),
    ],
)
def test_only_a_salvage_beside_a_file_that_cannot_be_opened_leaves_a_log_with_exit_code_3(
    bench: Bench, tmp_path: Path, command: str, exit_code: int, mutation: str, problem: str | None
) -> None:
    write_segment(tmp_path / "out" / "carved-9", 0, batch(0, 3))
    trial = Trial(0, [mutation], [command], exit_code)
    found = list(bench._afterwards(trial, tmp_path / "out" / "carved-9", tmp_path / "out", set()))
    assert found == ([] if problem is None else [problem])


def test_what_a_salvage_leaves_with_exit_code_3_is_verified(bench: Bench, tmp_path: Path) -> None:
    log = write_segment(tmp_path / "out" / "carved-9", 0, batch(0, 3)).path
    log.write_bytes(log.read_bytes()[:-1] + b"?")
    trial = Trial(0, [LINK], ["salvage"], 3)
    (found,) = bench._afterwards(trial, log.parent, tmp_path / "out", set())
    assert "CRC_MISMATCH" in found


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    (tmp_path / "bench").mkdir()
    return Bench(tmp_path / "bench")
