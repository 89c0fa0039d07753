"""Sentences say what a thing is not as a native reader expects it: "is not a file", never "is no file"."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.tidy.sources import COMMAND_LINE, ENGINE

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [
    *ROOT.glob("*.md"),
    *ROOT.glob("core/*.md"),
    *ROOT.glob("changelog.d/*.md"),
    *ENGINE,
    *COMMAND_LINE,
]
_COMPARED = "longer|more|larger|older|later|quicker|less|better"
_STUMBLE = re.compile(rf"(?<!here )\b(?:is|are|was|were) (?:no|none of) (?!{_COMPARED})[a-z{{]")


def stumbles(text: str) -> list[str]:
    """The places in a text where something is said to be no other thing."""
    return [text[max(0, found.start() - 30) : found.end() + 20] for found in _STUMBLE.finditer(text)]


def test_nothing_is_said_to_be_no_other_thing() -> None:
    said = {str(path.relative_to(ROOT)): stumbles(path.read_text()) for path in SOURCES}
    assert len(said) > 500
    assert {name: places for name, places in said.items() if places} == {}


@pytest.mark.parametrize(
    ("text", "count"),
    [("x is no file", 1), ("they are none of ours", 1), ("there is no file", 0), ("it is no longer there", 0)],
)
def test_such_a_sentence_is_seen(text: str, count: int) -> None:
    assert len(stumbles(text)) == count
