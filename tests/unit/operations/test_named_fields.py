"""Fields of decoded values that no part of a query names are not made, and answers are as if all were."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("duckdb")
pytest.importorskip("fastavro")

import duckdb

import seglog
from seglog_ask.operations import query as queries
from seglog_ask.operations.log_tables import LogTables
from seglog_ask.operations.named_fields import named_fields
from seglog_ask.operations.query import answered
from tests.benchmarks.typed_export import SCHEMA, made
from tests.support.random_queries import opened
from tests.support.schema_registry import framed

ID, CITY = ("id",), ("addr", "city")
NAMED = {
    "select value.id from orders": {ID},
    "select o.value.ID, count(*) from orders o where o.value.addr.city = 'Oslo' group by 1": {ID, CITY},
    "with t as (select value.id i from orders) select t.i from t where i in (select value.price from orders)": {
        ID,
        ("price",),
    },
    "select max(value.id) over (partition by value.addr order by key) from orders": {ID, ("addr",)},
    "select case when value.id > 1 then 1 end from orders union all select 2 from orders": {ID},
    "select list_filter(value.tags, lambda x: x <> 'a') from orders": {("tags",)},
    "select count(*) from orders join orders o using (key) where orders.value.id = 1": {ID},
}
ANSWERED = (
    "from orders",
    "select * from orders where value.id = 1",
    "select o.* from orders o where value.id = 1",
    "select * exclude (key) from orders where value.id = 1",
    "select columns('value') from orders where value.id = 1",
    "select value, value.id from orders",
    "select value.id, value['price'] from orders",
    "select value.id, (value).price from orders",
    "select value.id, value.name.upper() from orders",
    "select value.id, orders from orders",
    "select value.id, o from orders o",
    "select value.id, #6 from orders",
    "select value.id, value_error from orders",
    "describe orders",
)
REFUSED = (
    "select value.id from orders join orders o using (value)",
    "select a.value.id from orders a natural join orders b",
    "select orders.value.id, x.a from orders, orders as x(a, b, c, d, e, f)",
    "select value.id from orders, query('select * from orders')",
    "select value.key from orders value",
    "pivot orders on value.addr.city using count(*)",
    "select value.id, from",
)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """400 framed Avro values, a null, text, and one that is cut."""
    directory = tmp_path_factory.mktemp("named") / "logs"
    made(directory, 400)
    with seglog.open_log(directory / "orders-0", writable=True) as log:
        log.append([seglog.Record(value, b"key-1") for value in (None, b"text", framed(1, b"\x02\x06ab"))])
    return directory


@pytest.mark.parametrize("query", NAMED)
def test_the_fields_that_a_query_names(query: str) -> None:
    assert named_fields(duckdb.connect(), query) == {"value": NAMED[query]}


@pytest.mark.parametrize("query", ANSWERED + REFUSED)
def test_queries_that_may_need_all_fields(query: str) -> None:
    assert "value" not in named_fields(duckdb.connect(), query)


def rows_of(tables: LogTables, query: str) -> list[str]:
    with answered(query, tables, threads=1) as answer:
        return sorted(map(str, answer.rows()))


@pytest.mark.parametrize("query", [*NAMED, *ANSWERED])
def test_answers_are_as_if_all_fields_were_made(logs: Path, query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = rows_of(opened(logs), query)
    monkeypatch.setattr(queries, "named_fields", lambda _connection, _query: {})
    assert answers == rows_of(opened(logs), query)


def test_only_the_fields_that_are_named_are_made(logs: Path) -> None:
    tables = opened(logs)
    assert tables.named("orders").schema.field("value").type.num_fields == len(SCHEMA["fields"])
    fields = named_fields(duckdb.connect(), "select value.id from orders where value.addr.city = 'Oslo'")
    value = tables.named("orders", fields).schema.field("value")
    assert str(value.type) == "struct<id: int64, addr: struct<city: string>>"


def test_a_query_makes_the_fields_that_an_earlier_one_did_not_name(logs: Path) -> None:
    tables = opened(logs)
    assert rows_of(tables, "select value.id from orders limit 1") == ["(0,)"]
    assert len(rows_of(tables, "select value from orders limit 1")[0]) > 100


def test_tables_that_are_made_by_queries_are_answered(logs: Path) -> None:
    """DuckDB 2.0 refuses a query while another one's answer on the connection has not been taken whole."""
    assert rows_of(opened(logs), "select segments > 0 from partitions") == ["(True,)", "(True,)"]


def test_a_field_that_is_not_there_is_told_with_those_that_are(logs: Path) -> None:
    with pytest.raises(seglog.SeglogError, match="price"):
        rows_of(opened(logs), "select value.prices from orders")
