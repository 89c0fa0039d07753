"""Protobuf: the texts of a registry's schemas, and values by Google's own library."""

from __future__ import annotations

import base64
import json

import pytest
from google.protobuf import descriptor_pb2, json_format

from seglog.escaping import json_value
from seglog.values import protobuf, protoc
from seglog.values.frames import PATH_BEFORE
from seglog.values.schemas import Naming, NotDecodedError, Schema
from tests.support.proto_maker import Files
from tests.support.schema_registry import text_of

SCHEMA = """syntax = "proto3"; package p;
import "google/protobuf/timestamp.proto"; import "other/place.proto";
message Z { int32 x = 1; message C { string s = 1; } message A { int32 q = 1; } }
message A { int64 id = 1; string name = 2; google.protobuf.Timestamp at = 3; repeated int32 some = 4;
            o.Place place = 5; optional int32 maybe = 6; double much = 7; }
"""
PLACE = 'syntax = "proto3"; package o; message Place { map<string, int32> numbers = 1; }'


def decoded(payload: bytes, schema: str = SCHEMA, message: str = "", naming: Naming = PATH_BEFORE) -> object:
    read = protobuf.reader_of(
        Schema("PROTOBUF", schema, message=message), {"other/place.proto": Schema("PROTOBUF", PLACE)}
    )
    return json.loads(text_of(*read([payload], naming)))


def test_the_path_after_the_id_chooses_the_message_in_the_order_of_the_text() -> None:
    assert decoded(b"\0\x08\x05") == {"x": 5}
    assert decoded(b"\x04\0\0\x0a\1x") == {"s": "x"}
    assert decoded(b"\x04\0\2\x08\5") == {"q": 5}
    whole = b"\x08\x05\x12\x01x\x1a\x02\x08\x01\x22\x02\x01\x02\x2a\x07\x0a\x05\x0a\x01k\x10\x03"
    assert decoded(b"\x02\x02" + whole) == {
        "id": "5",
        "name": "x",
        "at": "1970-01-01T00:00:01Z",
        "some": [1, 2],
        "place": {"numbers": {"k": 3}},
        "much": 0.0,
    }
    assert decoded(b"\0\x12\x01x", message="p.A") == {"id": "0", "name": "x", "some": [], "much": 0.0}


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b"\x04\0\4\x08\5", "no message at the path"),
        (b"\x02\x08\x08\5", "no message at the path"),
        (b"\0\x08\x05\x28\x05", "2 bytes are fields that p.Z has not"),
        (b"\0\x08", "is no p.Z"),
        (b"\2\2\x2a\x04\x0a\x02\x58\x01", "fields that p.A has not"),
        (b"\2\2\x1a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x10\1", "is no p.A"),
    ],
)
def test_what_is_not_the_message_says_why(payload: bytes, said: str) -> None:
    with pytest.raises(NotDecodedError, match=said):
        decoded(payload)


MAPS = """syntax = "proto3"; package m; message B { map<string, int32> counts = 1; message In { string s = 1; }
  message On { int32 n = 1; } } message A { bool b = 1; }"""


def test_entries_of_maps_count_as_messages_for_some_writers() -> None:
    assert decoded(b"\4\0\0\x0a\1x", MAPS) == {"s": "x"}  # Java counts what the text calls messages
    assert decoded(b"\4\0\2\x08\5", MAPS) == {"n": 5}
    assert decoded(b"\4\0\4\x08\5", MAPS) == {"n": 5}  # Python counts what is in the descriptor
    assert decoded(b"\4\0\2\x0a\1x", MAPS) == {"s": "x"}  # no On, so it is Python's


def test_glue_and_apicurio_name_messages_otherwise() -> None:
    glue = Naming("number before")  # among m.A, m.B, m.B.CountsEntry, m.B.In, m.B.On
    assert decoded(b"\0\x08\1", MAPS, naming=glue) == {"b": True}
    assert decoded(b"\3\x0a\1x", MAPS, naming=glue) == {"s": "x"}
    assert decoded(b"\x04\x0a\2In\x0a\1x", MAPS) == {"s": "x"}
    assert decoded(b"\x08\5", MAPS, naming=Naming("type", b"On")) == {"n": 5}
    for payload, naming, said in ((b"\5", glue, "no message 5"), (b"", Naming("type", b"X"), "no message X")):
        with pytest.raises(NotDecodedError, match=said):
            decoded(payload, MAPS, naming=naming)


def test_a_descriptor_in_place_of_a_text_is_read_too() -> None:
    files = descriptor_pb2.FileDescriptorSet.FromString(protoc.compiled("a.proto", {"a.proto": PLACE})).file
    text = base64.b64encode(files[0].SerializeToString()).decode()
    assert decoded(b"\0\x0a\x05\x0a\x01k\x10\x03", text) == {"numbers": {"k": 3}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("message", "protoc refuses it: seglog_main.proto:1"),
        ('syntax = "proto3"; import "nowhere.proto"; message A {}', "nowhere.proto"),
        ('syntax = "proto3"; import "/etc/passwd"; message A {}', "protoc refuses"),
        ("message A { optional string a = 1; }" + " " * (1 << 20), "more than"),
        ("message A {" * 5000, "protoc refuses"),
        ('syntax = "proto3";', "no message at the path"),
    ],
)
def test_texts_that_do_not_compile_say_why(text: str, said: str) -> None:
    with pytest.raises(NotDecodedError, match=said):
        decoded(b"\0", text)


def test_imports_stay_in_their_directory() -> None:
    for name in ("../up.proto", "/abs.proto", "-flag", "a\0b", "x" * 300, ""):
        with pytest.raises(NotDecodedError, match="no path of a schema"):
            protoc.compiled("a.proto", {"a.proto": PLACE, name: PLACE})


def test_absent_fields_are_left_out_where_they_would_multiply() -> None:
    fields = "".join(f"int32 field{i} = {i + 1};" for i in range(2000))
    text = f'syntax = "proto3"; message Many {{ repeated Wide wide = 1; }} message Wide {{ {fields} }}'
    few, many = decoded(b"\0" + b"\x0a\0" * 10, text), decoded(b"\0" + b"\x0a\0" * 20_000, text)
    assert isinstance(few, dict) and len(few["wide"][0]) == 2000
    assert isinstance(many, dict) and many["wide"] == [{}] * 20_000


# --- compared with Google's own library ---------------------------------------------------------------------


def compared(seed: int, count: int) -> None:
    """Compares values of a random schema with what Google's library shows by descriptors that protoc never saw."""
    files = Files(seed)
    read = protobuf.reader_of(
        Schema("PROTOBUF", files.texts["main.proto"]),
        {name: Schema("PROTOBUF", text) for name, text in files.texts.items()},
    )
    paths = files.paths()
    kinds = {path: files.message(path) for path in paths}
    for number in range(count):
        path = paths[number % len(paths)]
        value = files.fill(kinds[path]())
        wanted = json_format.MessageToDict(
            value, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
        (text,) = read([written_path(path) + value.SerializeToString()], PATH_BEFORE)
        assert json.loads(text_of(text)) == json.loads(json_value(wanted)), files.texts["main.proto"]


def written_path(path: tuple[int, ...]) -> bytes:
    """A path as Confluent writes it."""
    return b"\0" if path == (0,) else bytes(2 * number for number in (len(path), *path))


@pytest.mark.parametrize("effort", [(12, 60), pytest.param((100, 150), marks=pytest.mark.slow)])
def test_values_of_random_schemas_are_those_of_googles_library(effort: tuple[int, int]) -> None:
    schemas, values = effort
    for seed in range(schemas):
        compared(seed, values)
