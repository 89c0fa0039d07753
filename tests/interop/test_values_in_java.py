"""Values of every logical and well-known type: every door shows the same, and Java's libraries what they decode."""

from __future__ import annotations

import base64
import json
import os
import random
import re
import subprocess
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

import seglog
from seglog_ask.values.avro import fingerprint
from seglog_ask.values.java_times import iso_date, iso_moment, iso_time_of_day
from seglog_ask.values.schemas import Schema
from tests.support.arrow_numbers import by_numbers
from tests.support.command_line import json_lines, run
from tests.support.kafka.jvm import compiled, maven_jars
from tests.support.random_values import OWN, ProtoValues, as_line, avro_kinds, avro_values, proto_text, schema_word
from tests.support.schema_registry import framed, registered, write_log

pytestmark = pytest.mark.kafka

JARS = [("org.apache.avro", "avro", "1.12.1"), ("com.google.protobuf", "protobuf-java-util", "4.33.1")]
SOURCES = Path(__file__).parents[1] / "support" / "kafka" / "values_java"
UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
AS_REGISTRY = ("--value-as", "registry")
TOLD = ("value", "value_b64", "value_error", "value_schema")
FLOATS = ("f", *(f"{start}{OWN.index('FloatValue') + 2}" for start in "fl"))
TIME = re.compile(r"\d\d:\d\d:\d\d")
ODD_PATHS = ("address_1", "fooBar", "x_")  # of masks: JSON has no name for them, and Java shows that of another path


def in_java(lines: Sequence[str]) -> list[Any]:
    """What Java's libraries make of values; None where they refuse one."""
    jars = maven_jars("values", JARS)
    classpath = os.pathsep.join((str(compiled(SOURCES, jars)), f"{jars}/*"))
    done = subprocess.run(
        ["java", "-Xmx512m", "-cp", classpath, "seglogvalues.Values"],
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
        timeout=300,
    )
    shown = done.stdout.split("\n")[:-1]
    assert len(shown) == len(lines)
    return [None if one.startswith("error: ") else json.loads(one) for one in shown]


def plain(value: Any, kind: pa.DataType, *, in_sql: bool = False) -> Any:
    """A value of a column, given by its numbers, as `read` shows it. `in_sql`: as `sql` does, for which bytes are text,
    and the largest date or time is endless.
    """
    if value is None:
        return None
    if in_sql and pa.types.is_temporal(kind) and not pa.types.is_time(kind):
        largest = 2 ** (kind.bit_width - 1) - 1
        if abs(value) == largest:
            return "infinity" if value > 0 else "-infinity"
    if in_sql and pa.types.is_binary(kind):
        return value.decode("utf-8", "backslashreplace")
    if pa.types.is_struct(kind):
        return {field.name: plain(value[field.name], field.type, in_sql=in_sql) for field in kind}
    if pa.types.is_list(kind):
        return [plain(one, kind.value_type, in_sql=in_sql) for one in value]
    if pa.types.is_map(kind):
        return {key: plain(one, kind.item_type, in_sql=in_sql) for key, one in value}
    if pa.types.is_date32(kind):
        return iso_date(value)
    if pa.types.is_time(kind):
        return iso_time_of_day(value, UNITS[kind.unit])
    if pa.types.is_timestamp(kind):
        return iso_moment(value, UNITS[kind.unit]) + ("Z" if kind.tz else "")
    if pa.types.is_decimal(kind):
        return f"{value:f}"
    if pa.types.is_binary(kind):
        return value.decode("iso-8859-1")
    if isinstance(value, float) and value - value != 0:
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    return value


def same(one: Any, other: Any, *, lacking: bool) -> bool:
    """True if two doors show the same. `lacking`: the second may have null for what it cannot hold."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name], lacking=lacking) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(same(a, b, lacking=lacking) for a, b in zip(one, other, strict=True))
    if isinstance(one, float) and isinstance(other, float):
        return repr(one) == repr(other)
    is_null = one is None and other == "null"  # a null of google.protobuf.Value, in a column of JSON
    return bool(one == other) or is_null or (lacking and other is None)


class Values(NamedTuple):
    """One value as `read` shows it, in a table, where its type is `kind`, and what both say of it."""

    read: Any
    said: str | None
    column: Any
    error: str | None
    kind: pa.DataType


def doors(directory: Path, schema: Any, kind: str, payloads: Sequence[bytes]) -> list[Values]:
    """Values as `read` and a table show them; `export` and `sql` were compared with these."""
    write_log(directory / "_schemas-0", [registered("t-value", 1, 1, schema, kind)])
    write_log(directory / "t-0", [seglog.Record(framed(1, one)) for one in payloads])
    read = json_lines(run("read", directory / "t-0", "--json", *AS_REGISTRY))
    exported = json_lines(run("export", directory / "t-0", "-o", "-", "--format", "jsonl", *AS_REGISTRY))
    assert [[one.get(name) for name in TOLD] for one in exported] == [[one.get(name) for name in TOLD] for one in read]
    table = seglog.open_table(directory / "t-0", value_as="registry").to_table()
    column, errors = table["value"].combine_chunks(), table["value_error"].to_pylist()
    asked = json_lines(run("sql", "--json", "select value, value_error from t", directory, *AS_REGISTRY))
    found = []
    for line, numbers, error, row in zip(read, by_numbers(column), errors, asked, strict=True):
        assert error is not None or "value_error" not in line, line
        assert row["value_error"] is not None or error is None
        shown = plain(numbers, column.type, in_sql=True)
        assert same(shown, row["value"], lacking=row["value_error"] is not None), (line, row)
        found.append(Values(line["value"], line.get("value_error"), plain(numbers, column.type), error, column.type))
    return found


def normal(value: Any, *, are_numbers: bool = False) -> Any:
    """A value with times without zeros at their ends, and texts that are decimal numbers as numbers if they are."""
    if isinstance(value, dict):
        return {name: normal(one, are_numbers=are_numbers) for name, one in value.items()}
    if isinstance(value, list):
        return [normal(one, are_numbers=are_numbers) for one in value]
    if isinstance(value, str) and are_numbers:
        return Decimal(value)
    if isinstance(value, str) and TIME.search(value):
        return re.sub(r"\.(\d*?)0*(Z?)$", r".\1\2", value).replace(".Z", "Z").removesuffix(".")
    return value


@pytest.mark.parametrize("count", [12, pytest.param(210, marks=pytest.mark.slow)])
def test_avros_logical_types_are_the_same_in_every_door_and_in_java(count: int, tmp_path: Path) -> None:
    draw, shown, lines = random.Random(count), list[tuple[str, Values]](), list[str]()
    for kind in avro_kinds():
        schema, payloads = avro_values(kind, count, draw)
        values = doors(tmp_path / kind.name, schema, "AVRO", payloads)
        assert all(same(one.read, one.column, lacking=one.error is not None) for one in values), kind.name
        shown += [(kind.name, one) for one in values]
        lines += [as_line("avro", schema_word(schema), one) for one in payloads]
    decoded = 0
    for (name, ours), theirs in zip(shown, in_java(lines), strict=True):
        if theirs is not None:  # Java refuses times of day out of range, broken numbers, and empty ones
            decoded += 1
            assert ours.said is None, (ours, theirs)
            wanted, found = ({**one, "f0": None} for one in (theirs, ours.read))
            assert normal(found, are_numbers=name == "big_decimal") == normal(wanted, are_numbers=name == "big_decimal")
    assert decoded > 0.8 * len(lines)


def test_fingerprints_are_those_of_java() -> None:
    schemas = [avro_values(kind, 0, random.Random(1))[0] for kind in avro_kinds()]
    theirs = in_java([as_line("fingerprint", schema_word(one)) for one in schemas])
    ours = [fingerprint(Schema("AVRO", json.dumps(one))) for one in schemas]
    assert [int.from_bytes(one, "little") for one in ours] == theirs


def as_column(shown: Any, kind: pa.DataType) -> Any:
    """What `read` shows of Protobuf, as a column of a type has it."""
    if shown is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: as_column(shown.get(field.name), field.type) for field in kind}
    if pa.types.is_list(kind):
        return [as_column(one, kind.value_type) for one in shown]
    if pa.types.is_map(kind):
        return {key: as_column(one, kind.item_type) for key, one in shown.items()}
    if pa.types.is_decimal(kind):
        return f"{Decimal(shown.removesuffix('s')):.{kind.scale}f}" if isinstance(shown, str) else shown
    if pa.types.is_integer(kind):
        return int(shown)
    if pa.types.is_binary(kind):
        return base64.b64decode(shown).decode("iso-8859-1")
    if pa.types.is_float32(kind) and not isinstance(shown, str):
        return pa.scalar(shown, pa.float32()).as_py()
    if pa.types.is_string(kind) and not isinstance(shown, str):
        return json.dumps(shown, ensure_ascii=False, separators=(",", ":"))
    return shown


def in_32_bits(message: dict[str, Any]) -> dict[str, Any]:
    """A message whose numbers of 32 bits are exact, as older Javas write more digits than they need."""

    def exact(value: Any) -> Any:
        if isinstance(value, list):
            return [exact(one) for one in value]
        return value if isinstance(value, str) else float(np.float32(value))

    return {name: exact(one) if name in FLOATS else one for name, one in message.items()}


@pytest.mark.parametrize("count", [200, pytest.param(5000, marks=pytest.mark.slow)])
def test_protobufs_well_known_types_are_the_same_in_every_door_and_in_java(count: int, tmp_path: Path) -> None:
    maker = ProtoValues(random.Random(count))
    payloads = [maker.value() for _ in range(count)]
    values = doors(tmp_path, proto_text(), "PROTOBUF", [b"\0" + one for one in payloads])
    for one in values:
        wanted = as_column(one.read, one.kind)
        wrong = [name for name in wanted if not same(wanted[name], one.column[name], lacking=one.error is not None)]
        assert not wrong, [(name, wanted[name], one.column[name]) for name in wrong]
    decoded = 0
    java = in_java([as_line("protobuf", maker.descriptors, "w.M", one) for one in payloads])
    for ours, theirs in zip(values, java, strict=True):
        if theirs is None or any(path in str(ours.read) for path in ODD_PATHS):
            continue  # Java refuses times out of range and unknown types
        decoded += 1
        assert ours.said is None and normal(in_32_bits(ours.read)) == normal(in_32_bits(theirs))
    assert decoded > 0.3 * count
