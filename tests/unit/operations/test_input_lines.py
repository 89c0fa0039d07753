"""Text into records: lines, key separators, JSON lines, and lines that cannot be."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglog.errors import InputError
from seglog.model import Header, Record
from seglog.operations.input_lines import Format, JsonLineFormat, LineFormat, read_records


def taken(chunks: list[bytes | None], form: Format) -> list[Record]:
    return [r for piece in read_records(chunks, form, "input") if piece is not None for r in piece]


def pairs(data: bytes, separator: str) -> list[tuple[bytes | None, bytes | None]]:
    return [(r.key, r.value) for r in taken([data], LineFormat(separator))]


def test_each_line_is_a_value_and_the_last_needs_no_newline() -> None:
    found = taken([b"one\n\r\n\ntwo\r\nthree"], LineFormat())
    assert [r.value for r in found] == [b"one", b"", b"", b"two", b"three"]


def test_the_first_separator_of_a_line_ends_its_key() -> None:
    assert pairs(b"k:v:w\n:v\nk:\n", ":") == [(b"k", b"v:w"), (b"", b"v"), (b"k", b"")]


def test_a_separator_may_be_several_bytes() -> None:
    assert pairs("a→→b\nä→→→c\n".encode(), "→→") == [(b"a", b"b"), ("ä".encode(), "→c".encode())]


def test_a_line_without_its_separator_is_named_and_those_before_are_given() -> None:
    source = read_records([b"a:1\nb:2\nno\nc:3\n"], LineFormat(":"), "input")
    first = next(source)
    assert first is not None and len(first) == 2
    with pytest.raises(InputError, match="input: line 3: no key separator ':'"):
        next(source)


@given(st.lists(st.binary(max_size=20).map(lambda b: b.replace(b"\n", b"").replace(b"\r", b""))), st.data())
def test_where_the_chunks_are_cut_does_not_matter(lines: list[bytes], data: st.DataObject) -> None:
    text = b"".join(line + b"\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=5)))
    chunks: list[bytes | None] = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert [r.value for r in taken(chunks, LineFormat())] == lines


def test_a_pause_passes_through() -> None:
    assert list(read_records([None, b"half", None], LineFormat(), "x"))[:2] == [None, None]


def test_json_lines_give_text_base64_null_and_headers() -> None:
    lines = [
        {"type": "record", "offset": 7, "timestamp": 5, "sequence": 3, "key": "k", "value": None},
        {"type": "record", "timestamp": -1, "key": None, "value_b64": "/w==", "new_field": 1},
        {"value": "", "headers": [{"key": "h", "value_b64": "AA=="}, {"key_b64": "/w==", "value": None}]},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines).encode()
    found = taken([text], JsonLineFormat())
    assert [(r.key, r.value) for r in found] == [(b"k", None), (None, b"\xff"), (None, b"")]
    assert [r.timestamp for r in found] == [5, -1, -1]
    assert found[2].headers == (Header("h", b"\0"), Header("\udcff", None))


def test_batches_are_passed_over_and_control_records_with_them() -> None:
    lines = [
        {"type": "batch", "control": True},
        {"type": "record", "value": "marker"},
        {"type": "batch", "control": False},
        {"type": "record", "value": "kept"},
        {"type": "summary"},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines).encode()
    assert [r.value for r in taken([text], JsonLineFormat())] == [b"kept"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ("{}", "neither value nor value_b64"),
        ('{"value":1}', "neither text nor null"),
        ('{"value_b64":"*"}', "not base64"),
        ('{"value":"v","timestamp":"now"}', "timestamp"),
        ('{"value":"v","timestamp":9223372036854775808}', "timestamp"),
        ('{"value":"v","headers":{}}', "headers"),
        ('{"value":"v","headers":[{"value":"x"}]}', "neither key nor key_b64"),
        ('{"value":"\\ud800"}', "not Unicode"),
        ("[" * 100_000, "nested|not JSON"),
    ],
)
def test_a_json_line_that_is_no_record_is_named(line: str, reason: str) -> None:
    good = '{"value":"fine"}\n'
    with pytest.raises(InputError, match=f"input: line 2: .*({reason})"):
        taken([(good + line + "\n").encode()], JsonLineFormat())
