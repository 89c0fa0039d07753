"""Patterns of topics: the whole name, in RE2's syntax, and never for long."""

from __future__ import annotations

import re

import pytest

from seglog_rescue.serve.patterns import PatternError, compiled

NAMES = ("", "a", "b", "ab", "aab", "orders", "orders.v1", "orders-2024", "ORDERS", "__x", "a_b", "x" * 249)


@pytest.mark.parametrize(
    "pattern",
    [
        *("", "a", ".*", "a*b", "a+b?", "(a|b)+", "^orders$", "orders.*", r"orders\.v\d+", "[a-c]*", "[^a-z]+"),
        *("(?i)orders", "(?:a|ab)(?:b|)", "x{249}", "x{10,}", "x{0,250}", r"\w+", r"\Borders|a\b.*", "(?P<n>a)b"),
        *(r"[\w.-]+", "[]a]*", "[a-]+", "a{,2}|b{", r"\x61b", "orders(?:-[0-9]{4})?", "(?i:ord)ers", "a??b*?"),
    ],
)
def test_a_pattern_matches_the_names_that_pythons_engine_matches_as_a_whole(pattern: str) -> None:
    if pattern == "a{,2}|b{":  # for RE2, these braces are no repetition
        assert [name for name in (*NAMES, "a{,2}", "b{") if compiled(pattern).matches(name)] == ["a{,2}", "b{"]
        return
    expected = [name for name in NAMES if re.fullmatch(pattern, name)]
    assert [name for name in NAMES if compiled(pattern).matches(name)] == expected


def test_classes_and_quotes_of_re2_are_known() -> None:
    assert compiled("[[:alpha:]]+").matches("orders") and not compiled("[[:^alpha:]]+").matches("orders")
    assert compiled(r"\Qa.b\E.").matches("a.bc") and not compiled(r"\Qa.b\E").matches("axb")
    assert compiled(r"\Aa\z").matches("a")


@pytest.mark.parametrize(
    "pattern",
    [
        *(
            "(",
            ")",
            "[",
            "a**",
            "*a",
            "a{3,2}",
            "a{1001}",
            r"(a)\1",
            "(?=a)",
            "(?<!a)b",
            r"\p{L}",
            "[b-a]",
            "(?P<n",
            "\\",
        ),
        *("[[:nothing:]]", "(?z)", "(" * 60 + ")" * 60, "a" * 1001, "(a{100}){100}", r"\x{zz}", "(?"),
    ],
)
def test_a_pattern_that_re2_refuses_or_that_takes_too_much_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        compiled(pattern)


def test_patterns_on_which_others_hang_are_matched_step_by_step() -> None:
    """Each would keep a backtracking engine busy for longer than the universe is old."""
    name = "a" * 200 + "!"
    for pattern in ("(a+)+", "(a*)*", "(a|a)*", "(a|aa)+", "(((a*)*)*)*", "(((){1000}){1000}){1000}"):
        assert not compiled(pattern).matches(name)
