"""JSON by orjson is, character for character, that of Python's own library."""

from __future__ import annotations

import math
import random
import struct
from typing import Any

import pytest

from seglog.escaping import json_value
from seglog_ask.values.fast_json import json_writer

DEEP: Any = []
for _ in range(300):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    "value",
    [
        {},
        '\x00\x1f"\\\\/\x7f\x9b é\u2028\u202e😀',
        {"\x7f": ["1e5", 10**16, -(2**63), 2**64, 2**70, True, None]},
        "a lone \ud800 surrogate",
        [math.nan, math.inf, -math.inf, -0.0, 0.0, 1e16, 1e15, 123456789012345680.0, 1e-4, 1e-5, 5e-324, 1.5e300],
        DEEP,
    ],
)
def test_every_kind_of_value_has_the_same_text(value: Any) -> None:
    assert json_writer(None)(value) == json_value(value)


def test_every_float_has_the_same_text() -> None:
    draw = random.Random(3)
    anywhere, in_a_field = json_writer(None), json_writer(["f"])
    for _ in range(30_000):
        number = draw.choice(
            (
                draw.random() * 10.0 ** draw.randint(-12, 22),
                -draw.random(),
                float(draw.randint(-(10**18), 10**18)),
                struct.unpack("<d", draw.randbytes(8))[0],
                struct.unpack("<f", draw.randbytes(4))[0],
            )
        )
        assert anywhere([number]) == json_value([number])
        assert in_a_field({"f": number, "g": None}) == json_value({"f": number, "g": None})
    assert in_a_field({"f": None}) == '{"f":null}'
