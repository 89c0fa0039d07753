"""Two files of a partition hold the same records in different batches: a repair loses none that a reader gets."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import seglog
from seglog.clock import FixedClock
from seglog.format.builder import BatchOptions, columns_of, encode_all
from seglog.model import Compression, Record
from seglog.repairs.plan import RepairOptions
from seglog.repairs.repair import examination, repair
from seglog.repairs.undo.apply import undo_run
from seglog.scan.segment_scan import SegmentScan
from tests.support import effort
from tests.support.log_files import FS, files_of, write_segment

CLOCK = FixedClock(1_700_000_000_000)
NAMES = (0, 50, 80, 120)
END = 140


def _batches(first: int, stop: int, chance: random.Random, cuts: set[int]) -> list[bytes]:
    """The log's records of these offsets, in batches of any size that end at `cuts` at the latest."""
    batches = []
    while first < stop:
        end = min(stop, first + chance.choice((1, 3, 10, 25)), *(cut for cut in cuts if cut > first))
        records = [Record(b"value %d" % i, b"key %d" % i, timestamp=1_000 + i) for i in range(first, end)]
        codec = chance.choice((Compression.NONE, Compression.LZ4))
        batches.append(encode_all(columns_of(records), first, BatchOptions(codec)))
        first = end
    return batches


def _readable(directory: Path) -> set[tuple[int, bytes | None]]:
    """The records of every file."""
    found = set()
    for path in directory.glob("*.log"):
        for chunk in SegmentScan(FS, path):
            for records in chunk.records():
                found |= {(int(row["offset"]), records.value(i)) for i, row in enumerate(records.rows)}
    return found


@pytest.mark.parametrize("seed", range(effort.first_seed(0), effort.first_seed(0) + effort.tries(40)))
def test_no_record_that_a_file_holds_is_lost_where_two_segments_overlap(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    directory = tmp_path / "logs" / "t-0"
    for at, base in enumerate(NAMES):
        following = NAMES[at + 1] if at + 1 < len(NAMES) else END
        whole = chance.random() < 0.4  # the sources' own ends, or batches that know nothing of them
        reach = END if base == NAMES[-1] else chance.choice((following, following, following + 15, NAMES[-1], END))
        batches = _batches(base, reach, chance, {reach} if not whole else set(NAMES) - {base})
        if base and chance.random() < 0.5:
            batches = batches[: chance.randrange(len(batches) + 1)]
        if base and chance.random() < 0.2:
            del batches[: chance.randrange(len(batches) + 1)]
        write_segment(directory, base, *batches)
    before, files = _readable(directory), files_of(directory)
    findings = examination(FS, CLOCK, directory.parent, [directory]).findings
    outcome = repair(FS, CLOCK, directory.parent, [directory], findings, RepairOptions())
    assert outcome.failure is None
    assert _readable(directory) == before
    if not any("overlap" in text for text in outcome.plan.unrepaired):
        with seglog.open_log(directory) as log:
            assert [record.offset for record in log.records()] == sorted(offset for offset, _ in before)
    if outcome.run is not None:
        undo_run(FS, outcome.run)
        assert files_of(directory) == files
