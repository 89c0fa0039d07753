"""The files that the architecture page names for a newcomer's questions are there, hold what it says, and stay few."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import pytest

from seglog.storage.local import LocalFile
from tests.documents.test_walks_told import PAGE, clean, made_log

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

ROOT = Path(__file__).resolve().parents[2]
MOST_FILES = 30  # it may only fall
CLEAN = "where is the first byte of a clean written?"
ROOMS = ("commands/", "operations/", "cleaner/", "log/")
ROWS = re.compile(r"^\| ([^|]+\?) \| (.+) \|$", re.MULTILINE)
QUESTIONS: dict[str, str] = dict(ROWS.findall(PAGE.split("## Where a newcomer looks")[1]))


def named_files(answer: str) -> list[str]:
    return re.findall(r"`([\w/]+(?:\.py|/))`", answer)


def place(name: str) -> Path:
    return next(path for parent in ("core/seglog", "core", "seglog_cli") if (path := ROOT / parent / name).exists())


def test_ten_questions_take_few_files() -> None:
    assert len(QUESTIONS) == 10
    files = [name for answer in QUESTIONS.values() for name in named_files(answer)]
    assert len(files) <= MOST_FILES


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_files_hold_what_is_named_there(question: str) -> None:
    answer = QUESTIONS[question]
    sources = [path.read_text() for name in named_files(answer) if (path := place(name)).is_file()]
    names = re.findall(r"\(`(\w+)`", answer)
    assert sources
    for name in names:
        assert any(re.search(rf"^ *((async )?def |class )?{name}\b", source, re.MULTILINE) for source in sources), name


def test_the_first_byte_of_a_clean_takes_the_way_through_these_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = made_log(tmp_path / "topic-0")
    write_at, ways = LocalFile.write_at, []

    def noted(self: LocalFile, position: int, data: ReadableBuffer) -> None:
        if self.path.name.endswith(".log.cleaned"):
            ways.append(files_on_the_way(sys._getframe(1)))
        write_at(self, position, data)

    monkeypatch.setattr(LocalFile, "write_at", noted)
    clean(partition)
    assert ways[0] == named_files(QUESTIONS[CLEAN])


def files_on_the_way(frame: FrameType | None) -> list[str]:
    """The modules of these rooms on the stack, outermost first."""
    seen: dict[str, None] = {}
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name.partition(".")[0] in ("seglog", "seglog_cli"):
            seen.setdefault(name.partition(".")[2].replace(".", "/") + ".py")
        frame = frame.f_back
    return [name for name in reversed(seen) if name.startswith(ROOMS)]
