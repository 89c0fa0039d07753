"""Forms of answers: each of DuckDB's types, in each that holds others, beside DuckDB's own text of the value."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("duckdb")
pytest.importorskip("pyarrow")

import duckdb
import pyarrow.parquet as pq

import seglog
from tests.support import effort
from tests.support.command_line import json_lines, run

LITERALS = {
    "boolean": ["true", "false"],
    "tinyint": ["(-128)::tinyint"],
    "ubigint": ["18446744073709551615::ubigint"],
    "bigint": ["(-9223372036854775807)::bigint"],
    "hugeint": [
        "170141183460469231731687303715884105727::hugeint",
        "(-170141183460469231731687303715884105727)::hugeint",
    ],
    "uhugeint": ["340282366920938463463374607431768211455::uhugeint", "0::uhugeint"],
    "bignum": ["123456789012345678901234567890123456789012345678901234567890::bignum", "(-256)::bignum", "0::bignum"],
    "double": ["0.1::double", "1e300::double", "'nan'::double", "'-inf'::double", "'inf'::double", "-0.0::double"],
    "float": ["0.5::float", "'nan'::float"],
    "decimal": [
        "12345678901234567.89::decimal(30,2)",
        "0.10::decimal(4,2)",
        "(-0.00000001)::decimal(38,8)",
        "0::decimal(38,38)",
        "99999999999999999999999999999999999999::decimal(38,0)",
    ],
    "varchar": ["'a''b'", "''", "'\u00e9\n'"],
    "blob": ["'a\\xFF'::blob", "''::blob", "'abc'::blob"],
    "bit": ["'0101'::bit", "'1'::bit", "'101010101010'::bit"],
    "date": [
        *("'2020-02-29'::date", "'infinity'::date", "'-infinity'::date", "'5000000-01-01'::date"),
        *("'0044-03-15 (BC)'::date", "'10000-01-01'::date", "'0001-01-01'::date", "'0001-12-31 (BC)'::date"),
    ],
    "time": ["'10:00:00'::time", "'24:00:00'::time", "'00:00:00.000001'::time"],
    "time_ns": ["'10:00:00.123456789'::time_ns", "'10:00:00.5'::time_ns"],
    "timetz": ["'10:00:00+02:00'::timetz", "'00:00:00.5-15:59'::timetz", "'24:00:00+00'::timetz"],
    "timestamp": ["'2020-01-01 00:00:00.123456'::timestamp", "'infinity'::timestamp", "'290000-01-01'::timestamp"],
    "timestamp_s": ["'2020-01-01 10:00:01'::timestamp_s", "'-infinity'::timestamp_s", "'290000-01-01'::timestamp_s"],
    "timestamp_ms": ["'2020-01-01 00:00:00.001'::timestamp_ms", "'infinity'::timestamp_ms"],
    "timestamp_ns": ["'2020-01-01 00:00:00.123456789'::timestamp_ns", "'infinity'::timestamp_ns"],
    "timestamptz": [
        *("'1969-12-31 23:59:59.999'::timestamptz", "'12000-01-01'::timestamptz", "'infinity'::timestamptz"),
        *("'290000-01-01 (BC)'::timestamptz", "'-infinity'::timestamptz"),
    ],
    "interval": [
        *("interval '1 month 2 days 3 seconds'", "to_microseconds(9223372036854775807)", "to_hours(-30000000)"),
        *("interval '-1 year 2 months'", "interval '05:01:33.876'", "interval '0 days'"),
    ],
    "uuid": ["'123e4567-e89b-12d3-a456-426614174000'::uuid", "'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid"],
    "enum": ["'b'::enum('a','b')"],
    "json": ["""'{"a": 1}'::json""", "'[]'::json"],
    "variant": ["{'a': 1}::variant", "'x'::variant", "interval 1 day::variant", "1.50::variant"],
    "null": ["null"],
}
DATED = ("date", "timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns", "timestamptz")
_DATE = re.compile(r"(\d+)-(\d\d-\d\d)( \(BC\))?")


def leaf(kind: str, literal: str) -> Any:
    """Returns the form that a value must have, from what DuckDB itself says of it."""
    query = f"select x, {'x::json::varchar' if kind == 'variant' else 'x::varchar'} from (select {literal} as x)"
    with duckdb.connect(config={"enable_external_access": False}) as connection:
        connection.execute("set TimeZone = 'UTC'")
        ((text,),) = connection.execute(f"select t from ({query}) as q(x, t)").fetchall()
        if text is None or kind in ("boolean", "double", "float"):
            ((value,),) = connection.execute(f"select {literal}").fetchall()
            return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(str(value), value)
        if kind == "blob":
            ((value,),) = connection.execute(f"select {literal}").fetchall()
            return value.decode("utf-8", "backslashreplace")
    if kind in DATED and "infinity" not in text:
        return iso(text, kind)
    if kind in ("time", "time_ns"):
        return clock(text)
    if kind == "decimal":
        return re.sub(r"^(-?)\.", r"\g<1>0.", text)
    return int(text) if kind.endswith("int") else text


def iso(text: str, kind: str) -> str:
    found = _DATE.match(text)
    assert found is not None
    year = 1 - int(found[1]) if found[3] else int(found[1])
    day = f"{f'{year:04d}' if 0 <= year <= 9999 else f'{year:+05d}'}-{found[2]}"
    rest = text[found.end() :].strip()
    if kind == "date":
        return day
    return f"{day}T{clock(rest.removesuffix('+00'))}{'Z' if kind == 'timestamptz' else ''}"


def clock(text: str) -> str:
    whole, _, below = text.partition(".")
    return f"{whole}.{below.ljust(-(-max(len(below), 1) // 3) * 3, '0')}"


def drawn(draw: random.Random, depth: int) -> tuple[str, Any]:
    """Returns an expression of a random type, and the form of its value."""
    how = draw.randrange(8) if depth else 0
    if how < 2:
        kind = draw.choice(sorted(LITERALS))
        literal = draw.choice(LITERALS[kind])
        return literal, leaf(kind, literal)
    one, form = drawn(draw, depth - 1)
    if how == 2:
        return f"[{one}, null, {one}]", [form, None, form]
    if how == 3:
        other, beside = drawn(draw, depth - 1)
        return f"{{'a b': {one}, 'C': {other}}}", {"a b": form, "C": beside}
    if how == 4:
        return f"map {{'k': {one}, '': null}}", {"k": form, "": None}
    if how == 5:
        return f"array_value({one}, {one})", [form, form]
    if how == 6:
        return f"union_value(m := {one})", form
    if form is None or form == []:
        return one, form
    key = form if isinstance(form, str) else json.dumps(form, ensure_ascii=False)
    return f"map([{one}], [1])", {key: 1}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("logs") / "t-0"
    with seglog.open_log(path, create=True) as log:
        log.append([seglog.Record(b"v")])
    return path


def rows(query: str, log: Path) -> list[dict[str, Any]]:
    done = run("sql", query, log, "--json")
    assert done.exit_code == 0, (query, done.stderr)
    return json_lines(done)


@pytest.mark.parametrize("kind", sorted(LITERALS))
def test_each_type_has_its_form_alone_and_within_each_other(kind: str, log: Path, tmp_path: Path) -> None:
    for literal in LITERALS[kind]:
        form = leaf(kind, literal)
        within = {
            "a": (literal, form),
            "l": (f"[null, {literal}]", [None, form]),
            "s": (f"{{'x': {literal}}}", {"x": form}),
            "m": (f"map {{'k': {literal}}}", {"k": form}),
            "f": (f"array_value({literal}, null)", [form, None]),
            "w": (f"union_value(m := {literal})", form),
            "d": (f"{{'x': [map {{1: {{'y': [{literal}]}}}}]}}", {"x": [{"1": {"y": [form]}}]}),
        }
        columns = ", ".join(f"{one} as {name}" for name, (one, _) in within.items())
        (found,) = rows(f"select {columns}", log)
        assert found == {name: shown for name, (_, shown) in within.items()}, literal
        path = tmp_path / "o.parquet"
        done = run("sql", f"select {columns}", log, "-o", path, "--replace")
        assert done.exit_code in (0, 2), done.stderr
        assert done.exit_code == 0 or "DECIMAL" in done.stderr
        assert done.exit_code or pq.read_metadata(path).num_rows == 1


@pytest.mark.parametrize("seed", range(effort.first_seed(1), effort.first_seed(1) + effort.tries(4)))
def test_random_types_within_each_other_have_the_forms_of_their_parts(log: Path, seed: int) -> None:
    draw = random.Random(seed)
    several = [drawn(draw, 3) for _ in range(8)]
    columns = ", ".join(f"case when i % 3 = 1 then null else {one} end as c{n}" for n, (one, _) in enumerate(several))
    query = f"select {columns} from range(5) as t(i)"
    expected = {f"c{n}": form for n, (_, form) in enumerate(several)}
    assert rows(query, log) == [dict.fromkeys(expected) if i % 3 == 1 else expected for i in range(5)], columns
    for form in ([], ["--csv"]):
        assert run("sql", query, log, *form).exit_code == 0, columns
