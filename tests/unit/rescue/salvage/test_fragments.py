"""Runs of batches that lie together, and batches in two halves."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from seglog.format.decoder import scan_batches
from seglog_rescue.salvage.carve import FOUND, carve_image
from seglog_rescue.salvage.fragments import (
    Fragment,
    Join,
    block_bytes_of,
    fragments_of,
    joins_of,
    with_cuts,
    with_sure_offsets,
)
from tests.support.log_files import FS, batch

BLOCK = 4096


def found(*rows: dict[str, int]) -> np.ndarray:
    """FOUND rows of batches of 100 bytes and ten offsets, one after the other unless they say otherwise."""
    table = np.zeros(len(rows), dtype=FOUND)
    for i, given in enumerate(rows):
        row = {"position": 100 * i, "size": 100, "first_offset": 10 * i, "magic": 2, "producer_id": -1, **given}
        row.setdefault("last_offset", row["first_offset"] + 9)
        for name, value in row.items():
            table[name][i] = value
    return table


def lengths(rows: np.ndarray) -> list[int]:
    return [len(fragment.rows) for fragment in fragments_of(rows)]


def test_no_batches_make_no_fragment() -> None:
    assert fragments_of(found()) == []


def test_batches_one_right_after_the_other_whose_offsets_go_on_are_one_fragment() -> None:
    (fragment,) = fragments_of(found({}, {}, {}))
    assert (fragment.first_offset, fragment.next_offset, fragment.position, fragment.end) == (0, 30, 0, 300)


@pytest.mark.parametrize(
    "strange",
    [
        {"position": 101},  # a byte lies between
        {"source": 1},
        {"first_offset": 9, "last_offset": 19},  # overlaps
        {"leader_epoch": -1},  # falls
        {"first_offset": 1011, "last_offset": 1020},  # more is missing than compaction takes
    ],
    ids=lambda strange: ",".join(strange),
)
def test_what_does_not_go_on_begins_another_fragment(strange: dict[str, int]) -> None:
    assert lengths(found({}, strange)) == [1, 1]


def test_a_thousand_offsets_may_be_missing_after_compaction() -> None:
    assert lengths(found({}, {"first_offset": 1010, "last_offset": 1019})) == [2]


@pytest.mark.parametrize(
    "unlike",
    [{"magic": 1}, {"attributes": 3}, {"producer_id": 7}, {"max_timestamp": 39_999}],
    ids=lambda unlike: next(iter(unlike)),
)
def test_across_a_gap_and_at_a_sectors_beginning_batches_have_to_be_alike(unlike: dict[str, int]) -> None:
    """A sector's beginning is where another file may go on by accident of offsets."""
    first = {"base_timestamp": 100_000, "max_timestamp": 100_000}
    like = {"max_timestamp": 40_000}  # a minute of disorder is usual
    gap = {"first_offset": 15, "last_offset": 24}
    assert lengths(found(first, {**like, **unlike})) == [2]
    assert lengths(found(first, {**like, **gap})) == [2]
    assert lengths(found(first, {**like, **gap, **unlike})) == [1, 1]
    begins = {"position": 412, "size": 100, **first}
    assert lengths(found(begins, {"position": 512, **like})) == [2]
    assert lengths(found(begins, {"position": 512, **like, **unlike})) == [1, 1]


def test_after_a_gap_no_batch_at_a_sectors_beginning_goes_on() -> None:
    assert lengths(found({"position": 412}, {"position": 512, "first_offset": 15, "last_offset": 24})) == [1, 1]


def crossing(**given: int) -> dict[str, int]:
    """A batch whose offset, size and epoch lie across the end of a sector."""
    return {"position": 500, **given}


def test_an_offset_that_crosses_a_sector_counts_where_a_neighbour_goes_on() -> None:
    before, after = {"position": 400}, {"position": 600}
    assert with_sure_offsets(found(crossing())).tolist() == []
    assert len(with_sure_offsets(found(before, crossing()))) == 2
    assert len(with_sure_offsets(found(crossing(), after))) == 2
    gone = {"position": 400, "leader_epoch": 3}
    assert with_sure_offsets(found(gone, crossing()))["position"].tolist() == [400]
    assert with_sure_offsets(found(before, crossing(first_offset=9)))["position"].tolist() == [400]


def test_sixteen_bytes_up_to_the_end_of_a_sector_do_not_cross_it() -> None:
    assert len(with_sure_offsets(found({"position": 496}))) == 1
    assert len(with_sure_offsets(found({"position": 497}))) == 0
    assert len(with_sure_offsets(found({"position": 511}))) == 0
    assert len(with_sure_offsets(found({"position": 512}))) == 1


def test_a_fragment_goes_on_at_a_block_or_where_its_blocks_would() -> None:
    fragment = Fragment(found({"position": 1000}))  # ends at 1100
    assert fragment.may_continue_at(3 * BLOCK, BLOCK)
    assert fragment.may_continue_at(1100 + 5 * BLOCK, BLOCK)
    assert not fragment.may_continue_at(1101, BLOCK)
    assert fragment.may_continue_at(1101, 0)  # no blocks show


def test_a_fragment_whose_last_batch_is_cut_goes_on_where_that_would_end() -> None:
    cut = scan_batches(np.frombuffer(batch(10, 3), dtype=np.uint8), 0, len(batch(10, 3)), 0).batches
    fragment, size = Fragment(found({"position": 1000}), cut), len(batch(10, 3))
    assert fragment.next_offset == 13
    assert fragment.may_continue_at(1100 + size + 7 * BLOCK, BLOCK)
    assert not fragment.may_continue_at(1100 + size + 512, BLOCK)
    assert fragment.may_continue_at(1100 + size + 512, 0)
    assert not fragment.may_continue_at(8 * BLOCK, BLOCK)  # a block's beginning is no end of this batch


# --- batches in two halves


def joined(path: Path, data: bytes) -> tuple[list[Fragment], list[Join]]:
    """The fragments of an image, and which go on in which."""
    path.write_bytes(data)
    fragments = with_cuts(FS, path, fragments_of(np.concatenate(list(carve_image(FS, path, 0)))))
    return fragments, list(joins_of(FS, path, fragments))


def cut_in_two(batches: Iterable[bytes], at: int) -> bytes:
    """A log whose blocks from `at` on lie before its first ones."""
    log = b"".join(batches)
    return log[at:] + bytes(-len(log) % BLOCK) + bytes(BLOCK) + log[:at]


def test_the_halves_of_a_batch_are_found_by_its_checksum(tmp_path: Path) -> None:
    batches = [batch(offset, 1, value=b"%d" % offset * 1500) for offset in range(8)]
    fragments, joins = joined(tmp_path / "disk.img", cut_in_two(batches, BLOCK))
    (join,) = joins
    at = next(i for i in range(8) if len(b"".join(batches[: i + 1])) > BLOCK)
    assert join.row["first_offset"].tolist() == [at]
    assert join.row["first_size"].tolist() == [BLOCK - len(b"".join(batches[:at]))]
    assert join.row["second_position"].tolist() == [0]
    assert fragments[join.before].next_offset == fragments[join.after].first_offset == at + 1
    assert block_bytes_of(joins) == BLOCK


def test_halves_of_which_a_byte_is_wrong_are_no_batch(tmp_path: Path) -> None:
    batches = [batch(offset, 1, value=b"%d" % offset * 1500) for offset in range(8)]
    image = bytearray(cut_in_two(batches, BLOCK))
    image[100] ^= 1  # of the second half
    assert joined(tmp_path / "disk.img", bytes(image))[1] == []


@pytest.mark.parametrize("offset", [1, 2])
def test_the_beginning_of_an_older_batch_is_no_half_of_a_later_one(tmp_path: Path, offset: int) -> None:
    """Bytes after a fragment that were never overwritten."""
    torn = batch(offset, 1, value=b"v" * 900)[:500]
    (fragment,), joins = joined(tmp_path / "disk.img", batch(0, 2) + torn + b"x" * 2000)
    assert (fragment.cut is not None, joins) == (offset == 2, [])


@pytest.mark.parametrize(
    ("places", "block"), [([], 0), ([512, 4096], 512), ([1024], 1024), ([4096, 8192], 4096), ([100], 0)]
)
def test_blocks_are_as_large_as_every_cut_allows(places: list[int], block: int) -> None:
    joins = [Join(0, 1, found({"second_position": place})) for place in places]
    assert block_bytes_of(joins) == block
