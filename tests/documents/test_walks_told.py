"""The walks on the architecture page are the ways that calls take: each function named there runs, in that order."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pyarrow.compute as pc
import pytest

import seglog
from tests.support.command_line import run
from tests.tidy.sources import PACKAGES

PAGE = (Path(__file__).resolve().parents[2] / "core" / "ARCHITECTURE.md").read_text()
STEP = re.compile(r"^\d+\. `([\w/]+)\.py` `(\w+)`", re.MULTILINE)
MENTIONED = re.compile(r"`([\w/]+)\.py`\s+`(\w+)`")


def made_log(directory: Path) -> Path:
    with seglog.open_log(directory, create=True) as log:
        for _ in range(3):
            log.append([seglog.Record(b"value", key=b"k%d" % (i % 5), timestamp=1000) for i in range(20)])
            log.roll()
    return directory


def damage(partition: Path, number: int = 0) -> None:
    log = sorted(partition.glob("*.log"))[number]
    data = bytearray(log.read_bytes())
    data[80] ^= 1
    log.write_bytes(data)


def read(partition: Path) -> None:
    with seglog.open_log(partition) as log:
        assert next(log.records(5)).offset == 5


def append(partition: Path) -> None:
    assert run("append", partition, input_text="a line\n").exit_code == 0


def recover(partition: Path) -> None:
    damage(partition, -2)
    max(partition.glob("*.index")).write_bytes(bytes(80))  # preallocated: it was not closed
    done = run("recover", partition)
    assert done.exit_code in (0, 1) and "undo" in done.output, done.output


def clean(partition: Path) -> None:
    assert run("clean", "--policy", "compact", partition).exit_code == 0


def repair(partition: Path) -> None:
    damage(partition)
    assert run("repair", partition).exit_code == 4


def query(partition: Path) -> None:
    table = seglog.open_table(partition)
    assert table.to_table(columns=["value"], filter=pc.field("offset") == 45).num_rows == 1


WALKS = {
    "A read": read,
    "An append": append,
    "A recovery": recover,
    "A clean": clean,
    "A repair": repair,
    "A query": query,
}


def section(title: str) -> str:
    return PAGE.split(f"### {title}:")[1].split("\n### ")[0]


def passed(walk: Callable[[], object]) -> list[tuple[str, str]]:
    """(module, function) of every function of seglog that a walk enters, at its first time, in order."""
    seen: dict[tuple[str, str], None] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        name = frame.f_globals.get("__name__", "")
        is_ours = name.partition(".")[0] in (*PACKAGES, "seglog_cli")
        if event == "call" and is_ours and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            seen.setdefault((name, frame.f_code.co_name))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        walk()
    finally:
        sys.setprofile(before)
    return list(seen)


def module_of(path: str) -> str:
    return ("" if path.startswith("seglog_") else "seglog.") + path.replace("/", ".")


def test_there_are_six_walks_and_each_is_taken() -> None:
    assert re.findall(r"^### (.+?):", PAGE, re.MULTILINE) == list(WALKS)


@pytest.mark.parametrize("title", WALKS)
def test_a_walk_passes_what_the_page_names_in_that_order(title: str, tmp_path: Path) -> None:
    steps = [(module_of(path), name) for path, name in STEP.findall(section(title))]
    assert len(steps) >= 7
    partition = made_log(tmp_path / "t-0")
    ran = passed(lambda: WALKS[title](partition))
    missing = [step for step in steps if step not in ran]
    assert missing == []
    assert sorted(steps, key=ran.index) == steps


@pytest.mark.parametrize("title", WALKS)
def test_what_a_walk_mentions_besides_exists(title: str) -> None:
    root = Path(__file__).resolve().parents[2]
    for path, name in MENTIONED.findall(section(title)):
        file = root / ("" if path.startswith("seglog_cli") else "core") / f"{module_of(path).replace('.', '/')}.py"
        assert re.search(rf"def {name}\(", file.read_text()), f"{path}.py {name}"
