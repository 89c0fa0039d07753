"""The library reads paths in tiered storage as the commands do."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import seglog
from tests.support.fixtures import CLEAN, clean_partition
from tests.support.log_files import write_segment
from tests.support.naive import NaiveRecord, batch_v2
from tests.support.tiers import SEALED, private_pem, remote_record, tier_segments, write_aiven, write_local_tiered

NAME = "customers-uncleaned-0"
GENUINE = CLEAN / NAME
SEGMENTS = tier_segments(GENUINE)


@pytest.fixture
def local(tmp_path: Path) -> Path:
    """The closed segments of a partition that a broker wrote."""
    directory = clean_partition(NAME, tmp_path / "logs")
    for path in directory.glob("00000000000000002120.*"):
        if path.suffix != ".snapshot":
            path.unlink()
    return directory


@pytest.fixture
def tier(tmp_path: Path) -> dict[str, Any]:
    """The same in Aiven's layout, encrypted: the path, and what opens it."""
    key = tmp_path / "key.pem"
    key.write_bytes(private_pem())
    path = write_aiven(tmp_path / "tier", "customers-uncleaned", 0, SEGMENTS, SEALED)
    return {"path": path, "options": {"tier_keys": {"key1": key}}}


LOOKING: list[Callable[..., object]] = [
    lambda path, **more: [(f.partition, f.start_offset, f.end_offset, f.size) for f in seglog.partitions(path, **more)],
    lambda path, **more: [(found.code, found.message) for found in seglog.verify(path, level="record", **more)],
    lambda path, **more: [repr(found) for found in seglog.stats(path, **more)],
    lambda path, **more: seglog.explain(path, quick=True, **more).reading,
    lambda path, **more: _records(path, **more),
]


def _records(path: Path, **more: Any) -> list[tuple[Any, ...]]:
    with seglog.open_log(path, **more) as log:
        rows = sum(len(columns) for columns in log.columns())
        return [(record.offset, record.key, record.value) for record in log.records()] + [(rows,)]


@pytest.mark.parametrize("look", LOOKING)
def test_a_tier_is_looked_at_as_the_partition_is(
    local: Path, tier: dict[str, Any], look: Callable[..., object]
) -> None:
    assert look(tier["path"], **tier["options"]) == look(local)


def test_a_tier_is_judged_by_its_partitions(tier: dict[str, Any], tmp_path: Path) -> None:
    doctor = seglog.doctor(tier["path"].parent, **tier["options"])
    assert (list(doctor), doctor.summary.partitions, doctor.summary.loads) == ([], 1, True)
    damaged = bytearray(SEGMENTS[1].log)
    damaged[len(damaged) // 2] ^= 1
    broken = dataclasses.replace(SEGMENTS[1], log=bytes(damaged))
    path = write_local_tiered(tmp_path, "customers-uncleaned", 0, [SEGMENTS[0], broken])
    assert [row.partition for row in seglog.doctor(path.parent)] == [NAME]


def test_a_tier_is_compared_and_converted(local: Path, tier: dict[str, Any], tmp_path: Path) -> None:
    assert not list(seglog.diff(local, tier["path"], **tier["options"]))
    done = seglog.convert(tier["path"], tmp_path / "made" / NAME, codec="zstd", **tier["options"])
    assert dataclasses.astuple(done) == dataclasses.astuple(
        seglog.convert(local, tmp_path / "again" / NAME, codec="zstd")
    )


def test_a_tier_is_joined_with_its_local_part(tmp_path: Path) -> None:
    path = write_local_tiered(tmp_path, "customers-uncleaned", 0, SEGMENTS[:3])
    logs = tmp_path / "logs"
    clean_partition(NAME, logs)
    for each in (logs / NAME).glob(f"{0:020d}.*"):
        each.unlink()
    with seglog.open_log(path, local=logs) as log, seglog.open_log(GENUINE) as whole:
        assert (log.log_start_offset, log.log_end_offset) == (0, whole.log_end_offset)
        assert [record.value for record in log.records()] == [record.value for record in whole.records()]


def test_what_a_tier_lacks_goes_to_the_logger(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_local_tiered(tmp_path, "customers-uncleaned", 0, [SEGMENTS[0], SEGMENTS[2]])
    records = [batch_v2(0, [NaiveRecord(0, 0, None, remote_record(SEGMENTS[0], "customers-uncleaned", 0, state=1))])]
    write_segment(tmp_path / "brokers" / "__remote_log_metadata-0", 0, *records)
    with caplog.at_level(logging.WARNING, "seglog"):
        seglog.partitions(path)
    assert "offsets 400 to 799 are in no segment" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING, "seglog"):
        (found,) = seglog.partitions(path, remote_metadata=[tmp_path / "brokers"])
    assert "the metadata does not have it" in caplog.text and found.end_offset == 400


def test_options_of_tiers_are_for_looking_at_tiers(local: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="local is only for paths in tiered storage, and none of these is one"):
        seglog.verify(local, local=tmp_path)
    with pytest.raises(TypeError, match="tier_keys must be a mapping from ids of key pairs to files"):
        seglog.verify(local, tier_keys=["key.pem"])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="'tier_keys' is not an argument"):
        seglog.clean(local, tier_keys={})  # type: ignore[call-arg]
    with (
        pytest.raises(ValueError, match="are only for reading"),
        seglog.open_log(local, writable=True, local=tmp_path),
    ):
        pytest.fail("it was opened")
