"""Values as programs write them without a registry: MessagePack, CBOR, files of Avro, gzip, little-endian numbers."""

from __future__ import annotations

import base64
import gzip
import json
import math
import random
import struct
import time
from io import BytesIO
from typing import Any

import pytest

pytest.importorskip("cbor2")
pytest.importorskip("fastavro")
pytest.importorskip("msgpack")

import cbor2
import fastavro
import msgpack

from seglog_ask.values import expanding, forms
from seglog_ask.values.plain_forms import PLAIN, text_or_reason
from seglog_ask.values.schemas import NotDecodedError, RemarkedText, Text
from tests.support import effort

FORMS = ("msgpack", "cbor", "avro-file", "gzip", "gzip-json")
MEBIBYTE = 1 << 20


def shown(form: str, data: bytes | str) -> Any:
    text = text_or_reason(PLAIN[form], bytes.fromhex(data) if isinstance(data, str) else data)
    assert not isinstance(text, NotDecodedError), text
    return json.loads(text if isinstance(text, str) else text.text)


def refused(form: str, data: bytes | str) -> str:
    text: Text = text_or_reason(PLAIN[form], bytes.fromhex(data) if isinstance(data, str) else data)
    assert isinstance(text, NotDecodedError), text
    return str(text)


@pytest.mark.parametrize(
    ("form", "layout"), [("short", "h"), ("int", "i"), ("long", "q"), ("float", "f"), ("double", "d")]
)
def test_little_endian_numbers(form: str, layout: str) -> None:
    for number in (0, 1, -2, 100):
        data = struct.pack(f"<{layout}", number)
        assert shown(f"{form}-le", data) == number == shown(form, data[::-1])
    assert refused(f"{form}-le", b"abc") == f"it has 3 bytes, not {len(data)}"


# --- documents ----------------------------------------------------------------------------------------------------


def drawn(draw: random.Random, depth: int, *, of_cbor: bool) -> tuple[Any, Any]:
    """Returns a value for an encoder, and what is shown of it."""
    kind = draw.randrange(11 if depth else 8)
    if kind == 0:
        value = draw.choice((None, True, False))
        return value, value
    if kind < 3:
        edges = (0, -1, 23, 24, 255, 256, 65535, 65536, 2**31, -(2**31) - 1, 2**63, -(2**63), 2**64 - 1)
        number = draw.choice((*edges, draw.getrandbits(40)))
        return number, number
    if kind == 3:
        number = draw.choice((0.5, -0.0, 1e300, 0.1, math.nan, math.inf, -math.inf))
        return number, number if number - number == 0 else {"nan": "NaN", "inf": "Infinity"}.get(
            str(number), "-Infinity"
        )
    if kind < 6:
        text = draw.choice(("", "a", "K\u00f6ln", "\u202e", "x" * 300, '"\n'))
        return text, text
    if kind == 6:
        data = draw.randbytes(draw.choice((0, 1, 40, 300)))
        return data, base64.b64encode(data).decode()
    if kind == 7 and of_cbor:
        number = draw.choice((2**64, -(2**64) - 1, 10**30))
        return number, str(number)
    within = [drawn(draw, max(depth - 1, 0), of_cbor=of_cbor) for _ in range(draw.choice((0, 1, 3, 20)))]
    if kind < 9:
        return [value for value, _ in within], [form for _, form in within]
    keys = [draw.choice((i, f"k{i}", i + 0.5)) for i in range(len(within))]
    named = {
        key if isinstance(key, str) else json.dumps(key): form for key, (_, form) in zip(keys, within, strict=True)
    }
    return {key: value for key, (value, _) in zip(keys, within, strict=True)}, named


@pytest.mark.parametrize("form", ["msgpack", "cbor"])
def test_documents_are_what_their_libraries_wrote(form: str) -> None:
    draw = random.Random(effort.first_seed(1))
    for _ in range(effort.tries(400)):
        value, wanted = drawn(draw, 4, of_cbor=form == "cbor")
        data = cbor2.dumps(value) if form == "cbor" else msgpack.packb(value)
        if len(data) > 60_000:
            continue  # see below
        assert shown(form, data) == wanted
        assert "follow" in refused(form, data + b"\0") or "extra data" in refused(form, data + b"\0")
        cut = text_or_reason(PLAIN[form], data[: draw.randrange(len(data))])
        assert isinstance(cut, NotDecodedError)


def test_a_large_map_of_cbor_has_keys_of_text_or_bytes() -> None:
    assert len(shown("cbor", cbor2.dumps({f"key {i}": i for i in range(20_000)}))) == 20_000
    assert len(shown("cbor", cbor2.dumps(dict.fromkeys(range(5000))))) == 5000
    assert "key must be a text string" in refused("cbor", cbor2.dumps(dict.fromkeys(range(50_000))))
    assert len(shown("msgpack", msgpack.packb(dict.fromkeys(range(50_000))))) == 50_000


def test_what_json_lacks_has_one_form_in_documents() -> None:
    assert shown("msgpack", msgpack.packb(msgpack.Timestamp(1, 5))) == "1970-01-01T00:00:01.000000005Z"
    assert shown("msgpack", msgpack.packb(msgpack.ExtType(5, b"ab"))) == {"type": 5, "data": "YWI="}
    for form, data in (("msgpack", "820101a13102"), ("cbor", "a20101613102")):
        assert shown(form, data) == [{"key": 1, "value": 1}, {"key": "1", "value": 2}]
    assert shown("cbor", "c11a514b67b0") == "2013-03-21T20:04:00.000Z"
    assert shown("cbor", "c074323031332d30332d32315432303a30343a30305a") == "2013-03-21T20:04:00Z"
    assert shown("cbor", "c48221196ab3") == "273.15"
    assert shown("cbor", "c4821bffffffffffffffff01") == "1E+18446744073709551615"
    assert shown("cbor", "d82550" + "00" * 16) == "00000000-0000-0000-0000-000000000000"
    assert shown("cbor", "d8236328612b") == "(a+"  # of a regular expression, not compiled
    assert shown("cbor", "da00bc614ef7") is None
    assert shown("cbor", "e0") == "simple(0)"


def test_a_tag_of_cbor_shows_what_it_tags_however_it_is_numbered() -> None:
    for tag in (*range(300), 1004, 1040, 43000, 55799, 65535):
        head = (
            bytes([0xC0 | tag])
            if tag < 24
            else b"\xd8" + bytes([tag])
            if tag < 256
            else b"\xd9" + tag.to_bytes(2, "big")
        )
        if tag not in (25, 29):  # these stand for another part
            assert shown("cbor", head + b"\x61a") == "a"
    assert "stands for another part" in refused("cbor", "d81c81d81d00")  # which is within itself


def hostile() -> dict[str, tuple[str, bytes]]:
    """Values that claim, nest or collide more than they have bytes for."""
    colliding = (b"\x92" + msgpack.packb(i) + b"\x01\xc0" for i in range(50_000))
    numbers = (b"\xc2\x4a" + (((1 << 61) - 1) * (i + 1)).to_bytes(10, "big") + b"\xf6" for i in range(50_000))
    pairs = (b"\x82" + cbor2.dumps(i) + b"\x01\xf6" for i in range(50_000))
    return {
        "lists within lists of MessagePack": ("msgpack", b"\x91" * MEBIBYTE),
        "lists that claim more than follows": ("msgpack", (b"\xdd" + MEBIBYTE.to_bytes(4, "big")) * 900),
        "maps with lists as keys": ("msgpack", b"\xdf" + (50_000).to_bytes(4, "big") + b"".join(colliding)),
        "lists within lists of CBOR": ("cbor", b"\x81" * MEBIBYTE),
        "tags within tags": ("cbor", b"\xc6" * MEBIBYTE),
        "a list of 2^64": ("cbor", b"\x9b" + b"\xff" * 8),
        "bytes of 2^64": ("cbor", b"\x5b" + b"\xff" * 8 + b"a"),
        "a number of a mebibyte": ("cbor", b"\xc2\x5a" + MEBIBYTE.to_bytes(4, "big") + b"\xff" * MEBIBYTE),
        "a power of two": ("cbor", bytes.fromhex("c5821a7fffffff01")),
        "numbers that collide as keys": ("cbor", b"\xb9" + (50_000).to_bytes(2, "big") + b"".join(numbers)),
        "lists that are keys of CBOR": ("cbor", b"\xb9" + (50_000).to_bytes(2, "big") + b"".join(pairs)),
        "zeros in gzip": ("gzip", gzip.compress(bytes(expanding.MOST_EXPANDED + 1), 9)),
        "zeros in members of gzip": ("gzip", gzip.compress(bytes(expanding.MOST_EXPANDED // 2 + 1), 9) * 2),
    }


@pytest.mark.parametrize("name", sorted(hostile()))
def test_hostile_values_end_at_once_with_an_answer(name: str) -> None:
    form, data = hostile()[name]
    begun = time.process_time()
    text = text_or_reason(PLAIN[form], data)
    assert isinstance(text, str | NotDecodedError)
    assert time.process_time() - begun < 60  # not for ever: each takes less than a second
    if "gzip" in form:
        assert "more than" in str(text)


@pytest.mark.parametrize("form", FORMS)
def test_random_bytes_and_mutated_values_have_a_text_or_a_reason(form: str) -> None:
    draw = random.Random(effort.first_seed(1))
    value = {"id": 7, "list": [1, {"a": b"x"}], "text": "K\u00f6ln"}
    good = {
        "msgpack": msgpack.packb(value),
        "cbor": cbor2.dumps(value),
        "avro-file": avro_file(ORDER, ORDERS),
        "gzip": gzip.compress(b'{"a":1}'),
        "gzip-json": gzip.compress(b'{"a":1}'),
    }[form]
    for _ in range(effort.tries(500)):
        data = bytearray(good if draw.random() < 0.8 else draw.randbytes(draw.randrange(40)))
        for _ in range(draw.randrange(4)):
            if data:
                data[draw.randrange(len(data))] = draw.randrange(256)
        text = text_or_reason(PLAIN[form], bytes(data[: draw.choice((len(data), draw.randrange(len(data) + 1)))]))
        if not isinstance(text, NotDecodedError):
            json.loads(text.text if isinstance(text, RemarkedText) else text)


# --- files of Avro ------------------------------------------------------------------------------------------------

DAY = {"type": "int", "logicalType": "date"}
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "city", "type": "string"}, {"name": "day", "type": DAY}],
}
ORDERS = [{"id": i, "city": f"city {i}", "day": i} for i in range(300)]


def avro_file(schema: Any, values: list[Any], codec: str = "null", interval: int = 1000) -> bytes:
    out = BytesIO()
    fastavro.writer(out, fastavro.parse_schema(schema), values, codec=codec, sync_interval=interval)
    return out.getvalue()


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz", "snappy", "zstandard"])
def test_a_file_of_avro_is_the_list_of_its_records(codec: str) -> None:
    try:
        data = avro_file(ORDER, ORDERS, codec)
    except ValueError:
        pytest.skip(f"fastavro has no {codec} here")
    rows = shown("avro-file", data)
    assert rows[:2] == [
        {"id": 0, "city": "city 0", "day": "1970-01-01"},
        {"id": 1, "city": "city 1", "day": "1970-01-02"},
    ]
    assert [row["id"] for row in rows] == list(range(300))
    assert shown("avro-file", avro_file(ORDER, [], codec)) == []
    assert shown("avro-file", avro_file("string", ["a", "b"], codec)) == ["a", "b"]


def test_what_is_wrong_with_a_file_of_avro_is_said() -> None:
    data = avro_file(ORDER, ORDERS)
    assert refused("avro-file", b"Obj\x02") == "it is not an Avro file"
    assert "the file ends early" in refused("avro-file", data[:-1])
    assert "the mark of the file is not behind its block" in refused("avro-file", data[:-1] + b"?")
    assert 'codec "lzo"' in refused("avro-file", data.replace(b"\x08null", b"\x06lzo"))
    assert "take no bytes" in refused("avro-file", avro_file("null", [None] * 3))
    bomb = avro_file("bytes", [bytes(expanding.MOST_EXPANDED)], "deflate")
    assert "more than 67108864 bytes" in refused("avro-file", bomb)


# --- gzip ---------------------------------------------------------------------------------------------------------


def test_gzip_is_expanded_member_after_member() -> None:
    data = gzip.compress(b'{"a":1.10,') + gzip.compress(b'"b":2}')
    assert text_or_reason(PLAIN["gzip-json"], data) == '{"a":1.10,"b":2}'
    assert shown("gzip", data) == '{"a":1.10,"b":2}'
    assert refused("gzip", b"plain") == "it is not compressed by gzip"
    assert refused("gzip", data + b"x") == "1 bytes follow"
    assert refused("gzip", data[:-1]) == "what gzip has compressed ends early"
    assert "not UTF-8" in refused("gzip", gzip.compress(b"\xff"))


def test_values_of_a_batch_have_a_bound_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "MOST_TEXT", 1000)
    texts = forms._plain_texts(PLAIN["gzip"], [gzip.compress(b"a" * 600)] * 3)
    assert [isinstance(text, str) for text in texts] == [True, True, False]
    assert "begin with its offset" in str(texts[2])
