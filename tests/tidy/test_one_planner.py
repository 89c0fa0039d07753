"""Which bytes of a segment hold a range is answered in one place (`log.places`), and nobody else asks an index."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tidy.sources import ROOT, SOURCES, name_of, source

pytestmark = pytest.mark.xdist_group("tidy")  # one process parses the sources

ENGINE = (ROOT / "core/seglog/log", ROOT / "core/seglog/scan")
# from an offset or a time to a byte position, or the files that tell it (`log.places` asks them for everybody)
ANSWERS = frozenset(
    {"OffsetIndex", "TimeIndex", "entries_to", "find_batch", "indexed_batch", "indexed_position", "row_before"}
)


def answers(path: Path) -> set[str]:
    """The calls in a file that turn offsets into byte positions."""
    return {call for call in source(path).calls if call.rpartition(".")[2] in ANSWERS}


def test_offsets_become_positions_in_the_engine_only() -> None:
    assert {name_of(path): answers(path) for path in SOURCES if path.parent not in ENGINE and answers(path)} == {}


@pytest.mark.parametrize("line", ["OffsetIndex(fs, path, 0)", "segment.indexed_position(5)", "find_batch(scan, 5)"])
def test_such_a_call_is_seen(line: str, tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(line + "\n")
    assert len(answers(path)) == 1
