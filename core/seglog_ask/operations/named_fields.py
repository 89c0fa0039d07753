"""Which fields of decoded keys and values a query names, so that the others need not be made.

DuckDB asks a table for whole columns, of which a struct is one. Its parser tells what a query names
(`json_serialize_sql`); where a query takes a column, a row or a table as a whole, or may, it needs all fields.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import duckdb

from seglog.format.columns import SIDES, Side

# Where rows come from, and what expressions are made of, in queries whose columns are all named.
_SOURCES = frozenset(("BASE_TABLE", "SUBQUERY", "JOIN", "EMPTY"))
_EXPRESSIONS = frozenset(
    (
        *("BETWEEN", "CASE", "CAST", "COLLATE", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT", "FUNCTION"),
        *("LAMBDA", "OPERATOR", "SUBQUERY", "WINDOW"),
    )
)


def named_fields(connection: duckdb.DuckDBPyConnection, query: str) -> dict[Side, frozenset[tuple[str, ...]]]:
    """Returns the fields of keys and values that a query names, as paths in lower case. A side of which it may need
    more than these, or of which it names none, is not there.
    """
    # All rows are taken: a result that may have more keeps DuckDB from the next query.
    ((text,),) = connection.execute("select json_serialize_sql(?::varchar)", [query]).fetchall()
    tree = json.loads(text)
    if tree["error"]:  # EXPLAIN, a pivot, or what will not run
        return {}
    nodes = list(_nodes(tree["statements"]))
    if any(map(_takes_all, nodes)):
        return {}
    sources = [node for node in nodes if _is_source(node)]
    tables = {str(node.get(name)).lower() for node in sources for name in ("alias", "table_name")}
    columns = [[str(part).lower() for part in node["column_names"]] for node in nodes if "column_names" in node]
    if any(len(names) == 1 and names[0] in tables for names in columns):
        return {}
    joined = {str(name).lower() for node in nodes for name in node.get("using_columns", ())}
    fields = {side: _fields(side, columns) for side in SIDES if side not in tables | joined}
    return {side: names for side, names in fields.items() if names}


def _fields(side: Side, columns: Sequence[Sequence[str]]) -> frozenset[tuple[str, ...]] | None:
    """Returns the paths of one side; None if more than these may be needed."""
    fields = set()
    for names in columns:
        if any(name.startswith(f"{side}_") for name in names[:2]):
            return None  # it tells how the whole was decoded
        if side not in names:
            continue
        place = names.index(side)
        if place > 1 or place + 1 == len(names):
            return None
        fields.add(tuple(names[place + 1 :]))
    return frozenset(fields)


def _takes_all(node: Mapping[str, Any]) -> bool:
    """True for a node that may take columns which it does not name."""
    if node.get("class", "CASE") not in _EXPRESSIONS or node.get("ref_type") == "NATURAL":
        return True
    if len(node.get("qualified_name", {}).get("path", ())) > 1:
        return True  # a function of a column, written behind it; or a table of another schema
    is_other = "sample" in node and "alias" in node and node["type"] not in _SOURCES
    return is_other or bool(node.get("column_name_alias"))


def _is_source(node: Mapping[str, Any]) -> bool:
    return "sample" in node and "alias" in node


def _nodes(tree: Any) -> Iterator[Mapping[str, Any]]:
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node
