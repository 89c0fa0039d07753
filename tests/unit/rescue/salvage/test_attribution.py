"""Whose batch is it: what joins runs of batches on a disk, what keeps them apart, and what stays undecided."""

from __future__ import annotations

from itertools import pairwise, zip_longest
from pathlib import Path

import numpy as np

from seglog.model import Compression
from seglog_rescue.salvage.attribution import CarvedLog, attribute
from seglog_rescue.salvage.carve import carve_image, carve_log
from tests.support.log_files import FS, batch, compressed_batches, idempotent, marker
from tests.support.naive import NaiveRecord, batch_v2

BLOCK = 4096


def laid_out(path: Path, *runs: list[bytes]) -> None:
    """Runs of batches, each in blocks of its own, with a foreign block between them."""
    parts = [b"".join(run) for run in runs]
    path.write_bytes(b"".join(part + bytes(-len(part) % BLOCK) + b"x" * BLOCK for part in parts))


def attributed(tmp_path: Path, *runs: list[bytes], partition: list[bytes] | None = None) -> list[CarvedLog]:
    """What becomes of runs of batches in an image, perhaps beside a partition's own file."""
    image, log = tmp_path / "disk.img", tmp_path / f"{0:020d}.log"
    laid_out(image, *runs)
    parts = list(carve_image(FS, image, 0))
    if partition is not None:
        log.write_bytes(b"".join(partition))
        parts += carve_log(FS, log, 1, None)
    return attribute(FS, [image, log], np.concatenate(parts), {} if partition is None else {1: "t-0"})


def offsets(logs: list[CarvedLog]) -> list[tuple[list[int], bool]]:
    """(first offsets of the batches, undecided) of each log."""
    return sorted((log.rows["first_offset"].tolist(), log.undecided) for log in logs)


def run(first: int, last: int, **of: int) -> list[bytes]:
    """Batches of two records from offset `first` up to `last`, exclusive."""
    return [batch(offset, 2, value=b"value %d" % offset, **of) for offset in range(first, last, 2)]


def test_a_run_that_begins_where_the_only_other_one_ends_goes_on_in_its_log(tmp_path: Path) -> None:
    assert offsets(attributed(tmp_path, run(6, 10), run(0, 6))) == [([0, 2, 4, 6, 8], False)]


def test_of_two_runs_that_could_go_on_neither_does_and_all_are_undecided(tmp_path: Path) -> None:
    rivals = [batch(6, 2, value=b"value a")], [batch(6, 2, value=b"value b")]
    assert offsets(attributed(tmp_path, run(0, 6), *rivals)) == [([0, 2, 4], True), ([6], True), ([6], True)]


def test_a_producers_sequence_decides_between_two_runs(tmp_path: Path) -> None:
    first = [idempotent(0, 7, 100, 2), idempotent(2, 7, 102, 2)]
    goes_on, other = [idempotent(4, 7, 104, 2), idempotent(6, 7, 106, 2)], [idempotent(4, 7, 904, 2)]
    assert offsets(attributed(tmp_path, other, goes_on, first)) == [([0, 2, 4, 6], False), ([4], False)]


def test_a_sequence_goes_on_from_the_largest_number_to_nought(tmp_path: Path) -> None:
    last = 2**31 - 2
    runs = [idempotent(0, 7, last, 2)], [idempotent(2, 7, 0, 2)], [idempotent(2, 7, last, 2)]
    assert offsets(attributed(tmp_path, *runs)) == [([0, 2], False), ([2], False)]


def test_a_leader_epoch_that_falls_is_another_logs(tmp_path: Path) -> None:
    assert offsets(attributed(tmp_path, run(0, 4, epoch=5), run(4, 8, epoch=4))) == [([0, 2], False), ([4, 6], False)]
    assert offsets(attributed(tmp_path, run(0, 4, epoch=4), run(4, 8, epoch=5))) == [([0, 2, 4, 6], False)]


def test_runs_of_another_codec_timestamp_type_and_producer_are_another_logs(tmp_path: Path) -> None:
    """However exactly their offsets go on."""
    lz4 = compressed_batches(Compression.LZ4)
    other = batch_v2(24, [NaiveRecord(0, 0, b"k", b"v")], attributes=8, producer=(7, 0, 0))
    assert offsets(attributed(tmp_path, lz4, [other])) == [(list(range(0, 24, 4)), False), ([24], False)]


def test_offsets_that_go_on_exactly_join_runs_of_another_look_where_no_other_run_could(tmp_path: Path) -> None:
    """A topic's codec and timestamp type may have been changed."""
    lz4 = compressed_batches(Compression.LZ4)
    other = batch_v2(24, [NaiveRecord(0, 0, b"k", b"v")], attributes=8)
    assert offsets(attributed(tmp_path, lz4, [other])) == [(list(range(0, 28, 4)), False)]


def test_copies_of_one_batch_join_the_runs_around_them(tmp_path: Path) -> None:
    """Two copies of one file, of which each lacks another part."""
    whole = run(0, 12)
    assert offsets(attributed(tmp_path, whole[:4], whole[3:])) == [([0, 2, 4, 6, 6, 8, 10], False)]


def test_copies_do_not_join_runs_that_contradict_each_other(tmp_path: Path) -> None:
    common = batch(4, 2, value=b"value 4")
    for strange in (batch(0, 4, value=b"value x"), batch(3, 1, value=b"value x")):
        first = int.from_bytes(strange[:8], "big")
        found = offsets(attributed(tmp_path, [*run(0, 4), common], [strange, common]))
        assert found == [([0, 2, 4], False), ([first, 4], False)]


def test_equal_markers_of_two_partitions_join_nothing(tmp_path: Path) -> None:
    """A transaction's markers are the same bytes in each of its partitions, where the offsets are equal."""
    end = marker(4, 7, commit=True)
    one, other = [idempotent(0, 7, 0, 2), end], [idempotent(2, 7, 2, 2), end]
    assert [first for first, _ in offsets(attributed(tmp_path, one, other))] == [[0, 4], [2, 4]]


def test_a_run_fills_the_hole_of_the_partition_that_it_is_like(tmp_path: Path) -> None:
    partition = [*run(0, 4), *run(8, 12)]
    (log,) = attributed(tmp_path, run(4, 8), partition=partition)
    assert (log.name, log.undecided, log.rows["first_offset"].tolist()) == ("t-0", False, [0, 2, 4, 6, 8, 10])


def test_a_run_that_overlaps_with_a_partition_at_either_end_is_another_logs(tmp_path: Path) -> None:
    partition = [*run(0, 4), *run(8, 12)]
    for strange in ([batch(3, 3, value=b"value z")], [batch(6, 3, value=b"value z")]):
        found = attributed(tmp_path, strange, partition=partition)
        assert sorted((log.name, len(log.rows)) for log in found) == [("", 1), ("t-0", 4)]


def test_of_two_runs_for_one_hole_none_goes_into_it(tmp_path: Path) -> None:
    partition = [*run(0, 4), *run(8, 12)]
    rivals = [batch(4, 4, value=b"value a")], [batch(4, 4, value=b"value b")]
    found = attributed(tmp_path, *rivals, partition=partition)
    assert sorted((log.name, len(log.rows), log.undecided) for log in found) == [
        ("", 1, True),
        ("", 1, True),
        ("t-0", 4, False),
    ]


def test_a_run_of_another_kind_is_a_rival_where_it_fits_nearly_as_well(tmp_path: Path) -> None:
    partition = [*run(0, 4), *run(8, 12)]
    rivals = [batch(4, 4, value=b"value a")], [batch(4, 4, value=b"value")]
    found = attributed(tmp_path, *rivals, partition=partition)
    assert sorted((log.name, log.undecided) for log in found) == [("", True), ("", True), ("t-0", False)]


def test_two_runs_of_a_kind_beside_each_other_in_one_hole_may_be_of_two_logs(tmp_path: Path) -> None:
    partition = [*run(0, 4), *run(20, 24)]
    found = attributed(tmp_path, run(6, 8), run(12, 14), partition=partition)
    assert sorted((log.name, log.undecided) for log in found) == [("", True), ("", True), ("t-0", False)]
    (log,) = attributed(tmp_path, run(6, 8), partition=partition)
    assert (log.name, len(log.rows)) == ("t-0", 5)


def parts(name: str, *cuts: int, step: int, until: int = 10**6) -> list[list[bytes]]:
    """Segments of a log of batches with `step` records, in time, `until` ms; the segments begin at `cuts`."""

    def one(offset: int) -> bytes:
        return batch(
            offset, step, timestamp=10**12 + until * offset // cuts[-1], value=f"value {name} {offset}".encode()
        )

    return [[one(offset) for offset in range(low, high, step)] for low, high in pairwise(cuts)]


def test_two_logs_of_a_kind_whose_parts_meet_come_out_as_two(tmp_path: Path) -> None:
    """Each part's end is the start of exactly one other part, so nothing between them is lost."""
    one = parts("a", 0, 70, 147, 210, 280, 357, 420, 490, 567, 630, step=7)
    other = parts("b", 22, 55, 110, 165, 231, 297, 352, 418, 495, step=11)
    found = attributed(tmp_path, *(part for pair in zip_longest(other, one, fillvalue=[]) for part in pair if part))
    assert offsets(found) == [(list(range(0, 630, 7)), False), (list(range(22, 495, 11)), False)]


def test_parts_that_meet_by_chance_where_others_are_lost_stay_apart(tmp_path: Path) -> None:
    """The second part of each log is lost, so that the first of one seems to go on in the third of the other."""
    one, other = parts("a", 0, 70, 140, 210, step=7), parts("b", 0, 40, 70, 200, step=10)
    found = attributed(tmp_path, one[0], one[2], other[0], other[2])
    assert len(found) == 4
    seemed = [log for log in found if 69 in log.rows["last_offset"] or 70 in log.rows["first_offset"]]
    assert [log.undecided for log in seemed] == [True, True]


def test_the_largest_log_comes_first(tmp_path: Path) -> None:
    large = [batch(0, 1, value=b"v" * 9000), batch(1, 1, value=b"v" * 9000)]
    small = run(0, 8)
    assert [len(log.rows) for log in attributed(tmp_path, small, large)] == [2, 4]
