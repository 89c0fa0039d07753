"""What changed is told in a file for each change, in the form that `towncrier build` gathers."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "changelog.d"
TOWNCRIER = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]
KINDS = [kind["directory"] for kind in TOWNCRIER["type"]]
NAME = re.compile(rf"(\+[a-z0-9]+(-[a-z0-9]+)*|[1-9][0-9]*)\.({'|'.join(KINDS)})(\.[1-9][0-9]*)?\.md")


def faults(name: str, data: bytes) -> list[str]:
    """What is wrong with a fragment of this name and these bytes."""
    text = data.decode("utf-8", "replace")
    rules = {
        f"its name must be +WORDS.KIND.md or ISSUE.KIND.md, with a KIND of {', '.join(KINDS)}": NAME.fullmatch(name),
        "it must be UTF-8": data == text.encode(),
        "it must be one paragraph, without a heading or a bullet": re.fullmatch(r"[^\s#*-](.|\n(?!\n))*\n", text),
        "it must end with a full stop": text.endswith(".\n"),
    }
    return [rule for rule, holds in rules.items() if not holds]


def test_every_fragment_is_well_formed() -> None:
    fragments = {path.name: faults(path.name, path.read_bytes()) for path in FOLDER.iterdir()}
    assert {name: broken for name, broken in fragments.items() if broken} == {}


@pytest.mark.parametrize(
    ("name", "data", "rule"),
    [
        ("doctor.fixed.md", b"It helps.\n", "its name must be"),
        ("+doctor.mended.md", b"It helps.\n", "a KIND of security, added"),
        ("+doctor.fixed.txt", b"It helps.\n", "its name must be"),
        ("+doctor.fixed.md", b"", "one paragraph"),
        ("+doctor.fixed.md", b"- It helps.\n", "one paragraph"),
        ("+doctor.fixed.md", b"It helps.\n\nSo it does.\n", "one paragraph"),
        ("+doctor.fixed.md", b"It helps\n", "full stop"),
        ("+doctor.fixed.md", b"\xff helps.\n", "UTF-8"),
    ],
)
def test_a_fragment_that_is_not_well_formed_is_told_why(name: str, data: bytes, rule: str) -> None:
    assert rule in "; ".join(faults(name, data))


@pytest.mark.parametrize("name", ["+doctor-helps.fixed.md", "42.added.md", "42.added.2.md"])
def test_names_of_fragments(name: str) -> None:
    assert faults(name, b"It helps a little,\nand more.\n") == []
