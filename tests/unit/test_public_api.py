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


@pytest.mark.parametrize("how", [{}, {"writable": True}, {"create": True}])
def test_a_log_directory_is_not_opened_as_a_log(tmp_path: Path, how: dict[str, bool]) -> None:
    with seglog.open_log(tmp_path / "t-0", create=True):
        pass
    before = sorted(tmp_path.rglob("*"))
    told = "a log directory, not a partition; name one of its 1 partitions: t-0"
    with pytest.raises(NotALogError, match=told), seglog.open_log(tmp_path, **how):
        pass
    assert sorted(tmp_path.rglob("*")) == before


def test_values_of_a_fixed_set_may_be_given_as_text_and_others_are_refused(tmp_path: Path) -> None:
    config = seglog.LogConfig(
        message_timestamp_type="LogAppendTime",  # type: ignore[arg-type]
        cleanup_policy="compact,delete",  # type: ignore[arg-type]
        compression_type=seglog.Compression.ZSTD,  # type: ignore[arg-type]
    )
    assert config.message_timestamp_type is seglog.TimestampType.LOG_APPEND_TIME
    assert config.compact and config.delete and config.codec is seglog.Compression.ZSTD
    with seglog.open_log(tmp_path / "t-0", create=True) as log:
        log.append([seglog.Record(b"v", timestamp=5)], codec="gzip")
        (rows,) = log.segments.active.rows()
        assert rows["attributes"].tolist() == [int(seglog.Compression.GZIP)]
        with pytest.raises(ValueError, match="'zip' is not one of none, gzip, snappy, lz4, zstd"):
            log.append([seglog.Record(b"v")], codec="zip")
        with pytest.raises(ValueError, match="'leader' is not one of client, coordinator, replication"):
            log.append_batches(b"", origin="leader")
    for wrong, told in {
        "message_timestamp_type": "NoTimestampType, CreateTime, LogAppendTime",
        "cleanup_policy": "compact and delete",
        "compression_type": "producer, uncompressed, gzip",
    }.items():
        with pytest.raises(seglog.SeglogError, match=f"{wrong}: .*{told}"):
            seglog.LogConfig(**{wrong: "neither"})  # type: ignore[arg-type]


def test_an_error_in_the_block_still_closes_the_log(tmp_path: Path) -> None:
    with pytest.raises(KeyError), seglog.open_log(tmp_path / "t-0", create=True) as log:
        log.append([seglog.Record(b"v", timestamp=5)])
        raise KeyError("the caller's own")
    assert (tmp_path / "t-0" / "00000000000000000001.snapshot").exists()


def test_no_room_has_the_name_of_a_public_function() -> None:
    """Importing a package below seglog would put it in the function's place."""
    rooms = {path.parent.name for path in Path(seglog.__file__).parent.glob("*/__init__.py")}
    assert not rooms & set(seglog.__all__)
