"""README's pictures: they are those that the script makes, and load nothing from other machines."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support import pictures
from tests.support.command_line import ROOT

FOLDER = ROOT / "pictures"


def test_readme_shows_the_pictures_that_are_made() -> None:
    shown = re.findall(r"\(pictures/([^)]+)\)", (ROOT / "README.md").read_text())
    assert sorted(shown) == sorted([*(f"{name}.svg" for name in pictures.PICTURES), pictures.REPORT])
    assert all(path.stat().st_size < 150_000 for path in FOLDER.iterdir())
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted(shown)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.svg")), ids=lambda path: path.stem)
def test_a_picture_is_whole_and_asks_nobody(path: Path) -> None:
    text = path.read_text()
    assert ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
    assert re.findall(r"https?://[^\"<]+", text) == ["http://www.w3.org/2000/svg"]
    assert "url(http" not in text and "@import" not in text
    assert "--progress" not in text and "--now" not in text  # which only the script gives


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ls", "verify"])
def test_a_picture_shows_what_the_command_writes_today(name: str, tmp_path: Path) -> None:
    columns, line = pictures.PICTURES[name]
    made = pictures.picture(line, pictures.shown(line, columns, pictures.damaged_copy(tmp_path / "kafka")), columns)
    assert made == (FOLDER / f"{name}.svg").read_text(), "python -m tests.support.pictures makes them anew"
