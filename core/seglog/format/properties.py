"""Java's `.properties` format as used by Kafka's files: comments, continued lines, escapes.

Java: java.util.Properties.load and store. The bytes are ISO 8859-1; other characters are written as `\\uXXXX`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_BLANK = " \t\f"
NATURAL_LINES = re.compile(r"\r\n|\r|\n")
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_UNESCAPES = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}
_UNICODE = re.compile(r"[0-9a-fA-F]{4}")


def parse_properties(data: bytes) -> dict[str, str]:
    """Returns keys and values; of a key given twice, the last value counts. Raises `ValueError` for a bad `\\u`."""
    return dict(_key_and_value(line) for line in _logical_lines(data.decode("latin-1")))


def format_properties(properties: Mapping[str, str], comments: tuple[str, ...]) -> bytes:
    """Returns one line per comment (given without its `#`), then one per key, in the mapping's order."""
    lines = [f"#{comment}" for comment in comments]
    for key, value in properties.items():
        lines.append(f"{_escaped(key, every_blank=True)}={_escaped(value, every_blank=False)}")
    return "".join(line + "\n" for line in lines).encode("latin-1")


def _logical_lines(text: str) -> Iterator[str]:
    continued: str | None = None
    for line in NATURAL_LINES.split(text):
        line = line.lstrip(_BLANK)
        if continued is None and (not line or line[0] in "#!"):
            continue
        line = line if continued is None else continued + line
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            continued = line[:-1]
        else:
            continued = None
            yield line
    if continued:
        yield continued


def _key_and_value(line: str) -> tuple[str, str]:
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANK:
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(_BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANK)
    return _unescaped(line[:end]), _unescaped(rest)


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    i = 0
    while i < len(text):
        if text[i] != "\\":
            parts.append(text[i])
            i += 1
        elif text[i + 1 : i + 2] == "u":
            digits = _UNICODE.fullmatch(text[i + 2 : i + 6])
            if digits is None:
                raise ValueError("a \\u escape without four hexadecimal digits")
            parts.append(chr(int(digits[0], 16)))
            i += 6
        else:
            parts.append(_ESCAPES.get(text[i + 1 : i + 2], text[i + 1 : i + 2]))
            i += 2
    # Characters beyond the basic plane are two escapes; a half without its partner becomes U+FFFD.
    return "".join(parts).encode("utf-16-be", "surrogatepass").decode("utf-16-be", "replace")


def _escaped(text: str, *, every_blank: bool) -> str:
    parts = []
    for i, character in enumerate(text):
        if character == " ":
            parts.append("\\ " if every_blank or i == 0 else " ")
        elif character in _UNESCAPES:
            parts.append(_UNESCAPES[character])
        elif character in "\\=:#!":
            parts.append("\\" + character)
        elif " " < character <= "~":
            parts.append(character)
        else:
            units = character.encode("utf-16-be", "surrogatepass").hex().upper()
            parts += ["\\u" + units[j : j + 4] for j in range(0, len(units), 4)]
    return "".join(parts)
