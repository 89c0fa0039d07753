"""Dates and times of any year, as Java writes them."""

from __future__ import annotations

import pytest

from seglog_ask.values.java_times import iso_date, iso_moment, iso_time_of_day


@pytest.mark.parametrize(
    ("days", "text"),
    [
        (-1, "1969-12-31"),
        (2932896, "9999-12-31"),
        (2932897, "+10000-01-01"),
        (-719162, "0001-01-01"),
        (-719163, "0000-12-31"),
        (-719529, "-0001-12-31"),
        (2**31 - 1, "+5881580-07-11"),
        (-(2**31), "-5877641-06-23"),
    ],
)
def test_dates_of_every_year_are_written_as_java_writes_them(days: int, text: str) -> None:
    assert iso_date(days) == text


def test_moments_of_every_year_are_written_with_the_digits_they_need() -> None:
    assert iso_moment(2**63 - 1, 1000) == "+292278994-08-17T07:12:55.807"
    assert iso_moment(-(2**63), 1000) == "-292275055-05-16T16:47:04.192"
    assert iso_moment(-1, 10**9) == "1969-12-31T23:59:59.999999999" and iso_moment(5, 1) == "1970-01-01T00:00:05.000"
    assert [iso_time_of_day(number, 10**9) for number in (0, 1_000, 1, 86400 * 10**9)] == [
        "00:00:00.000",
        "00:00:00.000001",
        "00:00:00.000000001",
        "24:00:00.000",
    ]
