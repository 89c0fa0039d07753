"""Values into slots: compiled and interpreted kernels agree on values that are whole, cut, or anything at all."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglog.kernels import avro_values, protobuf_values, value_slots
from seglog.values import avro_columns, protobuf_columns
from seglog.values.schemas import Schema
from tests.support.interpreted import both
from tests.support.schema_registry import avro

AVRO: dict[str, Any] = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "a", "type": "int"},
        {"name": "b", "type": ["null", {"type": "record", "name": "S", "fields": [{"name": "x", "type": "string"}]}]},
        {"name": "c", "type": ["double", "null"]},
        {"name": "d", "type": "float"},
        {"name": "e", "type": {"type": "fixed", "name": "F", "size": 3}},
        {"name": "f", "type": "boolean"},
        {"name": "g", "type": "null"},
        {"name": "h", "type": "long"},
    ],
}
GOOD = [
    avro(AVRO, {"a": -3, "b": {"x": "text"}, "c": 1.5, "d": 2.5, "e": b"abc", "f": True, "g": None, "h": 2**62}),
    avro(AVRO, {"a": 2**31 - 1, "b": None, "c": None, "d": 0.0, "e": b"\0\1\2", "f": False, "g": None, "h": -1}),
]
PROTO = """syntax = "proto3"; message M { int32 a = 1; sint64 b = 2; uint32 c = 3; bool d = 4; double e = 5;
  float f = 6; string g = 7; Within h = 8; optional fixed32 i = 9; oneof o { sint32 j = 10; bytes k = 200; }
  sfixed32 l = 12; }
message Within { string x = 1; Deep y = 2; } message Deep { int64 z = 5; }"""
MESSAGE = bytes.fromhex(
    "08fdffffffffffffffff01 1003 18ffffffff0f 2001 29000000000000f83f 3500000040 3a0161"
    "420a 0a0178 1205 2880808001 4d01000000 5007 65ffffffff"
)
values = st.lists(
    st.one_of(
        st.none(),
        st.binary(max_size=40),
        st.sampled_from([*GOOD, MESSAGE]),
        st.tuples(st.sampled_from([*GOOD, MESSAGE]), st.integers(0, 40), st.binary(max_size=3)).map(
            lambda parts: parts[0][: parts[1]] + parts[2] + parts[0][parts[1] + len(parts[2]) :]
        ),
    ),
    max_size=6,
)


def laid_out(data: list[bytes | None]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """An arena with the values one after the other, their positions and sizes."""
    arena = np.frombuffer(b"".join(one or b"" for one in data), dtype=np.uint8)
    sizes = np.array([-1 if one is None else len(one) for one in data], dtype=np.int32)
    ends = np.cumsum(np.maximum(sizes, 0), dtype=np.int32)
    return arena, ends - np.maximum(sizes, 0), sizes


def outputs(slots: int, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Outputs that nobody has written to."""
    return np.full(slots * rows, 7, np.int64), np.full(slots * rows, 7, np.int32), np.full(rows, 7, np.int8)


@given(data=values, skipped=st.integers(0, 2), block=st.integers(1, 4))
def test_avro_is_decoded_alike_by_both(data: list[bytes | None], skipped: int, block: int) -> None:
    program = avro_columns.described(Schema("AVRO", json.dumps(AVRO)), {}).program
    assert isinstance(program, avro_columns.AvroProgram)
    found = []
    for kernel in both(avro_values, "decode_avro"):
        out, room = outputs(program.slots, len(data)), np.zeros((block, 3), dtype=np.int64)
        broken = kernel(*laid_out(data), skipped, program.operations, program.slots, room, *out)
        found.append((broken, *(one.tolist() for one in out)))
    assert found[0] == found[1]
    assert found[0][0] == found[0][3].count(value_slots.BROKEN)
    whole = [one is not None and one[skipped:] in GOOD for one in data]
    assert all(status == value_slots.DECODED for status, is_whole in zip(found[0][3], whole, strict=True) if is_whole)


@given(data=values, skipped=st.integers(0, 2))
def test_protobuf_is_decoded_alike_by_both(data: list[bytes | None], skipped: int) -> None:
    program = protobuf_columns.described(Schema("PROTOBUF", PROTO), {}, (0,)).program
    assert isinstance(program, protobuf_columns.ProtobufProgram)
    found = []
    for kernel in both(protobuf_values, "decode_protobuf"):
        out, stack = outputs(program.slots, len(data)), np.zeros(2 * protobuf_values.MOST_LEVELS, dtype=np.int64)
        broken = kernel(*laid_out(data), skipped, *program.tables, stack, *out)
        found.append((broken, *(one.tolist() for one in out)))
    assert found[0] == found[1]
    assert found[0][0] == found[0][3].count(value_slots.BROKEN)
    whole = [one is not None and one[skipped:] == MESSAGE for one in data]
    assert all(status == value_slots.DECODED for status, is_whole in zip(found[0][3], whole, strict=True) if is_whole)


@given(data=values)
def test_ids_of_frames_are_found_alike_by_both(data: list[bytes | None]) -> None:
    framed = [b"\0\0\0\1\5x", b"\0\0\0\0\0\0", b"\0\0\0\1", *data, None]
    found = []
    for kernel in both(value_slots, "frame_ids"):
        out = np.full(len(framed), 7, dtype=np.int64)
        found.append((kernel(*laid_out(framed), out), out.tolist()))
    assert found[0] == found[1]
    assert found[0][1][:3] == [261, value_slots.NO_PLAIN_FRAME, value_slots.NO_PLAIN_FRAME]
    assert found[0][1][-1] == value_slots.NULL_VALUE


BAD_OPERATIONS = [
    (9, 0, 0, 0, 0, 0),
    (-1, 0, 0, 0, 0, 0),
    (avro_values.NUMBER, 1, 0, 0, 0, 0),
    (avro_values.NUMBER, -1, 0, 0, 0, 0),
    (avro_values.OPTIONAL, 0, 0, 0, 0, 1),
    (avro_values.OPTIONAL, 0, 0, 2, 0, 1),
    (avro_values.OPTIONAL, 0, 0, 1, -1, 1),
    (avro_values.OPTIONAL, 0, 0, 1, 0, 2),
    (avro_values.FIXED, 0, -1, 0, 0, 0),
]


@pytest.mark.parametrize("operation", BAD_OPERATIONS)
def test_a_program_that_names_what_is_not_there_is_refused(operation: tuple[int, ...]) -> None:
    for kernel in both(avro_values, "decode_avro"):
        room = np.zeros((1, 3), dtype=np.int64)
        program = np.array([operation], dtype=np.int64)
        assert kernel(*laid_out([b"\0"]), 0, program, 1, room, *outputs(1, 1)) == avro_values.BAD_PROGRAM


@pytest.mark.parametrize(
    ("messages", "fields"),
    [
        ([], []),
        ([[0, 2, 0, 1]], [[1, 0, 0, 1, 0, 0, 0]]),
        ([[0, 1, 0, 2]], [[1, 0, 0, 1, 0, 0, 0]]),
        ([[0, 1, 0, 1]], [[1, 11, 0, 1, 0, 0, 0]]),
        ([[0, 1, 0, 1]], [[1, 0, 1, 1, 0, 0, 0]]),
        ([[0, 1, 0, 1]], [[1, 0, 0, 1, 1, 0, 0]]),
        ([[0, 1, 0, 1]], [[1, 0, 0, 1, 0, 0, 2]]),
    ],
)
def test_tables_that_name_what_is_not_there_are_refused(messages: list[list[int]], fields: list[list[int]]) -> None:
    tables = np.array(messages, dtype=np.int64).reshape(-1, 4), np.array(fields, dtype=np.int64).reshape(-1, 7)
    one, stack = np.zeros(1, dtype=np.int32), np.zeros(2 * protobuf_values.MOST_LEVELS, dtype=np.int64)
    for kernel in both(protobuf_values, "decode_protobuf"):
        done = kernel(*laid_out([b"\x08\1"]), 0, *tables, one, one, stack, *outputs(1, 1))
        assert done == protobuf_values.BAD_TABLES
