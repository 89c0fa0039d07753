"""Escapes names and data for terminals and line-oriented files, and writes JSON that every parser accepts.

Anybody may name a file or write a record. So four kinds of characters are always escaped: controls (C0, DEL and C1,
which move the cursor, recolour, retitle or end a line), line and paragraph separators, characters that change the
direction of writing (Unicode's Bidi_Control), and the surrogates that stand for bytes of a name that are not UTF-8.

Commands that an operator pastes into a shell are made here too (`command_line`).
"""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_UNSAFE = "\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
_IN_TEXT = re.compile(f"[\x00-\x1f{_UNSAFE}\ud800-\udfff]")
_IN_JSON = re.compile(f"[{_UNSAFE}]")  # JSON itself escapes C0
_SURROGATE = re.compile("[\ud800-\udfff]")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def escaped(text: str, keep: str = "") -> str:
    """Returns `text` in one line, with `\\n`, `\\x1b`, `\\u202e`, and `\\xff` for a byte of a name that is not UTF-8.

    The characters in `keep` stay. Backslashes are not doubled: the result is for reading, not for parsing.
    """
    return _IN_TEXT.sub(lambda found: found[0] if found[0] in keep else _escape(found[0]), text)


def command_line(*words: str | Path) -> str:
    """Returns a command that a shell takes apart into exactly these words; a path never reads as an option."""
    return " ".join(shell_path(word) if isinstance(word, Path) else _shell_word(word) for word in words)


def shell_path(path: Path) -> str:
    """Returns a path as one word of a shell's command line, with `./` in front if it begins with a hyphen."""
    text = str(path)
    return _shell_word(f"./{text}" if text.startswith("-") else text)


def _shell_word(word: str) -> str:
    """Quotes a word. Characters that a terminal must not get become escapes of bash (`$'…'`)."""
    if not _IN_TEXT.search(word):
        return shlex.quote(word)
    plain = word.replace("\\", "\\\\").replace("'", "\\'")
    return "$'" + _IN_TEXT.sub(lambda found: _byte_escapes(found[0]), plain) + "'"


def _byte_escapes(character: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in os.fsencode(character))


def json_text(record: Mapping[str, Any]) -> str:
    """Returns a JSON object in one line, without blanks; text beyond ASCII stays as it is if that is safe.

    A text with bytes that are not UTF-8 is escaped, and a field `NAME_b64` is added with its exact bytes; for a list,
    `NAME_b64` has those of every element. Figures that are not numbers (`nan` and `inf`) become null.
    """
    text = _json(record, lambda _figure: None)
    if _SURROGATE.search(text):
        text = json_value(_with_bytes(json.loads(text)))
    return text


def json_value(value: object) -> str:
    """Returns any value as JSON in one line, without blanks; surrogates stay. Floats that JSON lacks are texts, as in
    Protobuf's JSON: "NaN", "Infinity", "-Infinity".
    """
    return _json(value, _float_name)


def _json(value: object, lacking: Callable[[float], str | None]) -> str:
    try:
        text = _dumped(value)
    except ValueError:  # a float that JSON cannot represent
        text = _dumped(_finite(value, lacking))
    return safe_json(text)


def _float_name(value: float) -> str:
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def safe_json(text: str) -> str:
    """Returns JSON with the characters of its texts escaped that are not safe to show."""
    if text.isascii() and "\x7f" not in text:
        return text
    return _IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def plain_text(text: str) -> str:
    """Returns a JSON text; of a string its characters, with escapes for surrogates, which are none."""
    if not text.startswith('"'):
        return text
    return str(json.loads(text)).encode("utf-8", "backslashreplace").decode()


def _escape(character: str) -> str:
    code = ord(character)
    if character in _SHORT:
        return _SHORT[character]
    if 0xDC80 <= code <= 0xDCFF:  # how os.fsdecode keeps a byte
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}"


# Made once: `json.dumps` would make one for each call.
_dumped = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def _finite(value: object, lacking: Callable[[float], str | None]) -> object:
    if isinstance(value, dict):
        return {name: _finite(each, lacking) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each, lacking) for each in value]
    return lacking(value) if isinstance(value, float) and not abs(value) < float("inf") else value


def _with_bytes(value: Any) -> Any:
    if isinstance(value, str):
        return _readable(value)
    if isinstance(value, list):
        return [_with_bytes(each) for each in value]
    if not isinstance(value, dict):
        return value
    found: dict[str, Any] = {}
    for name, each in value.items():
        found[_readable(name)] = _with_bytes(each)
        exact = _exact_bytes(each)
        if exact is not None:
            found[f"{_readable(name)}_b64"] = exact
    return found


def _readable(text: str) -> str:
    return _SURROGATE.sub(lambda found: _escape(found[0]), text)


def _exact_bytes(value: Any) -> str | list[str] | None:
    """Returns the bytes, in base64, of a text or a list of texts that JSON cannot represent, else None."""
    texts = value if isinstance(value, list) else [value]
    if not all(isinstance(text, str) for text in texts) or not any(_SURROGATE.search(text) for text in texts):
        return None
    try:
        exact = [base64.b64encode(os.fsencode(text)).decode() for text in texts]
    except UnicodeEncodeError:  # a lone surrogate from JSON input, not from a name
        return None
    return exact if isinstance(value, list) else exact[0]
