"""The advice for an extra that is not installed."""

from __future__ import annotations

import json
from pathlib import Path

from seglog import extras


def test_in_a_clone_pip_installs_an_extra(tmp_path: Path) -> None:
    assert extras.advice("serve", tmp_path) == "pip install '.[serve]' in seglog's clone"


def test_a_bundle_names_the_archive_that_has_the_extra(tmp_path: Path) -> None:
    (tmp_path / extras.NOTE).write_text(
        json.dumps({"archive": "seglog-extras-1.tar.xz", "extras": ["serve", "remote"]})
    )
    assert extras.advice("remote", tmp_path).startswith("unpack seglog-extras-1.tar.xz over this bundle")
    assert "pip" not in extras.advice("remote", tmp_path).replace("no pip", "")


def test_a_bundle_says_that_no_archive_has_an_extra(tmp_path: Path) -> None:
    (tmp_path / extras.NOTE).write_text(json.dumps({"archive": "seglog-extras-1.tar.xz", "extras": ["serve"]}))
    assert extras.advice("spark", tmp_path).startswith("no bundle has it")
