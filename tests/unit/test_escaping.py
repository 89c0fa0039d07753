"""What goes to a terminal or into a line: nothing that either would obey; JSON that everybody can read."""

from __future__ import annotations

import base64
import json
import os
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglog.escaping import escaped, json_text, json_value

NAMES = st.binary(max_size=30).map(os.fsdecode)


@given(st.text(st.characters(), max_size=30) | NAMES)
def test_no_control_no_line_end_and_no_change_of_direction_passes(text: str) -> None:
    shown = escaped(text)
    assert all(unicodedata.category(c) not in ("Cc", "Cs", "Zl", "Zp") for c in shown)
    assert all(unicodedata.bidirectional(c) not in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI") for c in shown)
    assert escaped(shown) == shown
    shown.encode()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ä→😀 \\", "plain ä→😀 \\"),
        ("\x1b[31m\n\r\t\0", "\\x1b[31m\\n\\r\\t\\x00"),
        ("\x7f\x9b\u202e\u2028\u200f", "\\x7f\\u009b\\u202e\\u2028\\u200f"),
        (os.fsdecode(b"\xff\x9b"), "\\xff\\x9b"),
        ("\ud800", "\\ud800"),
    ],
)
def test_escapes_are_those_of_python(text: str, shown: str) -> None:
    assert escaped(text) == shown
    assert escaped(text, keep="\n\t") == shown.replace("\\n", "\n").replace("\\t", "\t")


@given(st.dictionaries(st.text(st.characters(codec="utf-8")), NAMES | st.lists(NAMES) | st.integers()))
def test_json_is_one_safe_line_from_which_every_name_comes_back(record: dict[str, object]) -> None:
    line = json_text(record)
    assert escaped(line) == line
    found = json.loads(line.encode())
    for name, value in record.items():
        exact = found.get(f"{name}_b64")
        if exact is None or f"{name}_b64" in record:
            continue
        if isinstance(value, list):
            assert [os.fsdecode(base64.b64decode(each)) for each in exact] == value
        else:
            assert os.fsdecode(base64.b64decode(exact)) == value
            assert found[name] == value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def test_json_holds_the_bytes_of_a_name_that_is_not_utf8() -> None:
    name = os.fsdecode(b"a\xff\x1b")
    found = json.loads(json_text({"file": name, "more": {"names": ["b", name]}, "half": "\ud800", "ok": "ä"}))
    assert found == {
        "file": "a\\xff\x1b",
        "file_b64": "Yf8b",
        "more": {"names": ["b", "a\\xff\x1b"], "names_b64": ["Yg==", "Yf8b"]},
        "half": "\\ud800",
        "ok": "ä",
    }


def test_text_beyond_ascii_stays_and_what_is_no_number_is_null() -> None:
    assert json_value(["ä😀", 1, None, True]) == '["ä😀",1,null,true]'
    figures = {"ratio": float("nan"), "rates": [float("inf"), 0.5]}
    assert json_text(figures) == '{"ratio":null,"rates":[null,0.5]}'
    assert json_value([figures, -float("inf")]) == '[{"ratio":"NaN","rates":["Infinity",0.5]},"-Infinity"]'
