"""Protobuf: the texts of a registry's schemas, and values by Google's own library."""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, json_format
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from seglog.escaping import json_value
from seglog_ask.values import protobuf, protoc
from seglog_ask.values.frames import PATH_BEFORE
from seglog_ask.values.schemas import Naming, NotDecodedError, RemarkedText, Schema
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
        "at": "1970-01-01T00:00:01.000Z",
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
        (b"\0\x08", "is not a p.Z"),
        (b"\0plain text", "is not a p.Z|11 bytes are fields that p.Z does not have"),
        (b"\2\2\x1a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x10\1", "is not a p.A"),
    ],
)
def test_what_is_not_the_message_says_why(payload: bytes, said: str) -> None:
    with pytest.raises(NotDecodedError, match=said):
        decoded(payload)


WELL_KNOWN = """syntax = "proto3"; package w;
import "google/protobuf/any.proto"; import "google/protobuf/duration.proto"; import "google/protobuf/field_mask.proto";
import "google/protobuf/struct.proto"; import "google/protobuf/timestamp.proto";
message M { int32 n = 1; google.protobuf.Any any = 2; google.protobuf.Duration took = 3;
  google.protobuf.FieldMask mask = 4; google.protobuf.Value value = 5; google.protobuf.Timestamp at = 6; W within = 7; }
message W { string s = 1; repeated int32 i = 2; google.protobuf.Any any = 3; }"""


def any_of(name: str, value: bytes) -> bytes:
    """An Any."""
    url = b"type.googleapis.com/" + name.encode()
    return b"\x0a" + bytes((len(url),)) + url + b"\x12" + bytes((len(value),)) + value


def written(message: Any) -> bytes:
    return bytes(message.SerializeToString())


def field(number: int, payload: bytes) -> bytes:
    return bytes((number << 3 | 2, len(payload))) + payload


def remarked(payload: bytes, schema: str = WELL_KNOWN) -> tuple[dict[str, Any], str]:
    """A value of the first message, and what is said of it."""
    (text,) = protobuf.reader_of(Schema("PROTOBUF", schema), {})([b"\0\x08\5" + payload], PATH_BEFORE)
    found = json.loads(text_of(text))
    assert found["n"] == 5
    return found, text.why if isinstance(text, RemarkedText) else ""


@pytest.mark.parametrize(
    ("payload", "name", "shown"),
    [
        (field(2, any_of("w.W", b"\x0a\1x")), "any", {"@type": "type.googleapis.com/w.W", "s": "x", "i": []}),
        (field(2, any_of("google.protobuf.Int64Value", b"\x08\7")), "any", {"value": "7"}),  # of no file it imports
        (field(2, any_of("google.protobuf.Timestamp", b"\x08\1")), "any", {"value": "1970-01-01T00:00:01.000Z"}),
        (field(2, any_of("google.protobuf.Api", b"\x0a\1x")), "any", {"name": "x"}),
        (field(2, any_of("google.protobuf.Any", any_of("w.W", b""))), "any", {"value": {"s": "", "i": []}}),
        (field(2, b""), "any", {}),
        (field(4, b"\x0a\x09address_1\x0a\x06fooBar\x0a\x07a.b_c_d\x0a\2z_"), "mask", "address_1,fooBar,a.bCD,z_"),
        (field(5, b"\x11" + struct.pack("<d", math.nan)), "value", "NaN"),
        (field(6, written(Timestamp(seconds=253402300800))), "at", "+10000-01-01T00:00:00.000Z"),
        (
            field(6, written(Timestamp(seconds=2**63 - 1, nanos=1))),
            "at",
            "+292277026596-12-04T15:30:07.000000001Z",
        ),
        (field(3, written(Duration(seconds=-(2**63), nanos=-5000000))), "took", "-9223372036854775808.005s"),
    ],
)
def test_what_the_library_refuses_has_a_form_and_the_other_fields_stay(payload: bytes, name: str, shown: Any) -> None:
    found, why = remarked(payload)
    assert not why
    if isinstance(shown, dict):
        assert found[name].items() >= {key: one for key, one in shown.items() if not isinstance(one, dict)}.items()
    else:
        assert found[name] == shown


@pytest.mark.parametrize(
    ("payload", "name", "shown", "why"),
    [
        (
            field(2, any_of("x.Unknown", b"\1\2")),
            "any",
            {"@type": "type.googleapis.com/x.Unknown", "value_b64": "AQI="},
            "x.Unknown is not a type of its schema, so that an Any has only its bytes",
        ),
        (
            field(2, any_of("w.W", b"\x0a")),
            "any",
            {"@type": "type.googleapis.com/w.W", "value_b64": "Cg=="},
            "w.W is not what its bytes are",
        ),
        (field(2, b"\x12\1x"), "any", {"@type": "", "value_b64": "eA=="}, "nothing is not a type"),
        (
            field(2, any_of("w.W", b"\x0a\1x\x48\1")),
            "any",
            {"@type": "type.googleapis.com/w.W", "s": "x", "i": []},
            "2 bytes are fields that w.W does not have",
        ),
        (
            field(6, written(Timestamp(seconds=1, nanos=10**9))),
            "at",
            {"seconds": "1", "nanos": 10**9},
            "are not a valid Timestamp",
        ),
        (
            field(3, written(Duration(seconds=1, nanos=-1))),
            "took",
            {"seconds": "1", "nanos": -1},
            "are not a valid Duration",
        ),
        (b"\x4a\1x", "n", 5, "3 bytes are fields that w.M does not have"),
        (field(7, b"\x0a\1x\x48\1"), "within", {"s": "x", "i": []}, "2 bytes are fields that w.M does not have"),
    ],
)
def test_a_field_that_cannot_be_shown_does_not_take_its_record_with_it(
    payload: bytes, name: str, shown: Any, why: str
) -> None:
    found, said = remarked(payload)
    assert found[name] == shown and why in said


def test_types_do_not_depend_on_what_the_process_has_imported() -> None:
    """The default pool has another type of this name, as if a user's own module were imported."""
    file = descriptor_pb2.FileDescriptorProto(name="seglog_test_imported.proto", package="imported", syntax="proto3")
    file.message_type.add(name="Only").field.add(name="x", number=1, type=5, label=1)
    descriptor_pool.Default().AddSerializedFile(file.SerializeToString())
    found, why = remarked(field(2, any_of("imported.Only", b"\x08\1")))
    assert "value_b64" in found["any"] and "imported.Only is not a type" in why


def test_names_of_googles_types_with_other_fields_are_ordinary_messages() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="own.proto", package="google.protobuf", syntax="proto3")
    for name in ("Int64Value", "Timestamp"):
        file.message_type.add(name=name).field.add(name="other", number=1, type=5, label=1)
    holder = file.message_type.add(name="Holder")
    for number, name in ((1, "Int64Value"), (2, "Timestamp")):
        holder.field.add(name=f"f{number}", number=number, type=11, label=1, type_name=f".google.protobuf.{name}")
    text = base64.b64encode(file.SerializeToString()).decode()
    assert decoded(b"\2\4\x0a\2\x08\1", text) == {"f1": {"other": 1}}
    with pytest.raises(NotDecodedError, match=r"is not a google\.protobuf\.Holder"):
        decoded(b"\2\4\x12\2\x08\1", text)


EXTENDED = """syntax = "proto2"; package e; message M { optional int32 n = 1; extensions 100 to 200; }
extend M { optional string ext = 100; repeated int64 more = 101; }"""


def test_extensions_are_shown_by_their_names() -> None:
    found, why = remarked(b"\xa2\6\1x\xa8\6\1\xa8\6\2", EXTENDED)
    assert found == {"n": 5, "[e.ext]": "x", "[e.more]": ["1", "2"]} and not why


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


def descriptor(name: str, texts: dict[str, str]) -> str:
    """A file's descriptor in base64, as some serializers register it."""
    files = descriptor_pb2.FileDescriptorSet.FromString(protoc.compiled(name, texts)).file
    return base64.b64encode(next(one for one in files if one.name == name).SerializeToString()).decode()


def test_descriptors_import_googles_own_files_and_references_of_both_kinds() -> None:
    texts = {"other/place.proto": PLACE, "a.proto": SCHEMA}
    payload = b"\2\2\x08\5\x1a\2\x08\1\x2a\x07\x0a\x05\x0a\x01k\x10\x03"
    for place in (PLACE, descriptor("other/place.proto", texts)):
        read = protobuf.reader_of(
            Schema("PROTOBUF", descriptor("a.proto", texts)), {"other/place.proto": Schema("PROTOBUF", place)}
        )
        found = json.loads(text_of(*read([payload], PATH_BEFORE)))
        assert found["at"] == "1970-01-01T00:00:01.000Z" and found["place"] == {"numbers": {"k": 3}}
    with pytest.raises(NotDecodedError, match=r"other/place\.proto"):
        protobuf.reader_of(Schema("PROTOBUF", descriptor("a.proto", texts)), {})


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
        with pytest.raises(NotDecodedError, match="not a schema's path"):
            protoc.compiled("a.proto", {"a.proto": PLACE, name: PLACE})


def test_absent_fields_are_left_out_where_they_would_multiply() -> None:
    fields = "".join(f"int32 field{i} = {i + 1};" for i in range(2000))
    text = f'syntax = "proto3"; message Many {{ repeated Wide wide = 1; }} message Wide {{ {fields} }}'
    few, many = decoded(b"\0" + b"\x0a\0" * 10, text), decoded(b"\0" + b"\x0a\0" * 20_000, text)
    assert isinstance(few, dict) and len(few["wide"][0]) == 2000
    assert isinstance(many, dict) and many["wide"] == [{}] * 20_000


# --- compared with Google's own library ---------------------------------------------------------------------


WHOLE_SECOND = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)Z")  # seglog always has milliseconds


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
            value,
            preserving_proto_field_name=True,
            always_print_fields_with_no_presence=True,
            descriptor_pool=files.pool,
        )
        (text,) = read([written_path(path) + value.SerializeToString()], PATH_BEFORE)
        assert json.loads(WHOLE_SECOND.sub(r"\1.000Z", json_value(wanted))) == json.loads(text_of(text)), files.texts


def written_path(path: tuple[int, ...]) -> bytes:
    """A path as Confluent writes it."""
    return b"\0" if path == (0,) else bytes(2 * number for number in (len(path), *path))


@pytest.mark.parametrize("effort", [(12, 60), pytest.param((100, 150), marks=pytest.mark.slow)])
def test_values_of_random_schemas_are_those_of_googles_library(effort: tuple[int, int]) -> None:
    schemas, values = effort
    for seed in range(schemas):
        compared(seed, values)
