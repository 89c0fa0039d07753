"""Sizes, durations, times and shares: what is read, what is refused, and that formatting reads back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglog.units import (
    count_is,
    count_text,
    format_duration,
    format_time,
    parse_duration,
    parse_integer,
    parse_part,
    parse_share,
    parse_size,
    parse_time,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("-1", -1),
        ("1048576", 1 << 20),
        ("1GiB", 1 << 30),
        ("1 GiB", 1 << 30),
        ("1GB", 10**9),
        ("1.5KiB", 1536),
        ("2kB", 2000),
        ("2KB", 2000),
        ("7B", 7),
        ("3PiB", 3 << 50),
        ("10G", 10 << 30),
        ("20k", 20 << 10),
        ("20K", 20 << 10),
        ("1.5m", 3 << 19),
    ],
)
def test_sizes_are_bytes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "GiB", "1X", "1gib", "1 000", "1_000", "-1GiB", "1e3", "0x10", "1.3B", "1GiBx", "\u0661GiB", "9" * 20]
)
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a (size|whole number)"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("0", 0),
        ("-1", -1),
        ("86400000", 86_400_000),
        ("500ms", 500),
        ("5m", 300_000),
        ("5m500ms", 300_500),
        ("7d12h", 648_000_000),
        ("1w1d1h1m1s1ms", 694_861_001),
        ("1.5h", 5_400_000),
        ("0.5s", 500),
        ("7days", 604_800_000),
        ("7 days", 604_800_000),
        ("1week 1day", 691_200_000),
        ("2hours30min", 9_000_000),
        ("90 seconds", 90_000),
    ],
)
def test_durations_are_milliseconds(text: str, milliseconds: int) -> None:
    assert parse_duration(text) == milliseconds


@pytest.mark.parametrize(
    "text", ["", "h", "12h7d", "1h1h", "5 m ", "5  m", " 5m", "1M", "7dayss", "-1h", "0.5ms", "1y", "1d12"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a (duration|whole number)"):
        parse_duration(text)


def test_plain_numbers_count_the_unit_of_their_key_and_minus_one_stays() -> None:
    assert parse_duration("168", 3_600_000) == 604_800_000
    assert parse_duration("-1", 3_600_000) == -1
    assert parse_duration("7d", 3_600_000) == 604_800_000


@pytest.mark.parametrize(
    ("text", "timestamp"),
    [
        ("0", 0),
        ("1795225929000", 1_795_225_929_000),
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:00.0019999Z", 1),
        ("1970-01-01T00:00:00.5+00:00", 500),
        ("1970-01-01t02:00:00+02:00", 0),
        ("1969-12-31T23:59:59.999Z", -1),
        ("1970-01-01T00:01", 60_000),
        ("1970-01-01 00:01:01", 61_000),
        ("1970-01-01T02:01+02:00", 60_000),
        ("1970-01-02", 86_400_000),
    ],
)
def test_times_are_epoch_milliseconds(text: str, timestamp: int) -> None:
    assert parse_time(text) == timestamp


@pytest.mark.parametrize(
    "text",
    ["", "now", "-1h", "2026-11", "2026-02-30T00:00:00Z", "2026-11-21T25:00:00Z", "1970-01-01T00Z", "2026-11-21Z"],
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        parse_time(text)


@pytest.mark.parametrize(
    ("text", "timestamp"),
    [("now", 10_000_000), ("-1h", 6_400_000), ("now-1h", 6_400_000), ("now+5s", 10_005_000), ("-1 hour", 6_400_000)],
)
def test_a_time_may_be_relative_to_a_moment(text: str, timestamp: int) -> None:
    assert parse_time(text, lambda: 10_000_000) == timestamp


@pytest.mark.parametrize("text", ["now-", "now1h", "now--1h", "--1h", "now-1x", "- 1h", "-now"])
def test_what_is_no_relative_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a (time|duration)"):
        parse_time(text, lambda: 0)


def test_epoch_seconds_are_refused_with_what_to_write() -> None:
    with pytest.raises(ValueError, match=r"write 1795219410000, in milliseconds, or 2026-11-21T00:03:30\.000Z"):
        parse_time("1795219410")
    assert parse_time("999999999") == 999_999_999


@pytest.mark.parametrize("text", ["0", "0%", "500%", "1.01", "x"])
def test_a_part_is_more_than_nothing_and_at_most_everything(text: str) -> None:
    assert parse_part("100%") == 1
    with pytest.raises(ValueError, match=r"is not (above 0% and at most 100%|a share)"):
        parse_part(text)


def test_shares_are_fractions() -> None:
    assert [parse_share(text) for text in ("50%", "0.5", "12.5 %", "1", ".25", "1e-1")] == [
        0.5,
        0.5,
        0.125,
        1,
        0.25,
        0.1,
    ]


@pytest.mark.parametrize("text", ["", "%", "half", "-1", "1,5", "nan", "inf"])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a share"):
        parse_share(text)


def test_an_integer_is_decimal_digits_and_a_sign() -> None:
    assert parse_integer("+7") == 7
    for text in ("7.0", "0x7", "", "seven"):
        with pytest.raises(ValueError, match="is not a whole number"):
            parse_integer(text)


def test_long_nonsense_is_not_repeated_in_full() -> None:
    with pytest.raises(ValueError) as refused:
        parse_size("x" * 100_000)
    assert len(str(refused.value)) < 300


def test_a_duration_is_written_short_and_a_time_in_utc() -> None:
    assert [format_duration(value) for value in (-1, 0, 500, 648_000_000)] == ["-1", "0ms", "500ms", "7d12h"]
    assert format_time(1_795_225_929_123) == "2026-11-21T01:52:09.123Z"
    assert format_time(-1) == "1969-12-31T23:59:59.999Z"
    assert format_time(2**63 - 1) == str(2**63 - 1)


@given(st.integers(-1, 2**63 - 1))
def test_what_is_formatted_reads_back(value: int) -> None:
    assert parse_duration(format_duration(value)) == value


@given(st.integers(-62_135_596_800_000, 253_402_300_799_999) | st.integers(-(2**63), 2**63 - 1))
def test_a_formatted_time_reads_back(timestamp: int) -> None:
    assert parse_time(format_time(timestamp)) == timestamp


@given(st.text(max_size=80))
def test_any_text_is_a_value_or_a_sentence(text: str) -> None:
    for parse in (parse_size, parse_duration, parse_time, parse_share, parse_integer):
        try:
            parse(text)
        except ValueError as refused:
            assert " is not a" in str(refused)


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (0, "segment", "0 segments"),
        (1, "batch", "1 batch"),
        (2, "batch", "2 batches"),
        (3, "index pass", "3 index passes"),
    ],
)
def test_a_number_of_things_agrees_with_their_name(count: int, noun: str, text: str) -> None:
    assert count_text(count, noun) == text
    assert count_text(12345, noun, ",").startswith("12,345 ")


def test_a_verb_agrees_with_the_number() -> None:
    assert [count_is(number, "batch") for number in (0, 1, 2)] == ["0 batches are", "1 batch is", "2 batches are"]
