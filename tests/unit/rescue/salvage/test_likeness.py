"""What two runs of batches have in common, and how much each thing counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from seglog_rescue.salvage.carve import carve_log
from seglog_rescue.salvage.likeness import Look, Traits, likeness, traits_of
from tests.support.log_files import FS, batch, marker, messages, transactional, write_log
from tests.support.naive import NaiveRecord, batch_v2

LOOK = Look(10, 0.0, 0.0, 15.0, 100.0, b"k", b"v")
PLAIN = Traits(frozenset({2}), frozenset({0}), frozenset({0}), frozenset(), True, (3, 3), (1000, 2000), LOOK)
EVERYTHING_ALIKE = 1 + 1 + 1 + 2 * 0.5 + 2 * 1  # codec, time, epoch, sizes, prefixes


def traits(tmp_path: Path, *batches: bytes) -> Traits:
    path = write_log(tmp_path, list(batches))
    return traits_of(FS, [path], np.concatenate(list(carve_log(FS, path, 0, None))))


def against(**other: object) -> float:
    """What it counts where the other run differs in this alone."""
    return likeness(PLAIN, replace(PLAIN, **other)) - EVERYTHING_ALIKE  # type: ignore[arg-type]


def looks(**other: object) -> float:
    return against(look=replace(LOOK, **other))  # type: ignore[arg-type]


def test_runs_that_are_alike_in_everything() -> None:
    assert likeness(PLAIN, PLAIN) == EVERYTHING_ALIKE


@pytest.mark.parametrize(
    ("other", "worth"),
    [
        ({"codecs": frozenset({3})}, -5),
        ({"codecs": frozenset({0, 3})}, 0),
        ({"codecs": frozenset()}, -1),  # markers alone: nothing is known
        ({"magics": frozenset({1})}, -2),
        ({"timestamp_types": frozenset({8})}, -4),
        ({"timestamp_types": frozenset()}, 0),
        ({"epochs": (4, 9)}, -1),
        ({"epochs": (3, 9)}, 0),
        ({"epochs": (0, 3)}, 0),
        ({"times": (62_000, 62_000)}, 0),
        ({"times": (62_001, 62_001)}, -1),
        ({"times": (-1, -1)}, -1),
        ({"producers": frozenset({7}), "without_producer": False}, -2),
        ({"look": None}, -3),
    ],
    ids=str,
)
def test_what_one_difference_costs(other: dict[str, object], worth: float) -> None:
    assert against(**other) == worth
    assert likeness(replace(PLAIN, **other), PLAIN) - EVERYTHING_ALIKE == worth  # type: ignore[arg-type]


def test_a_long_run_is_near_to_times_no_farther_than_its_duration() -> None:
    long = replace(PLAIN, times=(0, 500_000))
    near, far = (replace(PLAIN, times=(time, time)) for time in (1_000_000, 1_000_001))
    assert likeness(long, near) == likeness(near, long) == EVERYTHING_ALIKE
    assert likeness(long, far) == likeness(far, long) == EVERYTHING_ALIKE - 1


def test_producers_that_both_have_count_most() -> None:
    one, same, other = (
        replace(PLAIN, producers=frozenset(each), without_producer=False) for each in ({7}, {7, 8}, {9})
    )
    assert likeness(one, same) == EVERYTHING_ALIKE + 4
    assert likeness(one, other) == EVERYTHING_ALIKE - 1


@pytest.mark.parametrize(
    ("other", "worth"),
    [
        ({"null_keys": 0.5}, 0),
        ({"null_keys": 0.6}, -3),
        ({"headers": 0.6}, -3),
        ({"key_size": 17.0}, 0),  # a fifth of a doubling
        ({"key_size": 21.0}, -0.5),
        ({"key_size": 44.0}, -0.5),
        ({"key_size": 45.0}, -2.5),  # one doubling and a half
        ({"value_size": 500.0}, -2.5),
        ({"key_prefix": b"x"}, -4),
        ({"key_prefix": b""}, -1),
        ({"value_prefix": b"x"}, -4),
    ],
    ids=str,
)
def test_what_another_look_costs(other: dict[str, object], worth: float) -> None:
    assert looks(**other) == pytest.approx(worth)


# --- traits


def test_the_traits_of_batches(tmp_path: Path) -> None:
    found = traits(
        tmp_path,
        batch(0, 2, timestamp=5000, epoch=2),
        transactional(2, 7, 0, timestamp=9000),
        marker(3, 7, commit=True),
    )
    assert (found.magics, found.codecs, found.timestamp_types) == ({2}, {0}, {0})
    assert (found.producers, found.without_producer) == ({7}, True)
    assert (found.epochs, found.times) == ((0, 2), (1000, 9000))


def test_of_markers_alone_neither_codec_nor_look_is_known(tmp_path: Path) -> None:
    found = traits(tmp_path, marker(0, 7, commit=True), marker(1, 7, commit=False))
    assert (found.codecs, found.look, found.without_producer) == (frozenset(), None, False)


def test_messages_without_a_time_have_none_and_no_timestamp_type(tmp_path: Path) -> None:
    found = traits(tmp_path, *messages(0))
    assert (found.times, found.timestamp_types, found.magics) == ((-1, -1), frozenset(), {0})


def test_a_look_has_shares_means_and_first_bytes_that_most_have(tmp_path: Path) -> None:
    values = [b"vv12", b"vv3456", b"vv", None]
    keys = [b"ab1", None, None, b"xy2"]
    rows = [
        NaiveRecord(i, 0, key, value, ((b"h", b"1"),) if i == 0 else ())
        for i, (key, value) in enumerate(zip(keys, values, strict=True))
    ]
    look = traits(tmp_path, batch_v2(0, rows)).look
    assert look == Look(4, 0.5, 0.25, 3.0, 4.0, b"", b"vv")


def test_a_prefix_is_one_where_more_than_four_fifths_have_it(tmp_path: Path) -> None:
    for strange, prefix in ((2, b""), (1, b"va")):
        values = [b"strange" if i < strange else b"value" for i in range(10)]
        rows = [NaiveRecord(i, 0, b"k", value) for i, value in enumerate(values)]
        look = traits(tmp_path, batch_v2(0, rows)).look
        assert look is not None and look.value_prefix == prefix


def test_joined_traits_have_what_either_has() -> None:
    other = Traits(frozenset({1}), frozenset({3}), frozenset({8}), frozenset({7}), False, (1, 2), (-1, -1), None)
    both = Traits(
        frozenset({1, 2}), frozenset({0, 3}), frozenset({0, 8}), frozenset({7}), True, (1, 3), (1000, 2000), LOOK
    )
    assert PLAIN.joined(other) == both and other.joined(PLAIN) == both


def test_the_look_of_more_records_counts() -> None:
    more = replace(LOOK, records=11, key_prefix=b"m")
    assert PLAIN.joined(replace(PLAIN, look=more)).look == more
    assert replace(PLAIN, look=more).joined(PLAIN).look == more
    assert PLAIN.joined(replace(PLAIN, look=replace(LOOK, key_prefix=b"m"))).look == LOOK


def test_a_kind_is_what_offsets_producers_and_time_leave() -> None:
    other = replace(PLAIN, epochs=(9, 9), times=(5, 6), look=replace(LOOK, records=99, headers=1.0))
    assert other.kind == PLAIN.kind
    for look in ({"key_prefix": b"x"}, {"value_size": 300.0}, {"null_keys": 0.6}):
        assert replace(PLAIN, look=replace(LOOK, **look)).kind != PLAIN.kind  # type: ignore[arg-type]
    assert replace(PLAIN, producers=frozenset({7})).kind != PLAIN.kind
