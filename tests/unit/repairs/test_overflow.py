"""A segment that an old cleaner merged too far is split as a broker splits it, and loses nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.clock import FixedClock
from seglog.layout import PARTITION_LEADER_EPOCH_OFFSET
from seglog.log.loader import LoadOptions, load_log
from seglog.model import Compression, Record
from seglog.repairs.repair import examination, repair
from seglog.repairs.undo.apply import undo_run
from tests.support.log_files import FS, batch, encode_message_set, facts
from tests.support.open_logs import START_MS

CLOCK = FixedClock(START_MS)
STEP = 2**31
LAYOUTS = {
    "the second batch": [0, STEP],
    "several segments": [0, 3, STEP, STEP + 3, 2 * STEP + 6, 5 * STEP],
    "all but the name": [STEP + 7, STEP + 10],
    "the first offset that does not fit": [0, STEP - 3, STEP],
}


def written(directory: Path, bases: list[int], magic: int) -> list[bytes]:
    directory.mkdir(parents=True)
    batches = [
        batch(base, 3)
        if magic == 2
        else encode_message_set([Record(b"v", timestamp=1000)] * 3, base, 1, Compression.GZIP)
        for base in bases
    ]
    (directory / f"{0:020d}.log").write_bytes(b"".join(batches))
    (directory.parent / ".kafka_cleanshutdown").touch()
    return batches


@pytest.mark.parametrize("magic", [1, 2])
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_segment_whose_offsets_overflow_is_split_as_by_a_recovery(tmp_path: Path, name: str, magic: int) -> None:
    partition, other = tmp_path / "logs" / "t-0", tmp_path / "other" / "t-0"
    batches = written(partition, LAYOUTS[name], magic)
    written(other, LAYOUTS[name], magic)
    load_log(FS, other, CLOCK, LoadOptions(clean_shutdown=False, recovery_point=0)).segments.close()
    before = facts(partition)
    found = examination(FS, CLOCK, partition.parent, [partition])
    outcome = repair(FS, CLOCK, partition.parent, [partition], found.findings)
    assert outcome.complete and outcome.run is not None
    assert {path.name: path.read_bytes() for path in partition.glob("*.log")} == {
        path.name: path.read_bytes() for path in other.glob("*.log")
    }
    assert b"".join(path.read_bytes() for path in sorted(partition.glob("*.log"))) == b"".join(batches)
    assert not examination(FS, CLOCK, partition.parent, [partition]).damaged
    undo_run(FS, outcome.run)
    assert facts(partition) == before


def test_a_last_batch_whose_offset_is_one_bit_off_is_no_overflow(tmp_path: Path) -> None:
    partition = tmp_path / "logs" / "t-0"
    batches = written(partition, [0, 3, 6 | 1 << 40], 2)
    found = examination(FS, CLOCK, partition.parent, [partition])
    assert repair(FS, CLOCK, partition.parent, [partition], found.findings).complete
    assert [path.read_bytes() for path in partition.glob("*.log")] == [b"".join(batches[:2])]


def test_a_segment_that_is_misnamed_too_is_split_under_its_right_name(tmp_path: Path) -> None:
    partition = tmp_path / "logs" / "t-0"
    batches = written(partition, [5 * STEP, 5 * STEP + 3, 6 * STEP + 7], 2)
    (partition / f"{0:020d}.log").rename(partition / f"{4 * STEP + 3:020d}.log")
    earlier = [batch(4 * STEP, 3), batch(5 * STEP - 3, 3)]
    (partition / f"{4 * STEP:020d}.log").write_bytes(b"".join(earlier))
    before = facts(partition)
    found = examination(FS, CLOCK, partition.parent, [partition])
    outcome = repair(FS, CLOCK, partition.parent, [partition], found.findings)
    assert outcome.complete and outcome.run is not None
    assert b"".join(path.read_bytes() for path in sorted(partition.glob("*.log"))) == b"".join(earlier + batches)
    assert not examination(FS, CLOCK, partition.parent, [partition]).damaged
    undo_run(FS, outcome.run)
    assert facts(partition) == before


@pytest.mark.parametrize("first", [0, 7])
def test_a_broken_epoch_in_a_segment_that_overflows_is_corrected_by_the_next_repair(tmp_path: Path, first: int) -> None:
    """With a `first` offset that does not fit, the segment of that name goes."""
    partition = tmp_path / "logs" / "t-0"
    bases = [first * STEP, first * STEP + 3, first * STEP + 6, (first + 1) * STEP + 9, (first + 1) * STEP + 12]
    batches = written(partition, bases, 2)
    whole = bytearray(b"".join(batches))
    whole[len(batches[0]) + PARTITION_LEADER_EPOCH_OFFSET] ^= 0x40
    (partition / f"{0:020d}.log").write_bytes(whole)
    for _ in range(2):
        found = examination(FS, CLOCK, partition.parent, [partition])
        assert repair(FS, CLOCK, partition.parent, [partition], found.findings).run is not None
    assert b"".join(path.read_bytes() for path in sorted(partition.glob("*.log"))) == b"".join(batches)
    assert not examination(FS, CLOCK, partition.parent, [partition]).damaged


@pytest.mark.parametrize("wounded", range(1, 6))
@pytest.mark.parametrize("bit", [2, 20, 31, 40])
def test_a_broken_offset_in_a_segment_that_overflows_costs_that_batch_alone(
    tmp_path: Path, wounded: int, bit: int
) -> None:
    partition = tmp_path / "logs" / "t-0"
    batches = written(partition, [0, 3, STEP + 7, STEP + 10, STEP + 13, 3 * STEP + 9], 2)
    whole = bytearray(batches[wounded])
    base = int.from_bytes(whole[:8], "big") ^ 1 << bit
    whole[:8] = base.to_bytes(8, "big")
    log = partition / f"{0:020d}.log"
    log.write_bytes(b"".join([*batches[:wounded], whole, *batches[wounded + 1 :]]))
    before = facts(partition)
    found = examination(FS, CLOCK, partition.parent, [partition])
    outcome = repair(FS, CLOCK, partition.parent, [partition], found.findings)
    assert outcome.run is not None
    after = b"".join(path.read_bytes() for path in sorted(partition.glob("*.log")))
    assert all(each in after for i, each in enumerate(batches) if i != wounded)
    assert len(after) <= len(b"".join(batches))
    assert not examination(FS, CLOCK, partition.parent, [partition]).damaged
    undo_run(FS, outcome.run)
    assert facts(partition) == before


def test_two_broken_offsets_are_no_overflow(tmp_path: Path) -> None:
    partition = tmp_path / "logs" / "t-0"
    batches = written(partition, [0, 3 | 1 << 40, 6 | 1 << 41, 9], 2)
    found = examination(FS, CLOCK, partition.parent, [partition])
    assert repair(FS, CLOCK, partition.parent, [partition], found.findings).run is not None
    assert [path.read_bytes() for path in partition.glob("*.log")] == [batches[0] + batches[3]]


@pytest.mark.parametrize("position", [0, 1, 2])
def test_batches_of_a_segment_that_overflows_return_to_it_from_another_file(tmp_path: Path, position: int) -> None:
    partition = tmp_path / "logs" / "t-0"
    batches = written(partition, [0, 3, STEP + 7, STEP + 10, STEP + 13, STEP + 16, 3 * STEP + 9], 2)
    strays, own = batches[3:5], [batch(4 * STEP, 3), batch(4 * STEP + 3, 3)]
    (partition / f"{0:020d}.log").write_bytes(b"".join(batches[:3] + batches[5:]))
    (partition / f"{4 * STEP:020d}.log").write_bytes(b"".join(own[:position] + strays + own[position:]))
    before = facts(partition)
    found = examination(FS, CLOCK, partition.parent, [partition])
    outcome = repair(FS, CLOCK, partition.parent, [partition], found.findings)
    assert outcome.complete and outcome.run is not None
    names = [each.name for each in outcome.plan.partitions[0].segments]
    assert len(names) == len(set(names)), "no segment is planned twice"
    assert b"".join(path.read_bytes() for path in sorted(partition.glob("*.log"))) == b"".join(batches + own)
    assert not examination(FS, CLOCK, partition.parent, [partition]).damaged
    undo_run(FS, outcome.run)
    assert facts(partition) == before
