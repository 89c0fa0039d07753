"""Findings have the form that `findings/README.md` gives. They are run by hand: they install packages."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "findings"
SCRIPTS = sorted(FOLDER.glob("*.sh"))


def test_the_readme_has_a_line_for_each_finding() -> None:
    assert len(SCRIPTS) >= 16
    listed = re.findall(r"^\| \[([a-z0-9-]+)\]\(\1\.sh\) \| .+ \|$", (FOLDER / "README.md").read_text(), re.MULTILINE)
    assert listed == [path.stem for path in SCRIPTS]
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted(["README.md", *(path.name for path in SCRIPTS)])


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_finding_pins_versions_works_aside_and_says_what_was_seen(path: Path) -> None:
    text = path.read_text()
    assert os.access(path, os.X_OK) and text.startswith("#!/usr/bin/env bash\n# ")
    assert "\nset -euo pipefail\n" in text and '\nwork="$(mktemp -d)"\ntrap ' in text
    assert "\n# Expected: " in text and "\n# Seen: " in text
    installed = re.findall(r"pip\" install -q (.+?)(?: #.*)?$", text, re.MULTILINE)
    artifacts = re.findall(r"<artifactId>(?!finding<)[^<]+</artifactId>(?:<version>([0-9.]+)</version>)?", text)
    assert (installed or artifacts) and all(artifacts)
    assert all("==" in package for line in installed for package in line.split() if package[0] not in "-.")
    assert "seglog" not in text and not re.findall(r"https?://(?!maven\.apache\.org/POM)", text)
    assert all(len(line) <= 120 for line in text.splitlines() if line.startswith("#"))
