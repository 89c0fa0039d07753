"""`seglog sql`: tables and forms of answers, errors that help, and what a query must not do."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("duckdb")
pytest.importorskip("pyarrow")

import pyarrow.parquet as pq

import seglog
from tests.support import effort, random_queries
from tests.support.command_line import ROOT, clean_logs, json_lines, run
from tests.support.naive import NaiveRecord, batch_v2
from tests.support.terminals import on_terminal


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return clean_logs(tmp_path)


def sql(query: str, *arguments: object) -> list[dict]:
    done = run("sql", query, *arguments, "--json")
    assert done.exit_code == 0, done.stderr
    return json_lines(done)


def refused(query: str, *arguments: object, code: int = 2) -> str:
    done = run("sql", query, *arguments)
    assert (done.exit_code, done.stdout) == (code, ""), done.stderr
    return done.stderr


def test_topics_are_tables_with_readable_keys_and_values(logs: Path) -> None:
    with seglog.open_log(logs / "payments-0") as log:
        records = list(log.records())
    rows = sql('select "offset", key, value, key_bytes, octet_length(value_bytes) size from payments', logs)
    assert [row["offset"] for row in rows] == [record.offset for record in records]
    assert [row["key"] for row in rows] == [record.key.decode() for record in records]
    assert [row["size"] for row in rows] == [None if record.value is None else len(record.value) for record in records]
    assert rows[0]["key_bytes"] == rows[0]["key"]
    cities = sql("select value->>'city' city, count(*) n from \"orders-lz4\" group by all order by n desc", logs)
    assert sum(row["n"] for row in cities) == seglog.open_table(logs / "orders-lz4").count_rows()
    (found,) = sql("select count(*) n, min(topic) first from records", logs)
    assert (found["first"], found["n"]) == ("__cluster_metadata", seglog.open_table(logs).count_rows())


def test_bytes_that_are_no_text_are_escaped_and_headers_are_text(tmp_path: Path) -> None:
    with seglog.open_log(tmp_path / "t-0", create=True) as log:
        headers = (seglog.Header("h", b"\xff"), seglog.Header("i", None))
        log.append([seglog.Record(b"a\xffb", b"k", 1000, headers), seglog.Record(None, None)])
    first, second = sql("select key, value, headers, timestamp from t", tmp_path)
    assert (first["value"], first["timestamp"]) == ("a\\xffb", "1970-01-01T00:00:01.000Z")
    assert first["headers"] == [{"key": "h", "value": "\\xff"}, {"key": "i", "value": None}]
    assert (second["key"], second["value"], second["headers"]) == (None, None, None)
    assert sql("select key from t where value_bytes = 'a\\xFFb'::blob", tmp_path) == [{"key": "k"}]


@pytest.mark.parametrize("table", ["records", "batches", "segments"])
def test_a_directory_whose_name_is_not_utf_8_is_a_topic_too(logs: Path, table: str) -> None:
    partition = (logs / "orders-none-0").rename(logs / os.fsdecode(b"b\xff-0"))
    (row,) = sql(f"select distinct topic, partition from {table}", partition)
    assert row == {"topic": "b\ufffd-0", "partition": 0}


def test_what_else_a_log_directory_tells(logs: Path) -> None:
    def count(table: str) -> int:
        return int(sql(f"select count(*) n from {table}", logs)[0]["n"])

    assert count("batches") == count("batches a join batches b using (segment, position)")
    sizes = {row["topic"]: row["size"] for row in sql("select topic, sum(size) as size from segments group by 1", logs)}
    assert sizes["clicks"] == sum(path.stat().st_size for path in (logs / "clicks-0").glob("*.log"))
    assert count("findings") == 0
    listed = sql("select * from partitions order by topic, partition", logs)
    assert [f"{row['topic']}-{row['partition']}" for row in listed] == sorted(
        overview.partition for overview in seglog.partitions(logs)
    )
    (group,) = sql("select distinct group_id from groups where lag is not null order by 1 limit 1", logs)
    assert group["group_id"] in {one.name for one in seglog.groups(logs).groups}
    found = sql("select * from transactions where topic = 'payments'", logs)
    assert len(found) == len(seglog.transactions(logs / "payments-0")) > 0
    (policy,) = sql("select value from configs where topic = 'customers' and name = 'cleanup.policy'", logs)
    assert policy["value"] == seglog.settings(logs / "customers-0").settings["cleanup.policy"].text
    kinds = sql("select distinct timestamp_type from batches where topic = 'clicks'", logs)
    assert kinds[0]["timestamp_type"] in ("CreateTime", "LogAppendTime")


def test_the_forms_of_an_answer(logs: Path, tmp_path: Path) -> None:
    query = (
        "select 1 as a, null as b, '' as c, 'x,\"y' as d, timestamptz '2026-11-21 05:00:00Z' as e, [1, 2] as f, 2 as a"
    )
    assert run("sql", query, logs).stdout.splitlines() == [
        "a  b     c  d     e                         f       a_1",
        '1  NULL     x,"y  2026-11-21T05:00:00.000Z  [1, 2]    2',
    ]
    assert run("sql", query, logs, "--csv").stdout_bytes == (
        b'a,b,c,d,e,f,a_1\r\n1,,"","x,""y",2026-11-21T05:00:00.000Z,"[1, 2]",2\r\n'
    )
    assert sql(query, logs)[0]["f"] == [1, 2]
    many = run("sql", "select range a from range(2500)", logs).stdout.splitlines()
    assert (many[0].strip(), len(many), many[-1].strip()) == ("a", 2501, "2499")
    for name in ("o.parquet", "o.csv", "o.jsonl"):
        done = run("sql", 'select "offset", key from clicks', logs, "-o", tmp_path / name)
        assert (done.exit_code, done.stderr) == (0, f"600 rows written to {tmp_path / name}\n")
        assert run("sql", "select 1", logs, "-o", tmp_path / name).exit_code == 12
    assert pq.read_table(tmp_path / "o.parquet").column_names == ["offset", "key"]
    assert len((tmp_path / "o.csv").read_bytes().splitlines()) == 601
    assert json.loads((tmp_path / "o.jsonl").read_text().splitlines()[0])["offset"] == 0
    assert "give one of them" in refused("select 1", logs, "--csv", "--json")
    assert "extension" in refused("select 1", logs, "-o", tmp_path / "o.txt")


def test_a_query_that_fails_leaves_no_file(logs: Path, tmp_path: Path) -> None:
    query = "select cast(key as int) from clicks"
    assert "Could not convert" in refused(query, logs, "-o", tmp_path / "o.parquet")
    assert not (tmp_path / "o.parquet").exists()


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("select offset from clicks", 'offset is a reserved word of SQL: write "offset"'),
        ("select key from clicks where offset > 5", 'offset is a reserved word of SQL: write "offset"'),
        ("select * from orders-lz4", 'write it as "orders-lz4"'),
        ("select * from clikcs", "there is no topic or table 'clikcs'; did you mean clicks?"),
        ("select * from nothing_alike", "there are records, batches, segments"),
        ("select vlaue from clicks", 'Referenced column "vlaue" not found in FROM clause! Candidate bindings: "value"'),
        ("selct 1", 'syntax error at or near "selct" (line 1: selct 1)'),
        ("select 1; select 2", "give one query, not 2"),
        ("", "give one query, not an empty text"),
        ("create table x as select 1", "CREATE is not a query"),
        ("set threads = 8", "SET is not a query"),
        ("copy clicks to 'x.csv'", "not"),
        ("select * from read_csv('/etc/hosts')", "file system operations are disabled"),
        ("select * from '/etc/hosts'", "there is no topic or table '/etc/hosts'"),
        ("install httpfs", "LOAD is not a query"),
        ("select value->>'a' from payments", "try(value->>'name')"),
    ],
)
def test_what_is_wrong_with_a_query_is_one_sentence(logs: Path, query: str, told: str) -> None:
    error = refused(query, logs)
    assert told in error
    assert error.startswith("error: ")
    assert error.count("\n") == 1


def test_names_that_differ_in_case_and_names_with_dots(tmp_path: Path) -> None:
    for name in ("Orders-0", "orders-0", "a.b-0", "Records-0", "MIXED-0"):
        with seglog.open_log(tmp_path / name, create=True) as log:
            log.append([seglog.Record(name.encode())])
    assert sql("select value from orders", tmp_path) == [{"value": "orders-0"}]
    assert sql("select value from Orders", tmp_path) == [{"value": "Orders-0"}]
    assert "Orders and orders are one name in SQL" in refused("select value from ORDERS", tmp_path)
    assert sql("select value from mixed", tmp_path) == [{"value": "MIXED-0"}]
    assert sql('select value from "a.b"', tmp_path) == [{"value": "a.b-0"}]
    assert 'write it as "a.b"' in refused("select value from a.b", tmp_path)
    assert sql("select count(*) n from records", tmp_path) == [{"n": 5}]
    assert sql("select value from records where topic = 'Records'", tmp_path) == [{"value": "Records-0"}]
    assert sql("with orders as (select 1 as x) select x from orders", tmp_path) == [{"x": 1}]


def test_damage_ends_a_query_or_is_left_out(logs: Path) -> None:
    log = next((logs / "clicks-0").glob("*.log"))
    data = bytearray(log.read_bytes())
    data[200] ^= 1
    log.write_bytes(data)
    done = run("sql", "select count(*), max(value) from clicks", logs)
    assert (done.exit_code, done.stdout) == (1, "")
    assert f"{log}: position 151: " in done.stderr
    assert "; --on-corrupt skip reads the rest (offsets 1 to 50)" in done.stderr
    skipped = run("sql", "select count(*) n from clicks", logs, "--on-corrupt", "skip", "--json")
    assert (skipped.exit_code, 0 < json_lines(skipped)[0]["n"] < 600) == (3, True)
    assert "left out 1 damaged range" in skipped.stderr
    (found,) = sql("select kind, first_offset from findings where topic = 'clicks'", logs)
    assert (found["kind"], found["first_offset"]) == ("checksum", 1)


UNION = "select {'a': key} as c from clicks union all select value from clicks"


def test_an_error_in_the_midst_of_a_streamed_answer_is_one_of_the_query(logs: Path, tmp_path: Path) -> None:
    for form in ([], ["--csv"], ["--json"], ["-o", str(tmp_path / "c.parquet")]):
        done = run("sql", UNION, logs, *form)
        assert done.exit_code == 2 and "can't be cast to the destination type" in done.stderr
        assert "LINE 1" not in done.stderr and "Conversion Error" not in done.stderr
    log = next((logs / "clicks-0").glob("*.log"))
    data = bytearray(log.read_bytes())
    data[200] ^= 1
    log.write_bytes(data)
    done = run("sql", UNION.replace("{'a': key}", "key"), logs, "--csv")
    assert done.exit_code == 1 and f"{log}: position 151: " in done.stderr


def test_a_sentence_of_the_engine_that_quotes_bytes_is_one_of_the_query(tmp_path: Path) -> None:
    with seglog.open_log(tmp_path / "t-0", create=True) as log:
        log.append([seglog.Record(b"\xec\xff", timestamp=1)])
    for form in ([], ["--csv"], ["-o", str(tmp_path / "t.parquet")]):
        assert "\\xec" in refused("select value_bytes::uuid from t", tmp_path, *form)


def test_a_map_whose_keys_are_json_may_be_empty(logs: Path) -> None:
    assert sql("select histogram(value::json) as h from clicks where false", logs) == [{"h": None}]
    assert sql("select map {'1'::json: '[2]'::json} as m from clicks limit 2", logs) == [{"m": {"1": "[2]"}}] * 2


def test_random_queries_over_decoded_tables_have_an_answer_or_a_reason(tmp_path: Path) -> None:
    counts, failures = random_queries.tried(effort.tries(60), effort.first_seed(1), tmp_path)
    assert not failures
    assert counts["answered"] > counts.total() / 3


def test_a_query_changes_nothing_and_leaves_nothing(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path: path.stat().st_mtime_ns for path in logs.rglob("*")}
    monkeypatch.chdir(logs)
    for table in ("records", "batches", "segments", "findings", "partitions", "groups", "transactions", "configs"):
        sql(f"select * from {table} order by all", ".", "--memory", "30 MB")
    assert {path: path.stat().st_mtime_ns for path in logs.rglob("*")} == before


def test_without_duckdb_the_extra_is_named(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "seglog_ask.operations.query", raising=False)
    monkeypatch.setitem(sys.modules, "duckdb", None)
    done = run("sql", "select 1", logs)
    assert (done.exit_code, "pip install '.[sql]' in seglog's clone" in done.stderr) == (13, True)


def test_paths_without_a_log_are_named(tmp_path: Path) -> None:
    assert "no such file" in refused("select 1", tmp_path / "nothing", code=10)


def test_the_questions_of_the_readme_are_answered(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readme = (ROOT / "README.md").read_text()
    rows = readme.partition("<!-- questions -->")[2].partition("\n\n")[0]
    lines = re.findall(r"\| `seglog (.*)` \|$", rows, re.MULTILINE)
    assert len(lines) == 5
    monkeypatch.chdir(logs)
    for line in lines:
        done = run(*shlex.split(line))
        assert (done.exit_code, len(done.stdout.splitlines()) > 1) == (0, True), line
    code = readme.partition("<!-- table -->\n```python\n")[2].partition("```")[0]
    done = subprocess.run([sys.executable, "-c", code], cwd=logs, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "range(0, 790)"), done.stderr


def test_timestamps_that_no_column_holds_are_found_and_said_and_their_numbers_kept(tmp_path: Path) -> None:
    stamps = [-1, -5, 2**62, 1000, 2**63 - 1, 253_402_300_800_000, -(2**62)]
    (tmp_path / "t-0").mkdir()
    batches = (batch_v2(i, [NaiveRecord(0, 0, b"k", b"v")], base_timestamp=one) for i, one in enumerate(stamps))
    (tmp_path / "t-0" / f"{0:020}.log").write_bytes(b"".join(batches))
    done = run("sql", "select timestamp_ms n from t where timestamp > '2026-01-01'", tmp_path, "--json")
    assert [row["n"] for row in json_lines(done)] == [2**62, 2**63 - 1, 253_402_300_800_000]
    assert done.stderr.count("beyond the years -260000 to 260000") == 1
    assert f"warning: timestamps are beyond the years -260000 to 260000, the first at t-0, offset 2: {2**62}: " in (
        done.stderr
    )
    days = sql("select timestamp::date d, count(*) n from t group by 1 order by 1 nulls first", tmp_path)
    assert [(row["d"], row["n"]) for row in days][-2:] == [("+10000-01-01", 1), ("+260000-01-01", 2)]
    truncated = sql("select date_trunc('month', timestamp) m, count(*) n from t group by 1 order by 1", tmp_path)
    assert (truncated[0]["m"], truncated[-2]["n"]) == ("-260000-01-01T00:00:00.000Z", 2)
    assert sql("select list(timestamp) l from t", tmp_path)[0]["l"][5] == "+10000-01-01T00:00:00.000Z"

    exported = run("export", tmp_path / "t-0", "-o", tmp_path / "t.parquet")
    assert (exported.exit_code, exported.stderr.count("beyond the years")) == (0, 1)
    import duckdb

    found = duckdb.sql(f"select timestamp_ms from '{tmp_path}/t.parquet' where timestamp > '2026-01-01'").fetchall()
    assert found == [(2**62,), (2**63 - 1,), (253_402_300_800_000,)]
    odd = seglog.open_table(tmp_path / "t-0")
    assert duckdb.sql("select count(*) from odd where timestamp > '2026-01-01'").fetchall() == [(3,)]
    config = {"message.timestamp.before.max.ms": 2**63 - 1, "message.timestamp.after.max.ms": 2**63 - 1}
    copied = pq.read_table(tmp_path / "t.parquet").slice(2, 1)
    seglog.append_table(tmp_path / "u-0", copied, create=True, config=config)
    with seglog.open_log(tmp_path / "u-0") as log:
        assert [record.timestamp for record in log.records()] == [2**62]
    assert odd.schema.field("timestamp").nullable


@pytest.mark.parametrize("columns", [20, 40, 80, 200])
def test_a_terminal_shows_each_column_that_is_named_and_says_how_many_of_the_others(logs: Path, columns: int) -> None:
    shown = on_terminal(columns, "sql", "select key, value from customers limit 2", logs)
    assert shown.code == 0 and all(len(line) <= columns for line in shown.lines)
    assert ("key" in shown.written, "value" in shown.written, "custo" in shown.written) == (True,) * 3
    assert ("\u2026" in shown.written, "columns shown" in shown.written) == (columns < 200, False)

    names = [*("topic", "partition", "timestamp", "key", "value", "timestamp_type", "producer_id"), "segment"]
    shown = on_terminal(columns, "sql", f"select {', '.join(names)} from customers limit 2", logs)
    heads = [name[: max(columns // 3, 6) - 1] for name in names] if columns < 80 else [name[:5] for name in names]
    assert all(head in shown.written for head in heads), shown.lines
    assert ("row 2" in shown.lines) == (columns < 80)

    shown = on_terminal(columns, "sql", "select *, value from customers limit 2", logs)
    (told,) = re.findall(r"(\d+) of 18 columns shown; --csv, --json and -o write all of them", " ".join(shown.lines))
    assert 0 < int(told) < 18 and "value" in shown.written
    assert int(told) == len(re.split(r" {2,}", shown.lines[0]))


def test_a_terminal_cuts_no_digit_and_escapes_what_a_pivot_makes_a_name(logs: Path) -> None:
    shown = on_terminal(40, "sql", "select 12345678901234567 as a_number_of_a_long_name, repeat('x', 50) as t", logs)
    assert "12345678901234567" in shown.written and "a_number_of_a_lon" in shown.written
    shown = on_terminal(60, "sql", 'select 1 as "a\x1b[31mb"', logs)
    assert "\x1b[31m" not in shown.written and "a\\x1b[31mb" in shown.written


def test_a_plan_is_text(logs: Path) -> None:
    query = 'explain select key from customers where "offset" > 5'
    lines = run("sql", query, logs).stdout.splitlines()
    assert len(lines) > 4 and all(len(line) < 60 for line in lines) and "explain_key" not in lines[0]
    assert lines == on_terminal(80, "sql", query, logs).lines
    assert sql(query, logs)[0]["explain_value"].splitlines() == lines


def topics(directory: Path, *names: str) -> Path:
    for name in names:
        with seglog.open_log(directory / f"{name}-0", create=True) as log:
            log.append([seglog.Record(name.encode())])
    return directory


def test_tables_are_listed_however_they_are_asked_for(tmp_path: Path) -> None:
    topics(tmp_path, "orders", "my-topic", "batches", "zeta")
    names = [row["name"] for row in sql("/* \u00fc */ show tables", tmp_path)]
    assert names[:4] == ["batches", "my-topic", "orders", "zeta"] and {"records", "segments", "tables"} < set(names)
    for query in ("SHOW ALL TABLES;", "describe", "from tables", "select * from (show all tables) t -- \u00fc"):
        rows = sql(query, tmp_path)
        assert rows[0] == {"name": "batches", "kind": "topic, hidden by the table batches", "partitions": 1}
        assert [row["name"] for row in rows] == names
    standard = "from information_schema.tables t where t.table_type = 'BASE TABLE'"
    rows = sql(f"select 'information_schema.tables' s, table_name {standard}", tmp_path)
    assert [row["table_name"] for row in rows] == names[:4] and rows[0]["s"] == "information_schema.tables"
    assert {row["column_name"] for row in sql("describe orders", tmp_path)} > {"topic", "value", "timestamp_ms"}
    for query in ("from duckdb_tables", "from duckdb_columns()", "from information_schema.columns", "from pg_tables"):
        assert "says nothing about logs: SHOW TABLES lists their tables" in refused(query, tmp_path)


def test_topics_hide_the_views_of_the_engine_and_seglogs_own_tables_hide_topics_and_say_so(tmp_path: Path) -> None:
    names = ("duckdb_tables", "sqlite_master", "pg_class", "columns", "main", "temp", "duckdb_types")
    topics(tmp_path, *names, "batches")
    for name in names:
        assert sql(f"select value from {name}", tmp_path) == [{"value": name}]
    done = run("sql", "select count(*) n from batches", tmp_path, "--json")
    assert json_lines(done) == [{"n": 8}]
    assert (
        "the topic batches is hidden by seglog's table of that name: use records with topic = 'batches'" in done.stderr
    )
    assert sql("select value from records where topic = 'batches'", tmp_path) == [{"value": "batches"}]


@pytest.mark.parametrize("name", ["order", "select", "table", "group", "user", "limit"])
def test_a_topic_with_a_reserved_name_has_to_be_quoted(name: str, tmp_path: Path) -> None:
    topics(tmp_path, name)
    assert sql(f'select value from "{name}"', tmp_path) == [{"value": name}]
    done = run("sql", f"select value from {name} t", tmp_path)
    assert done.exit_code == 0 or f'is a reserved word of SQL: write the topic as "{name}"' in done.stderr


def test_a_pivot_finds_its_columns(tmp_path: Path) -> None:
    topics(tmp_path, "a", "b")
    (row,) = sql("pivot (select topic, 1 n from records) on topic using sum(n)", tmp_path)
    assert row == {"a": 1, "b": 1}
    (row,) = sql("with r as (from records) pivot r on topic using count(*) group by partition", tmp_path)
    assert row == {"partition": 0, "a": 1, "b": 1}
    assert "PRAGMA is not a query" in refused("import database 'pivot'", tmp_path)
    assert "not" in refused("pivot (from read_csv('/etc/hosts')) on x using count(*)", tmp_path)


def test_a_query_may_begin_with_a_comment(tmp_path: Path) -> None:
    topics(tmp_path, "t")
    for query in ("-- all of it\nselect value from t", "--all\nselect value from t", "/* -- */ select value from t"):
        assert sql(query, tmp_path) == [{"value": "t"}]
    assert "No such option: --all" in refused("--all", tmp_path)


def test_a_field_of_framed_values_hints_at_their_schemas(tmp_path: Path) -> None:
    topics(tmp_path, "t")
    assert "--value-as registry (or avro, protobuf) gives values the fields" in refused(
        "select value.id from t", tmp_path
    )
