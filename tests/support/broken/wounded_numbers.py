"""States of `wounded_states` with odd numbers: offsets in checkpoints, positions in an index."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from tests.support.broken.wounded_starts import LOGS, PARTITION, State, filled, wounded

NUMBERS = {
    "offset 400": "400",
    "offset -1": "-1",
    "offset 2^63-1": str(2**63 - 1),
    "offset 2^63": str(2**63),
    "an offset with a sign": "+790",
    "an offset in digits of another script": "".join(
        chr(ord("\N{ARABIC-INDIC DIGIT ZERO}") + int(digit)) for digit in "790"
    ),
}


def of_numbers() -> Iterator[State]:
    """Yields the states."""
    last_index = f"{PARTITION}/{750:020d}.index"
    yield wounded("clean", LOGS, last_index, "an entry at a negative position", filled(struct.pack(">ii", 5, -100)))
    for wound, number in NUMBERS.items():
        for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint"):
            text = f"0\n1\norders-none 0 {number}\n"
            yield wounded("unclean", LOGS, name, wound, filled(text.encode()))
