"""JSON texts of decoded values, by orjson (extra `schemas`): those that `escaping.json_value` makes, several times
faster.

Where orjson writes something else, or refuses a value, `json_value` writes it: numbers with an exponent, and small ones
that it writes without, NaN and infinity (for orjson, null), integers beyond 64 bits, texts that are not UTF-8, and what
nests deeply.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from seglog.escaping import json_value, safe_json

_EXPONENT = re.compile(rb"e(?<=\de)")  # looks for the letter first, which is three times as fast


def json_writer(floats: Sequence[str] | None) -> Callable[[Any], str]:
    """Returns a function that does what `json_value` does, for values whose floats are in these fields, or null there;
    None: they may be anywhere.
    """

    def write(value: Any) -> str:
        try:
            data = orjson.dumps(value)
        except orjson.JSONEncodeError:
            return json_value(value)
        if floats is None:
            if _EXPONENT.search(data) or b"0.0000" in data or b"null" in data:
                return json_value(value)
        else:
            for name in floats:
                number = value[name]
                if number and not 1e-4 <= abs(number) < 1e16:  # Python writes others with an exponent, or not at all
                    return json_value(value)
        return safe_json(data.decode())

    return write
