"""Segments whose names are wrong: a repair names them right, and no good batch goes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from seglog.clock import FixedClock
from seglog.repairs.plan import RepairOptions
from seglog.repairs.repair import RepairOutcome, examination, repair
from seglog.repairs.undo.apply import undo_run
from seglog.storage.local import LocalFileSystem
from tests.support.broken.damage import held
from tests.support.log_files import batch, files_of, write_segment

FS, CLOCK = LocalFileSystem(), FixedClock(1_700_000_000_000)
BASES = (0, 9, 18)


def segment(base: int, suffix: str = "log") -> str:
    return f"{base:020d}.{suffix}"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Three segments of three batches, of three records each."""
    directory = tmp_path / "logs" / "t-0"
    for base in BASES:
        write_segment(directory, base, *(batch(base + n, 3) for n in (0, 3, 6)))
    return directory


def repaired(directory: Path, *, looked: bool = True) -> RepairOutcome:
    findings = examination(FS, CLOCK, directory.parent, [directory]).findings if looked else None
    return repair(FS, CLOCK, directory.parent, [directory], findings, RepairOptions())


def rename(directory: Path, base: int, to: int, *, indexes: bool) -> None:
    for path in sorted(directory.glob(f"{base:020d}.*")):
        if indexes or path.suffix == ".log":
            path.rename(directory / path.name.replace(f"{base:020d}", f"{to:020d}"))


@pytest.mark.parametrize("looked", [True, False], ids=["findings", "everything"])
@pytest.mark.parametrize("indexes", [True, False], ids=["with its indexes", "alone"])
@pytest.mark.parametrize(("base", "to"), [(9, 8), (9, 10), (9, 14), (18, 26), (9, 1_000_009), (0, 5)])
def test_a_segment_gets_its_name_back_with_every_batch(
    directory: Path, base: int, to: int, *, indexes: bool, looked: bool
) -> None:
    whole = held(directory)
    rename(directory, base, to, indexes=indexes)
    misnamed = files_of(directory)
    outcome = repaired(directory, looked=looked)
    assert held(directory) == whole
    summary = examination(FS, CLOCK, directory.parent, [directory]).summary
    assert (summary.errors, summary.warnings) == (0, 0)
    assert not outcome.plan.unrepaired
    assert outcome.run is not None
    undo_run(FS, outcome.run)
    assert files_of(directory) == misnamed


@pytest.mark.parametrize("to", [8, 10, 16])
def test_of_two_copies_the_one_with_the_right_name_stays(directory: Path, to: int) -> None:
    whole = held(directory)
    (directory / segment(to)).write_bytes((directory / segment(9)).read_bytes())
    repaired(directory)
    assert held(directory) == whole


@pytest.mark.parametrize("broken", [0, 1])
def test_a_batch_with_a_broken_offset_does_not_hide_a_wrong_name(directory: Path, broken: int) -> None:
    whole = held(directory)[segment(9)]
    data = [bytes([1]) + each[1:] if n == broken else each for n, each in enumerate([*whole, batch(18, 3)])]
    (directory / segment(9)).write_bytes(b"".join(data))
    (directory / segment(18)).write_bytes(b"".join(batch(each, 3) for each in (21, 24, 27)))
    rename(directory, 18, 21, indexes=False)
    rename(directory, 9, 14, indexes=True)
    repaired(directory)
    kept = [each for batches in held(directory).values() for each in batches]
    assert [each for each in [*whole, batch(18, 3)] if each not in kept] == [whole[broken]]


def test_a_copy_that_goes_lets_another_name_be_set_right(directory: Path) -> None:
    """The first segment's batches reach beyond the copy's name."""
    whole = held(directory)
    (directory / segment(8)).write_bytes((directory / segment(9)).read_bytes())
    rename(directory, 0, 2, indexes=True)
    repaired(directory)
    assert held(directory) == whole


@pytest.mark.parametrize("state", ["deleted", "cleaned"])
def test_what_else_was_interrupted_does_not_keep_a_wrong_name(directory: Path, state: str) -> None:
    whole = held(directory)
    (directory / f"{segment(0)}.{state}").write_bytes((directory / segment(0)).read_bytes())
    rename(directory, 9, 8, indexes=False)
    repaired(directory)
    assert held(directory) == whole


def without_its_end(data: bytes) -> bytes:
    return data[:-10]


def with_a_flipped_byte(data: bytes) -> bytes:
    at = len(data) // 2
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize("spoil", [without_its_end, with_a_flipped_byte])
def test_a_misnamed_segment_with_damage_loses_the_damage_alone(
    directory: Path, spoil: Callable[[bytes], bytes]
) -> None:
    log = directory / segment(9)
    log.write_bytes(spoil(log.read_bytes()))
    rename(directory, 9, 13, indexes=False)
    repaired(directory)
    assert [len(batches) for batches in held(directory).values()] == [3, 2, 3]
    assert segment(9) in held(directory)


def test_an_offset_without_a_witness_is_damage_and_the_name_stays(directory: Path) -> None:
    """The only batch of a segment begins below its name, and nothing follows from that."""
    (directory / segment(27)).write_bytes(batch(27, 1))
    for base in (9, 18):
        for path in directory.glob(f"{base:020d}.*"):
            path.unlink()
    (directory / segment(27)).write_bytes(batch(11, 1))
    repaired(directory)
    assert held(directory)[segment(27)] == []


@pytest.fixture
def cleaned(tmp_path: Path) -> Path:
    """A log that was cleaned: gaps between its batches, and none of its segments begins with its name's offset."""
    directory = tmp_path / "cleaned" / "t-0"
    write_segment(directory, 0, *(batch(each, 3) for each in (17, 20, 40)))
    write_segment(directory, 62, *(batch(each, 3) for each in (70, 90)))
    return directory


@pytest.mark.parametrize("indexes", [True, False], ids=["with its indexes", "alone"])
def test_a_cleaned_segment_renamed_over_the_last_one_gets_a_fitting_name(cleaned: Path, *, indexes: bool) -> None:
    """Nothing else holds these offsets: to cut them out would leave nothing."""
    whole = held(cleaned)[segment(0)]
    for path in sorted(cleaned.glob(f"{0:020d}.*")):
        if indexes or path.suffix == ".log":
            path.replace(cleaned / path.name.replace(f"{0:020d}", f"{62:020d}"))
    repaired(cleaned)
    assert held(cleaned) == {segment(17 if indexes else 0): whole}  # an index that is left tells the name


def test_names_that_are_wrong_beside_each_other_are_set_right(cleaned: Path) -> None:
    """Of the second one nothing follows until the first is right."""
    whole = held(cleaned)
    rename(cleaned, 62, 1000, indexes=True)
    rename(cleaned, 0, 18, indexes=True)
    repaired(cleaned)
    assert list(held(cleaned).values()) == list(whole.values())


@pytest.mark.parametrize(("to", "is_told"), [(1000, True), (1024, False)])
def test_the_only_batch_tells_the_name_where_no_bit_turned_over_explains_its_offset(
    tmp_path: Path, to: int, *, is_told: bool
) -> None:
    directory = tmp_path / "logs" / "t-0"
    write_segment(directory, to)
    (directory / segment(to)).write_bytes(batch(0, 3))
    repaired(directory)
    assert held(directory) == ({segment(0): [batch(0, 3)]} if is_told else {segment(to): []})


def test_a_name_too_low_does_not_keep_the_first_segment_from_its_own(directory: Path) -> None:
    whole = held(directory)
    rename(directory, 9, 8, indexes=True)
    rename(directory, 0, 1 << 20, indexes=True)
    repaired(directory)
    assert held(directory) == whole


def test_strays_at_a_segments_end_do_not_hide_its_wrong_name(directory: Path) -> None:
    whole = held(directory)
    moved = whole[segment(9)][1:]
    (directory / segment(0)).write_bytes(b"".join(whole[segment(0)] + moved))
    (directory / segment(9)).write_bytes(whole[segment(9)][0])
    rename(directory, 0, 8, indexes=False)
    repaired(directory)
    assert held(directory) == whole


def test_one_batch_below_its_name_in_a_cleaned_log_is_no_witness(cleaned: Path) -> None:
    """Its offset may be what is broken, and the batches after it belong where they are."""
    whole = held(cleaned)
    (cleaned / segment(0)).unlink()
    (cleaned / segment(62)).write_bytes(batch(6, 3) + whole[segment(62)][1])
    repaired(cleaned)
    assert held(cleaned) == {segment(62): whole[segment(62)][1:]}


def test_exchanged_contents_on_both_sides_do_not_hide_a_wrong_name(directory: Path) -> None:
    whole = held(directory)
    first, last = ((directory / segment(base)).read_bytes() for base in (0, 18))
    (directory / segment(0)).write_bytes(last)
    (directory / segment(18)).write_bytes(first)
    rename(directory, 9, 10, indexes=True)
    repaired(directory)
    assert held(directory) == whole


def test_of_two_copies_with_wrong_names_one_gets_the_right_one(cleaned: Path) -> None:
    """Each of them alone is in the other's way."""
    whole = held(cleaned)[segment(0)]
    (cleaned / segment(0)).rename(cleaned / segment(62))
    (cleaned / segment(61)).write_bytes((cleaned / segment(62)).read_bytes())
    for path in cleaned.glob("*index"):
        path.unlink()
    repaired(cleaned)
    assert held(cleaned) == {segment(17): whole}


def test_moved_blocks_in_exchanged_contents_stay_too(tmp_path: Path) -> None:
    """The name of the file, and the first good batch in it, are too high for the batches after the next damage."""
    directory = tmp_path / "logs" / "t-0"
    first, junk = [batch(base, 3) for base in range(0, 24, 3)], batch(0, 3)[25:]
    write_segment(directory, 0, *first)
    write_segment(directory, 24, batch(24, 3), batch(27, 3))
    write_segment(directory, 30, batch(30, 3), batch(33, 3))
    whole = held(directory)
    (directory / segment(0)).write_bytes((directory / segment(30)).read_bytes())
    moved = (junk, *first[3:4], junk, *first[1:3], junk, first[0], junk, *first[5:])
    (directory / segment(30)).write_bytes(b"".join(moved))
    repaired(directory)
    good = {each for name in whole for each in whole[name]} - {first[4]}
    assert {each for batches in held(directory).values() for each in batches} == good
    summary = examination(FS, CLOCK, directory.parent, [directory]).summary
    assert (summary.errors, summary.warnings) == (0, 0)
