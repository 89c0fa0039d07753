"""Tables, sizes, JSON lines, roff: the small parts of the output."""

from __future__ import annotations

import pytest

from seglog_cli import roff
from seglog_cli.help import split_docstring
from seglog_cli.progress import Pace, bytes_text, describe
from seglog_cli.tables import Layout, table


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    assert table(("A", "SIZE"), [("long name", "1"), ("b", "1000")], Layout(right=(1,))) == [
        "A          SIZE",
        "long name     1",
        "b          1000",
    ]
    assert table(("A", "B"), [], Layout()) == ["A  B"]


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (99_949, "99.9 kB"), (100_000, "100 kB"), (10**12, "1.0 TB")],
)
def test_sizes_have_three_digits(size: int, text: str) -> None:
    assert bytes_text(size) == text


def test_work_that_is_not_bytes_is_counted_in_its_unit() -> None:
    pace = Pace(0.0)
    assert describe(3, 8, pace, "segments") == "3 of 8 segments"
    pace.add(5.0, 500)
    assert describe(500, 1000, pace) == "500 B of 1.0 kB, 100 B/s, 5 s left"


def test_roff_keeps_dots_quotes_backslashes_and_other_letters() -> None:
    assert roff.escaped(".a -b\n'c\\") == "\\&.a \\-b\n\\&\\(aqc\\e"
    assert roff.escaped("…") == "\\[u2026]"
    assert roff.inline("use `a-b` and **c**, see [this](there.md)") == "use \\fBa\\-b\\fR and \\fBc\\fR, see this"


def test_markdown_becomes_sections_lists_tables_and_literal_blocks() -> None:
    prose = "# Title\n\n## One\nProse\nand more.\n\n- a\n  b\n- c\n\n"
    text = prose + "| x | y |\n|---|---|\n| 1 | `2` |\n\n```\n  box\n\n.end\n```\n"
    assert roff.of_markdown(text) == [
        '.SH "ONE"',
        *(".PP", "Prose and more."),
        *(".IP \\(bu 2", "a b", ".IP \\(bu 2", "c"),
        *(".PP", ".nf", "x  y", "1  2", ".fi"),
        *(".PP", ".nf", "  box", "\\&", "\\&.end", ".fi"),
    ]


def test_a_docstring_is_summary_description_and_examples() -> None:
    summary, paragraphs, examples = split_docstring(
        "Does\n    it.\n\n    More.\n\n    Examples:\n      seglog x\n      seglog y\n"
    )
    assert (summary, paragraphs, examples) == ("Does it.", ("More.",), ("seglog x", "seglog y"))
