"""The public names: all there, lazily imported, and their examples run."""

from __future__ import annotations

import doctest
import subprocess
import sys
from pathlib import Path

import pytest

import seglog
import seglog.api
from seglog.errors import NotALogError, RefusedError

CORE = Path(seglog.__file__).parents[1]


def test_every_public_name_can_be_imported_and_no_other() -> None:
    for name in seglog.__all__:
        assert getattr(seglog, name) is not None
    assert sorted(seglog.__all__) == seglog.__all__
    assert set(seglog.__all__) <= set(dir(seglog))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = seglog.nonsense  # type: ignore[attr-defined]


@pytest.mark.parametrize("module", [seglog, seglog.api], ids=["seglog", "seglog.api"])
def test_the_examples_run(module: object) -> None:
    result = doctest.testmod(module)  # type: ignore[arg-type]
    assert result.attempted > 0
    assert result.failed == 0


def test_importing_seglog_loads_no_numpy_and_no_numba() -> None:
    code = "import seglog, sys; print([m for m in ('numpy', 'numba', 'seglog.log') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": str(CORE)}
    )
    assert done.stdout.strip() == "[]"


def test_reading_changes_nothing_and_cannot_append(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    with seglog.open_log(path, create=True) as log:
        log.append([seglog.Record(b"v", timestamp=5)])
    before = {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in path.iterdir()}
    with seglog.open_log(path) as log:
        assert [record.value for record in log.records()] == [b"v"]
        with pytest.raises(RefusedError, match="reading only"):
            log.append([seglog.Record(b"w")])
    assert {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in path.iterdir()} == before


def test_a_missing_log_is_an_error_unless_it_is_to_be_made(tmp_path: Path) -> None:
    with pytest.raises(NotALogError), seglog.open_log(tmp_path / "none-0"):
        pass
    assert not (tmp_path / "none-0").exists()


def test_an_error_in_the_block_still_closes_the_log(tmp_path: Path) -> None:
    with pytest.raises(KeyError), seglog.open_log(tmp_path / "t-0", create=True) as log:
        log.append([seglog.Record(b"v", timestamp=5)])
        raise KeyError("the caller's own")
    assert (tmp_path / "t-0" / "00000000000000000001.snapshot").exists()
