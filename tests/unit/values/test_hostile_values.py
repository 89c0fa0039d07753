"""Values and schemas that anybody may write: no crash, no hang, no word of a library on standard error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("effort", [(4000, 400), pytest.param((200_000, 20_000), marks=pytest.mark.slow)])
def test_what_is_mutated_is_decoded_or_has_a_reason(effort: tuple[int, int]) -> None:
    words = [sys.executable, "-m", "tests.support.hostile_values", *map(str, effort), "7"]
    environment = {"PYTHONPATH": f"{ROOT / 'core'}:{ROOT}", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    counts = {line[10:]: int(line[:9]) for line in done.stdout.splitlines()[:-1]}
    assert counts["Avro value: decoded"] > effort[0] / 20 and counts["Protobuf value: decoded"] > effort[0] / 100
    assert counts["Avro schema: decoded"] > 0 and len(counts) > 12


@pytest.mark.parametrize("effort", [(10_000, 300), pytest.param((200_000, 20_000), marks=pytest.mark.slow)])
def test_what_is_mutated_is_in_a_column_or_has_a_reason(effort: tuple[int, int]) -> None:
    words = [sys.executable, "-m", "tests.support.hostile_values", *map(str, effort), "7", "typed"]
    environment = {"PYTHONPATH": f"{ROOT / 'core'}:{ROOT}", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    counts = {line[10:]: int(line[:9]) for line in done.stdout.splitlines()[:-1]}
    for way in ("the kernel", "a library"):
        assert counts[f"Avro values, {way}: decoded"] > 0 and counts[f"Protobuf values, {way}: not decoded"] > 0
