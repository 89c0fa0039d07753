"""Parses and formats sizes, durations, times and shares as people write them. Anything else raises a ValueError.

| what | accepted | meaning |
|---|---|---|
| size | `1048576`, `1GiB`, `10G`, `1.5MiB`, `1GB` | bytes; K and KiB … PiB are 1024s, kB (KB) … PB 1000s |
| duration | `86400000`, `7d12h`, `7days`, `500ms`, `1.5h` | milliseconds; w d h m s ms, each once, largest first |
| time | `2026-11-21T01:53:49Z`, `…+02:00`, `2026-11-21T01:53` | epoch milliseconds; UTC if no zone is given |
| time | `1795225929000` | epoch milliseconds; a number that can only be seconds is refused |
| time | `now`, `-1h`, `now-1h`, `now+5m` | relative to the caller's present time |
| share | `50%`, `0.5` | a fraction |
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal

_NUMBER = r"\d+(?:\.\d+)?"
_LONGEST_TEXT = 64

# A single letter is binary, as in dd, split, -Xmx and all tools that accept `10G`.
_SIZE_UNITS = {
    "B": 1,
    **{letter: 1024 ** (power + 1) for power, letter in enumerate("KMGTP")},
    **{letter: 1024 ** (power + 1) for power, letter in enumerate("kmgtp")},
    **{f"{letter}iB": 1024 ** (power + 1) for power, letter in enumerate("KMGTP")},
    **{f"{letter}B": 1000 ** (power + 1) for power, letter in enumerate("KMGTP")},
    "kB": 1000,
}
_SIZE = re.compile(rf"({_NUMBER}) ?({'|'.join(_SIZE_UNITS)})", re.ASCII)

_DURATION_UNITS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_SPELLINGS = {
    "w": "w|weeks?",
    "d": "d|days?",
    "h": "h|hrs?|hours?",
    "m": "m|min|mins|minutes?",
    "s": "s|sec|secs|seconds?",
    "ms": "ms|millis|milliseconds?",
}
_PARTS = "".join(rf"(?:({_NUMBER}) ?(?:{_SPELLINGS[unit]}) ?)?" for unit in _DURATION_UNITS)
_DURATION = re.compile(rf"(?=\d){_PARTS}(?<! )", re.ASCII)

_INTEGER = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_ZONE = r"([Zz]|[+-]\d\d:\d\d)?"
_TIME = re.compile(rf"(\d{{4}}-\d\d-\d\d)(?:[Tt ](\d\d:\d\d)(?:(:\d\d)(?:\.(\d{{1,9}}))?)?{_ZONE})?", re.ASCII)
_RELATIVE = re.compile(r"(?:now)?([+-])(\D*\d.*)", re.ASCII)
# As seconds, these are the years 2001 to 2286; as milliseconds, a few weeks of 1970, from which there are no logs.
_SECONDS = range(10**9, 10**10)
_PERCENTAGE = re.compile(rf"({_NUMBER}) ?%", re.ASCII)
_FRACTION = re.compile(r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?", re.ASCII)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_integer(text: str) -> int:
    """Parses a plain decimal integer of at most 19 digits."""
    if not _INTEGER.fullmatch(text):
        raise ValueError(f"{_quoted(text)} is not a whole number")
    return int(text)


def parse_size(text: str) -> int:
    """Returns the bytes of `1048576`, `1GiB` or `1GB`; a plain number may be negative, like Kafka's -1."""
    if _INTEGER.fullmatch(text):
        return int(text)
    found = _SIZE.fullmatch(text) if len(text) <= _LONGEST_TEXT else None
    if found is None:
        raise ValueError(
            f"{_quoted(text)} is not a size: write bytes, or a number with K, M, G, KiB, MiB, GiB, kB, MB, GB …"
        )
    return _whole(Decimal(found[1]) * _SIZE_UNITS[found[2]], text, "bytes")


def parse_duration(text: str, plain_unit_ms: int = 1) -> int:
    """Returns the milliseconds of `7d12h` or `500ms`.

    A plain number counts units of `plain_unit_ms` milliseconds. A negative one, like Kafka's -1, is returned unchanged.
    """
    if _INTEGER.fullmatch(text):
        value = int(text)
        return value * plain_unit_ms if value > 0 else value
    found = _DURATION.fullmatch(text) if len(text) <= _LONGEST_TEXT else None
    if found is None:
        raise ValueError(
            f"{_quoted(text)} is not a duration: write milliseconds, or numbers with w, d, h, m, s, ms in this order"
        )
    parts = zip(found.groups(), _DURATION_UNITS.values(), strict=True)
    total = sum((Decimal(number) * unit for number, unit in parts if number), Decimal(0))
    return _whole(total, text, "milliseconds")


def parse_time(text: str, now: Callable[[], int] | None = None) -> int:
    """Returns the epoch milliseconds of an RFC 3339 time or of a plain number of milliseconds.

    Time of day, seconds and zone may be missing; digits below milliseconds are dropped. `now` returns the epoch
    milliseconds from which `-1h` counts; without it, relative times are refused.
    """
    if now is not None and text == "now":
        return now()
    relative = _RELATIVE.fullmatch(text) if now is not None and not _INTEGER.fullmatch(text) else None
    if relative is not None and now is not None:
        distance = parse_duration(relative[2])
        return now() + (distance if relative[1] == "+" else -distance)
    if _INTEGER.fullmatch(text):
        return _epoch_milliseconds(text)
    found = _TIME.fullmatch(text)
    if found is None:
        hint = ", -1h" if now is not None else ""
        raise ValueError(
            f"{_quoted(text)} is not a time: write 2026-11-21T01:53:49Z (UTC if no zone is given),"
            f" epoch milliseconds{hint}"
        )
    date, clock, seconds, fraction, zone = found.groups()
    zone = (zone or "Z").upper().replace("Z", "+00:00")
    try:
        moment = datetime.fromisoformat(f"{date}T{clock or '00:00'}{seconds or ':00'}{zone}")
    except ValueError as error:
        raise ValueError(f"{_quoted(text)} is not a time: {error}") from error
    return (moment - _EPOCH) // timedelta(milliseconds=1) + int((fraction or "0").ljust(3, "0")[:3])


def _epoch_milliseconds(text: str) -> int:
    value = int(text)
    if value in _SECONDS:
        raise ValueError(
            f"{text} is epoch seconds: write {value * 1000}, in milliseconds, or {format_time(value * 1000)}"
        )
    return value


def parse_share(text: str) -> float:
    """Returns the fraction of `50%` or `0.5`, which may exceed 1."""
    percentage = _PERCENTAGE.fullmatch(text)
    if percentage is not None:
        return float(Decimal(percentage[1]) / 100)
    if not _FRACTION.fullmatch(text):
        raise ValueError(f"{_quoted(text)} is not a share: write 0.5 or 50%")
    return float(text)


def parse_part(text: str) -> float:
    """Returns a fraction above 0 and at most 1."""
    share = parse_share(text)
    if not 0 < share <= 1:
        raise ValueError(f"{_quoted(text)} is not above 0% and at most 100%")
    return share


def count_text(count: int, noun: str, form: str = "") -> str:
    """Returns a count with its noun: `1 segment`, `2 batches`; `form` formats the number."""
    ending = "" if count == 1 else "es" if noun.endswith(("ch", "s")) else "s"
    return f"{count:{form}} {noun}{ending}"


def count_is(count: int, noun: str) -> str:
    """Returns a count with its noun and verb: `1 byte is`, `2 bytes are`."""
    return f"{count_text(count, noun)} {'is' if count == 1 else 'are'}"


def format_duration(milliseconds: int) -> str:
    """Returns text for `parse_duration`: `7d12h`, `500ms`, `0ms`, or the plain number if it is negative."""
    if milliseconds < 0:
        return str(milliseconds)
    parts = []
    rest = milliseconds
    for unit, length in _DURATION_UNITS.items():
        if unit != "w":
            count, rest = divmod(rest, length)
            if count:
                parts.append(f"{count}{unit}")
    text = "".join(parts) or "0ms"
    return text if len(text) <= _LONGEST_TEXT else str(milliseconds)


def rough_duration(milliseconds: int) -> str:
    """Returns a duration for people: its largest unit and the next smaller one (`1132d20h`, `5m12s`, `312ms`)."""
    units = [(unit, length) for unit, length in _DURATION_UNITS.items() if unit != "w"]
    for number, (unit, length) in enumerate(units):
        if milliseconds >= length:
            rest = milliseconds % length
            below, smaller = units[number + 1] if number + 1 < len(units) else ("", 1)
            part = f"{rest // smaller}{below}" if below and unit != "s" and rest >= smaller else ""
            return f"{milliseconds // length}{unit}{part}"
    return f"{milliseconds}ms"


def format_time(timestamp: int) -> str:
    """Returns RFC 3339 in UTC with milliseconds, or the plain number if the year does not have four digits."""
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp)
    except OverflowError:
        return str(timestamp)
    return f"{moment:%Y-%m-%dT%H:%M:%S}".zfill(19) + f".{timestamp % 1000:03d}Z"


def _whole(value: Decimal, text: str, unit: str) -> int:
    if value != int(value):
        raise ValueError(f"{_quoted(text)} is not a whole number of {unit}")
    return int(value)


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + "…")
