"""Control records that Kafka's recovery fails on, and their repair."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from seglog.clock import FixedClock
from seglog.errors import InvalidTransactionStateError
from seglog.log.loader import LoadOptions, plan_recovery
from seglog.repairs.repair import examination, repair
from tests.support.broken.damage import batches_of
from tests.support.log_files import FS, batch, marker, write_segment

CLOCK = FixedClock(1_700_000_000_000)


@pytest.mark.parametrize("kind", [-1, 2, 77])
def test_a_control_record_of_another_type_is_taken_out_and_a_recovery_succeeds(tmp_path: Path, kind: int) -> None:
    directory = tmp_path / "t-0"
    odd = marker(3, 7, commit=True, key=struct.pack(">hh", 0, kind))
    write_segment(directory, 0, batch(0, 3), odd, batch(4, 2))
    with pytest.raises(InvalidTransactionStateError, match="a repair takes it out"):
        plan_recovery(FS, directory, CLOCK, LoadOptions(clean_shutdown=False))
    (found,) = [each for rows in examination(FS, CLOCK, tmp_path, [directory]).findings.values() for each in rows]
    assert (found.code, found.first_offset) == ("CONTROL_INVALID", 3)
    repair(FS, CLOCK, tmp_path, [directory], examination(FS, CLOCK, tmp_path, [directory]).findings)
    assert batches_of((directory / f"{0:020d}.log").read_bytes()) == [batch(0, 3), batch(4, 2)]
    assert plan_recovery(FS, directory, CLOCK, LoadOptions(clean_shutdown=False)).truncated_segments == []
