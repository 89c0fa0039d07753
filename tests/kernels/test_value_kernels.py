"""Values into slots: compiled and interpreted kernels agree on values that are whole, cut, or anything at all."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglog.kernels import avro_values, protobuf_values, value_slots
from seglog_ask.values import avro_columns, protobuf_columns
from seglog_ask.values.schemas import Schema
from seglog_ask.values.shapes import Program
from tests.support.interpreted import both
from tests.support.schema_registry import avro

LISTS = {"name": "z", "type": {"type": "array", "items": {"type": "array", "items": "boolean"}}}
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
        {"name": "i", "type": ["null", {"type": "array", "items": "int"}]},
        {
            "name": "j",
            "type": {
                "type": "map",
                "values": {"type": "record", "name": "T", "fields": [{"name": "y", "type": ["string", "null"]}, LISTS]},
            },
        },
    ],
}
PLAIN = {"a": -3, "b": {"x": "text"}, "c": 1.5, "d": 2.5, "e": b"abc", "f": True, "g": None, "h": 2**62}
OTHER = {"a": 2**31 - 1, "b": None, "c": None, "d": 0.0, "e": b"\0\1\2", "f": False, "g": None, "h": -1}
MAP = {"k": {"y": "text", "z": [[True, False], [], [True]]}, "l": {"y": None, "z": []}}
GOOD = [
    avro(AVRO, {**PLAIN, "i": [1, -2, 300], "j": MAP}),
    avro(AVRO, {**OTHER, "i": None, "j": {}}),
    avro(AVRO, {**OTHER, "i": [], "j": {}})[:-2] + b"\3\4\2\4\2\6\0\0",  # a block with its size, and one without
]
PROTO = """syntax = "proto3"; message M { int32 a = 1; sint64 b = 2; uint32 c = 3; bool d = 4; double e = 5;
  float f = 6; string g = 7; Within h = 8; optional fixed32 i = 9; oneof o { sint32 j = 10; bytes k = 200; }
  sfixed32 l = 12; repeated sint32 m = 13; repeated string n = 14; repeated Deep r = 15; map<string, Deep> p = 16;
  repeated fixed32 q = 17; }
message Within { string x = 1; Deep y = 2; repeated Deep w = 3; } message Deep { int64 z = 5; repeated bool b = 6; }"""
MESSAGE = bytes.fromhex(
    "08fdffffffffffffffff01 1003 18ffffffff0f 2001 29000000000000f83f 3500000040 3a0161"
    "420a 0a0178 1205 2880808001 4d01000000 5007 65ffffffff 6a0303ff01 6801 720161 7200"
    "7a0632040001ac02 7a022805 820105 0a016b 1200 8a010401000000 8d0102000000"
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


def outputs(numbers: int, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Outputs that nobody has written to."""
    return np.full(numbers, 7, np.int64), np.full(numbers, 7, np.int32), np.full(rows, 7, np.int8)


def laid_out_for(program: Program, rows: int, room: int) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    """The tables of a program, with room for so many items of each list, and outputs."""
    tables, numbers = program.laid_out([rows, *(room for _ in program.sizes[1:])])
    return tables, outputs(numbers, rows)


@given(data=values, skipped=st.integers(0, 2), block=st.integers(1, 4), room=st.integers(1, 9))
def test_avro_is_decoded_alike_by_both(data: list[bytes | None], skipped: int, block: int, room: int) -> None:
    program = avro_columns.described(Schema("AVRO", json.dumps(AVRO)), {}).program
    assert isinstance(program, avro_columns.AvroProgram)
    found = []
    for kernel in both(avro_values, "decode_avro"):
        tables, out = laid_out_for(program, len(data), room)
        stack, places = np.zeros(value_slots.STACK, dtype=np.int64), np.zeros((block, 3), dtype=np.int64)
        broken = kernel(*laid_out(data), skipped, program.operations, tables, stack, places, *out)
        found.append((broken, *(one.tolist() for one in (*out, tables))))
    assert found[0] == found[1]
    assert found[0][0] == found[0][3].count(value_slots.BROKEN)
    whole = [one is not None and one[skipped:] in GOOD for one in data]
    assert all(status == value_slots.DECODED for status, is_whole in zip(found[0][3], whole, strict=True) if is_whole)


@given(data=values, skipped=st.integers(0, 2), room=st.integers(1, 9))
def test_protobuf_is_decoded_alike_by_both(data: list[bytes | None], skipped: int, room: int) -> None:
    program = protobuf_columns.described(Schema("PROTOBUF", PROTO), {}, (0,)).program
    assert isinstance(program, protobuf_columns.ProtobufProgram)
    found = []
    for kernel in both(protobuf_values, "decode_protobuf"):
        tables, out = laid_out_for(program, len(data), room)
        stack = np.zeros(value_slots.STACK, dtype=np.int64)
        broken = kernel(*laid_out(data), skipped, *program.tables, tables, stack, *out)
        found.append((broken, *(one.tolist() for one in (*out, tables))))
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


@given(
    maps=st.lists(st.lists(st.binary(max_size=2), max_size=20), max_size=5),
    are_texts=st.booleans(),
    seeds=st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=4, max_size=4),
)
def test_keys_that_are_there_twice_are_found_by_both(
    maps: list[list[bytes]], are_texts: bool, seeds: list[int]
) -> None:
    keys = [one for keys in maps for one in keys]
    arena, positions, sizes = laid_out(list(keys))
    numbers = positions.astype(np.int64) if are_texts else np.array([int.from_bytes(one) for one in keys], np.int64)
    naive = [len({(one if are_texts else int.from_bytes(one)) for one in keys}) < len(keys) for keys in maps]
    counts = np.array(list(map(len, maps)), dtype=np.int64)
    for kernel in both(value_slots, "mark_twins"):
        places, marks = np.full(64, -1, dtype=np.int64), np.full(len(maps), 7, dtype=np.int8)
        found = kernel(arena, counts, numbers, sizes, are_texts, np.array(seeds, dtype=np.int64), places, marks)
        assert (found, marks.tolist()) == (sum(naive), list(map(int, naive)))


def test_keys_that_do_not_fit_are_refused() -> None:
    keys, seeds = np.zeros(9, dtype=np.int64), np.zeros(4, dtype=np.int64)
    marks, arena = np.zeros(1, dtype=np.int8), np.zeros(0, dtype=np.uint8)
    for kernel in both(value_slots, "mark_twins"):
        for count, room in ((10, 64), (-1, 64), (9, 16)):
            places = np.full(room, -1, dtype=np.int64)
            counts = np.array([count], dtype=np.int64)
            assert kernel(arena, counts, keys, keys.astype(np.int32), False, seeds, places, marks) == -1


BAD_OPERATIONS = [
    (10, 0, 0, 0, 0, 0),
    (-1, 0, 0, 0, 0, 0),
    (avro_values.NUMBER, 1, 0, 0, 0, 0),
    (avro_values.NUMBER, -1, 0, 0, 0, 0),
    (avro_values.OPTIONAL, 0, 0, 0, 0, 1),
    (avro_values.OPTIONAL, 0, 0, 3, 0, 1),
    (avro_values.OPTIONAL, 0, 0, 1, -1, 1),
    (avro_values.OPTIONAL, 0, 0, 1, 0, 2),
    (avro_values.FIXED, 0, -1, 0, 0, 0),
    (avro_values.LIST, 0, 1, 1, 0, 2),
    (avro_values.LIST, 0, 0, 2, 0, 2),
    (avro_values.LIST, 0, 1, 2, 0, 3),
    (avro_values.LIST, 0, 1, 3, 0, 2),
    (avro_values.LIST, 1, 1, 2, 0, 2),
    (avro_values.LIST, 0, 1, 2, 0, 2),  # whose item is in the slot of the list
]
TABLES = [(0, 1, 0, 1, 0, 0), (1, 2, 0, 1, 0, 0)]


@pytest.mark.parametrize("operation", BAD_OPERATIONS)
def test_a_program_that_names_what_is_not_there_is_refused(operation: tuple[int, ...]) -> None:
    assert run([operation, (avro_values.BOOLEAN, 0, 0, 0, 0, 0)], TABLES) == [avro_values.BAD_PROGRAM] * 2


def run(program: list[tuple[int, ...]], tables: list[tuple[int, ...]]) -> list[int]:
    """What the kernels say of a program for the value 0, and tables."""
    found = []
    for kernel in both(avro_values, "decode_avro"):
        stack, places = np.zeros(value_slots.STACK, dtype=np.int64), np.zeros((1, 3), dtype=np.int64)
        given_tables = np.array(tables, dtype=np.int64).reshape(-1, 6)
        made = np.array(program, dtype=np.int64)
        found.append(kernel(*laid_out([b"\0"]), 0, made, given_tables, stack, places, *outputs(2, 1)))
    return found


@pytest.mark.parametrize(
    "tables",
    [
        [],
        [(0, 1, 0, 2, 0, 0)],
        [(0, 1, 1, 1, 0, 0)],
        [(1, 1, 0, 1, 0, 0)],
        [(0, 3, 0, 1, 0, 0)],
        [(0, 1, 0, 1, 0, 0), (1, 2, 0, 0, 0, 0)],
        [(0, 1, 0, 1, 0, 0), (1, 2, 1, 1, 0, 0)],
        [(0, 1, 0, 1, 0, 0), (1, 2, -2, 1, 0, 0)],
        [(0, 1, 0, 1, 0, 0), (2, 1, 0, 1, 0, 0)],
        [(0, 1, 0, 1, 0, 0), (1, 2, 0, 1, -1, 0)],
    ],
)
def test_tables_outside_of_the_arrays_are_refused(tables: list[tuple[int, ...]]) -> None:
    program = [(avro_values.BOOLEAN, 0, 0, 0, 0, 0)]
    assert run(program, TABLES) == [0, 0] and run(program, tables) == [avro_values.BAD_PROGRAM] * 2


FIELD, MESSAGE_ROW = (1, 0, 0, 1, 0, 0, 0, 0), (0, 1, 0, 1, 0)


def changed(row: tuple[int, ...], column: int, number: int) -> tuple[int, ...]:
    return (*row[:column], number, *row[column + 1 :])


def run_tables(messages: list[tuple[int, ...]], fields: list[tuple[int, ...]]) -> list[int]:
    """What the kernels say of messages and fields for the value of a field 1."""
    found = []
    for kernel in both(protobuf_values, "decode_protobuf"):
        tables = np.array(messages, dtype=np.int64).reshape(-1, 5), np.array(fields, dtype=np.int64).reshape(-1, 8)
        two, stack = np.zeros(2, dtype=np.int32), np.zeros(value_slots.STACK, dtype=np.int64)
        of_slots = np.array(TABLES, dtype=np.int64)
        found.append(kernel(*laid_out([b"\x08\1"]), 0, *tables, two, two, of_slots, stack, *outputs(2, 1)))
    return found


@pytest.mark.parametrize(("column", "number"), [(0, -1), (1, 2), (1, -1), (2, -1), (3, 2), (4, 1), (4, 2), (4, -1)])
def test_messages_that_name_what_is_not_there_are_refused(column: int, number: int) -> None:
    assert run_tables([MESSAGE_ROW], [FIELD]) == [0, 0]
    assert run_tables([changed(MESSAGE_ROW, column, number)], [FIELD]) == [protobuf_values.BAD_TABLES] * 2
    assert run_tables([], []) == [protobuf_values.BAD_TABLES] * 2


@pytest.mark.parametrize(
    ("column", "number"), [(1, 11), (1, -1), (2, 1), (2, -1), (4, 1), (4, -1), (5, -1), (6, 2), (7, 2), (7, -1)]
)
def test_fields_that_name_what_is_not_there_are_refused(column: int, number: int) -> None:
    assert run_tables([MESSAGE_ROW], [changed(FIELD, column, number)]) == [protobuf_values.BAD_TABLES] * 2


def test_items_are_in_the_table_of_their_message() -> None:
    within = changed(FIELD, protobuf_values.KIND, protobuf_values.WITHIN)
    lists = changed(within, protobuf_values.KIND, protobuf_values.REPEATED + protobuf_values.WITHIN)
    lists = changed(lists, protobuf_values.ITEMS_TABLE, 1)
    item = changed(changed(MESSAGE_ROW, 2, 1), 3, 2)
    bad = [protobuf_values.BAD_TABLES] * 2
    assert run_tables([MESSAGE_ROW], [lists]) == bad
    assert run_tables([MESSAGE_ROW, (1, 1, 1, 2, 1)], [changed(within, protobuf_values.MESSAGE, 1)]) == bad
    assert run_tables([MESSAGE_ROW, item], [changed(lists, protobuf_values.MESSAGE, 1)]) == bad
    good = [MESSAGE_ROW, (1, 1, 1, 2, 1)], [changed(lists, protobuf_values.MESSAGE, 1)]
    assert run_tables(*good) == [1, 1]  # the value is a number, no message
