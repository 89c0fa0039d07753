"""Text kernels, compiled and interpreted, against Python's own json and base64."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglog.escaping import escaped, json_value
from seglog.kernels import text
from seglog.kernels._jit import COMPILED
from seglog.kernels.text import MOST_JSON_EXPANSION, SLACK
from tests.support.interpreted import both

Put = Callable[..., int]


def written(put: Put, data: bytes) -> bytes | None:
    source = np.frombuffer(b"\x22\x80" + data + b"\x22\x80", dtype=np.uint8)  # neighbours must not be looked at
    out = np.zeros(MOST_JSON_EXPANSION * len(data) + SLACK, dtype=np.uint8)
    end = put(out, 0, source, 2, 2 + len(data))
    return None if end < 0 else out[:end].tobytes()


@pytest.mark.parametrize("put", both(text, "put_integer"))
@given(st.integers(-(2**63), 2**63 - 1))
def test_integers_are_written_in_decimal(put: Put, value: int) -> None:
    out = np.zeros(64, dtype=np.uint8)
    assert out[: put(out, 0, value)].tobytes() == str(value).encode()


@pytest.mark.parametrize("kind", [np.int8, np.int16, np.int32, np.int64])
def test_the_least_value_of_a_narrow_column_is_written_right(kind: type[np.signedinteger]) -> None:
    value = np.array([np.iinfo(kind).min], dtype=kind)[0]
    out = np.zeros(64, dtype=np.uint8)
    compiled, interpreted = both(text, "put_integer")
    for put, argument in ((compiled, value if COMPILED else int(value)), (interpreted, int(value))):
        assert out[: put(out, 0, argument)].tobytes() == str(value).encode()


@pytest.mark.parametrize("put", both(text, "put_integer"))
def test_every_number_of_digits_is_written_right(put: Put) -> None:
    out = np.zeros(64, dtype=np.uint8)
    for power in range(19):
        for value in (10**power - 1, 10**power, 10**power + 7, 123456789012345678 // 10**power * 10 + 9):
            assert out[: put(out, 0, value)].tobytes() == str(value).encode()


UNSAFE = "".join(chr(code) for code in range(0x2200) if escaped(chr(code)) != chr(code))


@pytest.mark.parametrize("put", both(text, "put_json_text"))
@given(st.text(st.characters(exclude_categories=["Cs"])) | st.text('"\\aé€😀\u00a0\u2027\u206a' + UNSAFE, max_size=30))
def test_text_is_a_json_string_with_its_characters_beyond_ascii_kept(put: Put, value: str) -> None:
    found = written(put, value.encode())
    assert found is not None
    assert found.decode().casefold() == json_value(value)[1:-1].casefold()
    assert json.loads(b'"' + found + b'"') == value
    assert escaped(found.decode()) == found.decode()


@pytest.mark.parametrize("put", both(text, "put_json_text"))
@given(st.binary(max_size=40))
def test_only_utf8_is_text(put: Put, value: bytes) -> None:
    try:
        wanted: str | None = value.decode()
    except UnicodeDecodeError:
        wanted = None
    found = written(put, value)
    assert (found is None) == (wanted is None)
    if found is not None:
        assert json.loads(b'"' + found + b'"') == wanted


def at_the_end(put: Put, data: bytes) -> bytes:
    """What `put` writes of the last bytes of a buffer, as `written` does of some in the middle of one."""
    source = np.frombuffer(b'"' + data, dtype=np.uint8)
    out = np.zeros(MOST_JSON_EXPANSION * len(data) + SLACK, dtype=np.uint8)
    return out[: put(out, 0, source, 1, 1 + len(data))].tobytes()


@pytest.mark.parametrize(
    "special", ['"', "\\", "\x00", "\x1f", "\x7f", "é", "\u2028", "😀", "!", "[", "]", "~", " ", "#"]
)
@pytest.mark.parametrize("index", [0, 1], ids=["as it runs", "interpreted"])
def test_a_character_is_found_anywhere_in_long_text(index: int, special: str) -> None:
    json_text, java_text = (both(text, name)[index] for name in ("put_json_text", "put_java_text"))
    for size in (7, 8, 9, 39, 40, 41, 75):
        for at in range(size):
            value = "a" * at + special + "Zy09" * ((size - at) // 4) + "z" * ((size - at) % 4)
            for read in (written, at_the_end):
                assert read(java_text, value.encode()) == value.encode()
                found = read(json_text, value.encode())
                assert found is not None
                assert found.decode().casefold() == json_value(value)[1:-1].casefold()


@pytest.mark.parametrize("is_utf8", both(text, "is_utf8"))
@given(st.binary(max_size=40) | st.text('"\\\n\x00é€', max_size=20).map(str.encode))
def test_what_is_text_is_known_before_writing(is_utf8: Put, value: bytes) -> None:
    found = written(text.put_json_text, value)
    assert is_utf8(np.frombuffer(value, dtype=np.uint8), 0, len(value)) == (found is not None)


@pytest.mark.parametrize("cut", both(text, "text_cut"))
@given(st.binary(max_size=30) | st.text("aé€😀", max_size=12).map(str.encode), st.integers(4, 20))
def test_texts_may_be_cut_where_it_says(cut: Put, value: bytes, most: int) -> None:
    source, at, pieces = np.frombuffer(value, dtype=np.uint8), 0, b""
    is_text = written(text.put_json_text, value) is not None
    while at < len(value):
        stop = int(cut(source, at, len(value), most))
        assert at < stop <= at + most
        pieces += written(text.put_java_text, value[at:stop]) or b""
        assert not is_text or written(text.put_json_text, value[at:stop]) is not None
        at = stop
    assert pieces == written(text.put_java_text, value)


@pytest.mark.parametrize("put", both(text, "put_base64"))
@given(st.binary(max_size=40))
def test_base64_is_pythons(put: Put, value: bytes) -> None:
    assert written(put, value) == base64.b64encode(value)


@pytest.mark.parametrize("put", both(text, "put_java_text"))
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_valid_text_goes_through_java_as_it_is(put: Put, value: str) -> None:
    assert written(put, value.encode()) == value.encode()


# What `new String(bytes, UTF_8)` of a JDK 17 gives.
@pytest.mark.parametrize("put", both(text, "put_java_text"))
@pytest.mark.parametrize(
    ("data", "replacements"),
    [(b"\x80", 1), (b"\xc0\x80", 2), (b"\xe2\x82", 1), (b"\xed\xa0\x80", 1), (b"\xf0\x9f\x98", 1), (b"\xff\xff", 2)],
)
def test_malformed_text_becomes_replacement_characters_as_in_java(put: Put, data: bytes, replacements: int) -> None:
    assert written(put, data) == "\ufffd".encode() * replacements
