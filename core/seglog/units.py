"""Sizes, durations, times and shares as people write them. Strict: what is not understood is a ValueError.

| what | accepted | meaning |
|---|---|---|
| size | `1048576`, `1GiB`, `1.5MiB`, `1GB` | bytes; KiB … PiB are powers of 1024, kB (KB) … PB powers of 1000 |
| duration | `86400000`, `7d12h`, `500ms`, `1.5h` | milliseconds; units w d h m s ms, each once, largest first |
| time | `2026-11-21T01:53:49Z`, `…+02:00`, `1795225929000` | epoch milliseconds; RFC 3339 needs its zone |
| share | `50%`, `0.5` | a fraction |
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal

_NUMBER = r"\d+(?:\.\d+)?"
_LONGEST_TEXT = 64

_SIZE_UNITS = {
    "B": 1,
    **{f"{letter}iB": 1024 ** (power + 1) for power, letter in enumerate("KMGTP")},
    **{f"{letter}B": 1000 ** (power + 1) for power, letter in enumerate("KMGTP")},
    "kB": 1000,
}
_SIZE = re.compile(rf"({_NUMBER}) ?({'|'.join(_SIZE_UNITS)})", re.ASCII)

_DURATION_UNITS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_DURATION = re.compile("".join(rf"(?:({_NUMBER}){unit})?" for unit in _DURATION_UNITS), re.ASCII)

_INTEGER = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_PERCENTAGE = re.compile(rf"({_NUMBER}) ?%", re.ASCII)
_FRACTION = re.compile(r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?", re.ASCII)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_integer(text: str) -> int:
    """A plain decimal integer of at most 19 digits."""
    if not _INTEGER.fullmatch(text):
        raise ValueError(f"{_quoted(text)} is not a whole number")
    return int(text)


def parse_size(text: str) -> int:
    """Bytes of `1048576`, `1GiB` or `1GB`; a plain number may be negative, as Kafka's -1."""
    if _INTEGER.fullmatch(text):
        return int(text)
    found = _SIZE.fullmatch(text) if len(text) <= _LONGEST_TEXT else None
    if found is None:
        raise ValueError(f"{_quoted(text)} is not a size: write bytes, or a number with KiB, MiB, GiB, kB, MB, GB …")
    return _whole(Decimal(found[1]) * _SIZE_UNITS[found[2]], text, "bytes")


def parse_duration(text: str, plain_unit_ms: int = 1) -> int:
    """Milliseconds of `7d12h` or `500ms`.

    A plain number counts units of `plain_unit_ms` milliseconds and may be negative, as Kafka's -1, which stays.
    """
    if _INTEGER.fullmatch(text):
        value = int(text)
        return value * plain_unit_ms if value > 0 else value
    found = _DURATION.fullmatch(text) if 0 < len(text) <= _LONGEST_TEXT else None
    if found is None:
        raise ValueError(
            f"{_quoted(text)} is not a duration: write milliseconds, or numbers with w, d, h, m, s, ms in this order"
        )
    parts = zip(found.groups(), _DURATION_UNITS.values(), strict=True)
    total = sum((Decimal(number) * unit for number, unit in parts if number), Decimal(0))
    return _whole(total, text, "milliseconds")


def parse_time(text: str) -> int:
    """Epoch milliseconds of an RFC 3339 time or of epoch milliseconds; finer digits are cut off."""
    if _INTEGER.fullmatch(text):
        return int(text)
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(
            f"{_quoted(text)} is not a time: write RFC 3339 with a zone (2026-11-21T01:53:49Z) or epoch milliseconds"
        )
    date, clock, fraction, zone = found.groups()
    try:
        moment = datetime.fromisoformat(f"{date}T{clock}{zone.upper().replace('Z', '+00:00')}")
    except ValueError as error:
        raise ValueError(f"{_quoted(text)} is not a time: {error}") from error
    return (moment - _EPOCH) // timedelta(milliseconds=1) + int((fraction or "0").ljust(3, "0")[:3])


def parse_share(text: str) -> float:
    """A fraction of `50%` or `0.5`; not limited to 1 here."""
    percentage = _PERCENTAGE.fullmatch(text)
    if percentage is not None:
        return float(Decimal(percentage[1]) / 100)
    if not _FRACTION.fullmatch(text):
        raise ValueError(f"{_quoted(text)} is not a share: write 0.5 or 50%")
    return float(text)


def format_size(size: int) -> str:
    """`parse_size` reads it back: the largest binary unit that divides the size, else plain bytes."""
    for unit in ("PiB", "TiB", "GiB", "MiB", "KiB"):
        if size >= _SIZE_UNITS[unit] and size % _SIZE_UNITS[unit] == 0:
            return f"{size // _SIZE_UNITS[unit]}{unit}"
    return str(size)


def format_duration(milliseconds: int) -> str:
    """`parse_duration` reads it back: `7d12h`, `500ms`, `0ms`; a negative number stays plain."""
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


def format_time(timestamp: int) -> str:
    """RFC 3339 in UTC with milliseconds; the plain number where the year has not four digits."""
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
