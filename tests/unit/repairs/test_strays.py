"""Good batches in the wrong segment's file: a repair puts them back, and what contradicts the log stays out."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.clock import FixedClock
from seglog.model import Compression
from seglog.repairs.plan import Policy, RepairOptions
from seglog.repairs.repair import RepairOutcome, examination, repair
from seglog.repairs.undo.apply import undo_run
from tests.support.broken.damage import held
from tests.support.log_files import FS, batch, files_of, wrappers, write_segment
from tests.support.naive import NaiveRecord, batch_v2

CLOCK = FixedClock(1_700_000_000_000)
FIRST, SECOND, THIRD = (f"{base:020d}.log" for base in (0, 9, 18))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Three segments of three batches, of three records each."""
    directory = tmp_path / "logs" / "t-0"
    for base in (0, 9, 18):
        write_segment(directory, base, *(batch(base + n, 3) for n in (0, 3, 6)))
    return directory


def repaired(directory: Path, policy: Policy = Policy.SMALLEST_LOSS) -> RepairOutcome:
    findings = examination(FS, CLOCK, directory.parent, [directory]).findings
    outcome = repair(FS, CLOCK, directory.parent, [directory], findings, RepairOptions(policy=policy))
    assert outcome.failure is None
    summary = examination(FS, CLOCK, directory.parent, [directory]).summary
    assert (summary.errors, summary.warnings) == (0, 0)
    return outcome


def put(directory: Path, name: str, *batches: bytes) -> None:
    (directory / name).write_bytes(b"".join(batches))


def exchange(directory: Path, one: str, other: str) -> None:
    first, second = ((directory / name).read_bytes() for name in (one, other))
    put(directory, one, second)
    put(directory, other, first)


@pytest.mark.parametrize("pair", [(FIRST, SECOND), (SECOND, THIRD), (FIRST, THIRD)])
def test_exchanged_contents_go_back_and_undo_gives_the_exchange_back(directory: Path, pair: tuple[str, str]) -> None:
    whole = held(directory)
    exchange(directory, *pair)
    exchanged = files_of(directory)
    outcome = repaired(directory)
    assert held(directory) == whole
    gathered = [row["file"] for row in outcome.plan.rows() if row["action"] == "gather"]
    assert gathered == list(pair)
    assert outcome.run is not None
    undo_run(FS, outcome.run)
    assert files_of(directory) == exchanged


def test_an_exchanged_batch_one_bit_from_the_end_of_the_other_segment_goes_back(directory: Path) -> None:
    put(directory, FIRST, batch(0, 3), batch(3, 3))
    put(directory, SECOND, batch(9, 1))  # with one bit flipped, it would be 8 and end the first segment
    (directory / THIRD).unlink()
    whole = held(directory)
    exchange(directory, FIRST, SECOND)
    repaired(directory)
    assert held(directory) == whole


def test_exchanged_contents_with_damage_lose_the_damage_alone(directory: Path) -> None:
    whole = held(directory)
    data = bytearray((directory / SECOND).read_bytes())
    data[80] ^= 1
    put(directory, SECOND, bytes(data))
    exchange(directory, FIRST, SECOND)
    repaired(directory)
    assert held(directory) == {**whole, SECOND: whole[SECOND][1:]}


@pytest.mark.parametrize("target", [FIRST, THIRD])
@pytest.mark.parametrize("count", [1, 2])
def test_batches_that_were_written_into_another_segments_file_go_back(directory: Path, target: str, count: int) -> None:
    whole = held(directory)
    put(directory, SECOND, *whole[SECOND][count:])
    put(directory, target, whole[target][0], *whole[SECOND][:count], *whole[target][1:])
    repaired(directory)
    assert held(directory) == whole


def test_what_two_damaged_copies_still_have_together_is_the_segment(directory: Path) -> None:
    whole = held(directory)
    put(directory, SECOND, *whole[SECOND][:2])
    put(directory, f"{11:020d}.log", *whole[SECOND][1:])
    repaired(directory)
    assert held(directory) == whole


def test_of_two_copies_in_a_cleaned_log_each_gives_what_the_other_lacks(directory: Path) -> None:
    """No batch touches another one, and the name of the copy lies within the first."""
    batches = [batch(first, 3) for first in (0, 4, 8, 13)]
    for path in directory.iterdir():
        path.unlink()
    write_segment(directory, 18, batch(18, 3))
    put(directory, FIRST, *batches[:2], batches[3])
    put(directory, f"{2:020d}.log", *batches[:3])
    repaired(directory)
    assert held(directory) == {FIRST: batches, THIRD: [batch(18, 3)]}


def test_a_name_within_a_batch_is_no_segment(directory: Path) -> None:
    whole = held(directory)
    put(directory, SECOND, *whole[SECOND][:1], *whole[SECOND][2:])
    put(directory, f"{13:020d}.log", whole[SECOND][1])
    repaired(directory)
    assert held(directory) == whole


def test_a_name_within_a_batch_of_its_own_file_is_no_segment(directory: Path) -> None:
    """The right name was another file's, whose own name was wrong, too."""
    whole = held(directory)
    exchange(directory, FIRST, SECOND)
    (directory / FIRST).rename(directory / f"{13:020d}.log")
    repaired(directory)
    assert held(directory) == {FIRST: whole[FIRST] + whole[SECOND], THIRD: whole[THIRD]}


def test_a_name_within_a_batch_of_its_own_file_that_goes_on_from_the_segment_before_is_no_segment(
    directory: Path,
) -> None:
    """No batch touches another one in that file, and one of its batches lies in the file before."""
    whole = held(directory)
    put(directory, FIRST, *whole[FIRST], batch(15, 2))
    put(directory, f"{10:020d}.log", batch(9, 3), batch(13, 1))
    (directory / SECOND).unlink()
    repaired(directory)
    assert held(directory) == {
        FIRST: [*whole[FIRST], batch(9, 3), batch(13, 1), batch(15, 2)],
        THIRD: whole[THIRD],
    }


def test_a_name_within_a_batch_of_its_own_file_stays_where_the_segment_before_contradicts(directory: Path) -> None:
    whole = held(directory)
    put(directory, SECOND, batch(9, 2), batch(11, 2))
    put(directory, f"{13:020d}.log", batch(12, 3), batch(15, 3))
    repaired(directory)
    assert held(directory) == {**whole, SECOND: [batch(9, 2), batch(11, 2)], f"{13:020d}.log": [batch(15, 3)]}


def test_a_name_within_the_batch_that_is_missing_before_it_is_no_segment(directory: Path) -> None:
    whole = held(directory)
    put(directory, FIRST, whole[THIRD][0], *whole[FIRST])
    put(directory, f"{19:020d}.log", *whole[THIRD][1:])
    (directory / THIRD).unlink()
    repaired(directory)
    assert held(directory) == {FIRST: whole[FIRST], SECOND: whole[SECOND] + whole[THIRD]}


def test_a_name_within_the_batch_that_another_file_is_named_by_is_no_segment(directory: Path) -> None:
    """No batch touches another one."""
    batches = [batch(first, 3) for first in (10, 20, 30, 40)]
    for path in directory.iterdir():
        path.unlink()
    write_segment(directory, 0, batch(0, 3))
    put(directory, f"{12:020d}.log", *batches[2:])
    put(directory, f"{30:020d}.log", *batches[:2])
    repaired(directory)
    assert held(directory) == {FIRST: [batch(0, 3)], f"{10:020d}.log": batches}


def test_a_sound_batch_of_another_log_makes_no_name_wrong(directory: Path) -> None:
    whole = held(directory)
    put(directory, FIRST, *whole[FIRST][:2], batch(6, 4), batch(10, 3))
    repaired(directory)
    assert held(directory) == {**whole, FIRST: whole[FIRST][:2]}


def test_what_contradicts_a_segment_is_of_another_log_and_stays_out(directory: Path) -> None:
    whole = held(directory)
    foreign = [batch(9, 2), batch(11, 7)]
    put(directory, SECOND, *whole[SECOND][:1], *whole[SECOND][2:])
    put(directory, FIRST, *whole[FIRST], *foreign)
    outcome = repaired(directory)
    assert held(directory) == {**whole, SECOND: whole[SECOND][:1] + whole[SECOND][2:]}
    assert next(row["action"] for row in outcome.plan.rows() if row["file"] == FIRST) == "cut"


def test_what_would_make_leader_epochs_fall_stays_out(directory: Path) -> None:
    whole = held(directory)
    put(directory, SECOND, whole[SECOND][0], batch(12, 3, epoch=7), batch(15, 3, epoch=7))
    put(directory, THIRD, batch(18, 3, epoch=7), batch(24, 3, epoch=7))
    put(directory, FIRST, *whole[FIRST], batch(21, 1), batch(22, 2))
    repaired(directory)
    assert [len(batches) for batches in held(directory).values()] == [3, 3, 2]


@pytest.mark.parametrize("far", [1 << 29, 1 << 40])
def test_batches_with_offsets_far_after_the_log_are_left_out(directory: Path, far: int) -> None:
    """Two batches with broken offsets ascend as two sound ones do."""
    whole = held(directory)
    put(directory, FIRST, whole[FIRST][0], batch(3 + far, 3), batch(6 + 2 * far, 3))
    repaired(directory)
    assert held(directory) == {**whole, FIRST: whole[FIRST][:1]}


def test_a_batch_whose_offset_may_be_broken_stays_out(directory: Path) -> None:
    """Of offset 19 one bit makes 3, where it lies; and the log has room at 19."""
    whole = held(directory)
    put(directory, FIRST, whole[FIRST][0], batch(19, 3), whole[FIRST][2])
    put(directory, THIRD, whole[THIRD][2])
    repaired(directory)
    assert held(directory) == {**whole, FIRST: whole[FIRST][::2], THIRD: whole[THIRD][2:]}


def test_a_batch_that_goes_on_from_its_segment_belongs_there_though_one_bit_would_make_it_fit(directory: Path) -> None:
    """Of offset 35 one bit makes 3, from which the hole where it lies would go on to 8."""
    whole = held(directory)
    end = [batch(27, 3), batch(30, 5)]
    put(directory, THIRD, *whole[THIRD], *end)
    put(directory, FIRST, whole[FIRST][0], batch(35, 3))
    repaired(directory)
    assert held(directory) == {**whole, FIRST: whole[FIRST][:1], THIRD: [*whole[THIRD], *end, batch(35, 3)]}


def test_policy_excise_removes_batches_that_are_in_the_wrong_file(directory: Path) -> None:
    whole = held(directory)
    put(directory, SECOND, *whole[SECOND][1:])
    put(directory, THIRD, *whole[THIRD][:1], *whole[SECOND][:1], *whole[THIRD][1:])
    outcome = repaired(directory, Policy.EXCISE)
    assert held(directory) == {**whole, SECOND: whole[SECOND][1:]}
    assert not any(row["action"] == "gather" for row in outcome.plan.rows())


def test_of_exchanged_contents_a_broken_offset_brings_down_its_own_batch_alone(directory: Path) -> None:
    """The last segment has room for any offset: what follows the batch in its file must not seem to contradict it."""
    whole = held(directory)
    broken = bytearray(whole[THIRD][1])
    broken[5] ^= 2  # 131,072 further on
    put(directory, THIRD, whole[THIRD][0], bytes(broken), whole[THIRD][2])
    exchange(directory, FIRST, THIRD)
    repaired(directory)
    kept = [each for batches in held(directory).values() for each in batches]
    assert [each for batches in whole.values() for each in batches if each not in kept] == [whole[THIRD][1]]


@pytest.mark.parametrize("bit", [5, 22])
def test_a_broken_offset_among_exchanged_batches_does_not_keep_a_whole_segment_out(directory: Path, bit: int) -> None:
    """It would be the only batch of its file, and later epochs could not go before it."""
    segments = [batch(0, 3), batch(3, 3), batch(6, 3)], [batch(9, 3, epoch=1), batch(12, 6, epoch=2)]
    for path in directory.iterdir():
        path.unlink()
    put(directory, FIRST, *segments[1])
    put(directory, SECOND, segments[0][0], batch(3 ^ (1 << bit), 3), segments[0][2])
    (directory / "leader-epoch-checkpoint").write_text("0\n3\n0 0\n1 9\n2 12\n")
    repaired(directory)
    assert held(directory) == {FIRST: [segments[0][0], segments[0][2]], SECOND: segments[1]}


def test_a_wrapper_whose_broken_offset_reaches_over_all_segments_makes_no_name_wrong(directory: Path) -> None:
    """The offsets within a wrapper of magic 0 are absolute: only its last one is broken, its first is in place."""
    wrapper = bytearray(wrappers(0, Compression.GZIP, count=2)[1])
    assert wrapper[7] == 5
    wrapper[2] ^= 32  # 2^45 further on
    put(directory, FIRST, batch(0, 3), bytes(wrapper), *(batch(offset) for offset in (6, 7, 8)))
    whole = held(directory)
    repaired(directory)
    assert held(directory) == {**whole, FIRST: [whole[FIRST][0], *whole[FIRST][2:]]}


def _same(base_offset: int, count: int, epoch: int = 0) -> bytes:
    """Records that any batch of the log holds alike."""
    records = [NaiveRecord(i, i, b"k%d" % (base_offset + i), b"value") for i in range(count)]
    return batch_v2(base_offset, records, base_timestamp=1000 + base_offset, leader_epoch=epoch)


def test_a_source_that_holds_less_than_the_merged_segment_goes_and_no_record_with_it(directory: Path) -> None:
    merged = [_same(0, 9), _same(9, 9)]
    put(directory, FIRST, *merged)
    put(directory, SECOND, _same(9, 4))
    outcome = repaired(directory)
    assert held(directory) == {FIRST: merged, THIRD: [batch(18 + n, 3) for n in (0, 3, 6)]}
    removed = [(row["file"], row["reason"]) for row in outcome.plan.rows() if row["action"] == "remove"]
    assert (SECOND, "another segment has its records") in removed


def test_a_source_keeps_its_name_where_it_holds_all_that_the_merged_segment_has_there(directory: Path) -> None:
    put(directory, FIRST, _same(0, 9), _same(9, 6))
    put(directory, SECOND, _same(9, 4), _same(13, 5))
    repaired(directory)
    assert held(directory)[FIRST] == [_same(0, 9)]
    assert held(directory)[SECOND] == [_same(9, 4), _same(13, 5)]


def test_what_only_the_source_holds_goes_into_the_merged_segment(directory: Path) -> None:
    put(directory, FIRST, _same(0, 9), _same(9, 6))
    put(directory, SECOND, _same(9, 2), _same(15, 3))
    repaired(directory)
    assert held(directory) == {
        FIRST: [_same(0, 9), _same(9, 6), _same(15, 3)],
        THIRD: [batch(18 + n, 3) for n in (0, 3, 6)],
    }


def test_where_each_of_two_files_has_records_that_the_other_lacks_neither_loses_one(directory: Path) -> None:
    put(directory, FIRST, _same(0, 7), _same(7, 8))
    put(directory, SECOND, _same(9, 4), _same(13, 5))
    files = files_of(directory)
    findings = examination(FS, CLOCK, directory.parent, [directory]).findings
    outcome = repair(FS, CLOCK, directory.parent, [directory], findings, RepairOptions())
    assert {name: files_of(directory)[name] for name in (FIRST, SECOND)} == {
        name: files[name] for name in (FIRST, SECOND)
    }
    assert [text for text in outcome.plan.unrepaired if "each of the two holds records" in text]


def test_a_merged_segment_holds_the_offsets_that_its_source_has_lost(directory: Path) -> None:
    put(directory, FIRST, _same(0, 9), _same(9, 9))
    put(directory, SECOND, _same(9, 4))
    findings = examination(FS, CLOCK, directory.parent, [directory]).findings
    codes = {found.code for rows in findings.values() for found in rows}
    assert "OFFSET_OUT_OF_SEGMENT" in codes
    assert "SEGMENT_MISSING" not in codes
