"""Dates and times of any year, as Java writes them."""

from __future__ import annotations

from datetime import date

_EPOCH_DAY, _LAST_DAY = date(1970, 1, 1).toordinal(), date.max.toordinal()
_CYCLE_DAYS = 146_097  # of 400 years


def iso_date(days: int) -> str:
    """Returns the date so many days after 1970-01-01, of any year: `1969-12-31`, `+10000-01-01`, `-0001-12-31`.

    Years of more than four digits have a sign, and the year before 1 is 0, as in Java's `LocalDate`.
    """
    ordinal = days + _EPOCH_DAY
    if 0 < ordinal <= _LAST_DAY:
        return date.fromordinal(ordinal).isoformat()
    cycles = (_LAST_DAY // 2 - ordinal) // _CYCLE_DAYS  # of 400 years, after which the calendar repeats
    moved = date.fromordinal(ordinal + cycles * _CYCLE_DAYS)
    year = moved.year - cycles * 400
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04}-{moved:%m-%d}"


def iso_time_of_day(number: int, a_second: int) -> str:
    """Returns a time of day in units of which `a_second` has so many: `23:59:59.007`, and `24:00:00.000` at its end.

    It has 3 digits below seconds, and 6 or 9 where the others are not zeros: engines do not keep a column's unit.
    """
    seconds, fraction = divmod(number, a_second)
    digits = f"{fraction:0{len(str(a_second)) - 1}}" if a_second > 1 else "000"
    while len(digits) > 3 and digits.endswith("000"):
        digits = digits[:-3]
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{digits}"


def iso_moment(number: int, a_second: int) -> str:
    """Returns the date and time of day so many units after 1970 began, without a zone; units as in `iso_time_of_day`,
    years as in `iso_date`.
    """
    days, rest = divmod(number, 86400 * a_second)
    return f"{iso_date(days)}T{iso_time_of_day(rest, a_second)}"
