"""Which types of an answer DuckDB itself turns into others, because Arrow does not hold them, or Parquet does not.

A duration of Arrow's has nanoseconds in 64 bits, so that DuckDB's microseconds overflow without a word; of bits, times
with a zone and numbers of any size it knows the bytes alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_TEXT = "VARCHAR"
# By DuckDB's names, as `types` of a relation have them.
TO_SHOW: Mapping[str, str] = {
    "interval": _TEXT,
    "bit": _TEXT,
    "time with time zone": _TEXT,
    "uuid": _TEXT,
    "bignum": _TEXT,
    "geometry": _TEXT,
    "variant": "JSON",
}
TO_STORE: Mapping[str, str] = {
    **TO_SHOW,
    "variant": _TEXT,
    "union": _TEXT,
    "null": _TEXT,
    "hugeint": "DECIMAL(38,0)",
    "uhugeint": "DECIMAL(38,0)",
    "timestamp_s": "TIMESTAMP",  # Parquet has no seconds
}


def projection(names: Sequence[str], types: Sequence[Any], into: Mapping[str, str]) -> str | None:
    """Returns the expressions that give a relation's columns in other types; None if all stay as they are."""
    targets = [_type(kind, into) for kind in types]
    if not any(targets):
        return None
    return ", ".join(
        f"cast(#{i} as {kind}) as {_quoted(name)}" if kind else f"#{i}"
        for i, (name, kind) in enumerate(zip(names, targets, strict=True), 1)
    )


def _type(kind: Any, into: Mapping[str, str]) -> str:
    """Returns the type that one becomes; an empty text if it stays. A struct without fields is none of Parquet's."""
    name = kind.id
    if name in into:
        return into[name]
    if name not in ("struct", "tuple", "list", "array", "map", "union"):
        return ""
    children = [(label, child) for label, child in kind.children if label != "size"]
    if not children:
        return _TEXT if into is TO_STORE else ""
    if name == "union":
        children = children[1:]  # the first is the tag
    inner = [_type(child, into) for _, child in children]
    if not any(inner):
        return ""
    texts = [made or str(child) for made, (_, child) in zip(inner, children, strict=True)]
    if name == "list":
        return f"{texts[0]}[]"
    if name == "array":
        return f"{texts[0]}[{dict(kind.children)['size']}]"
    if name in ("map", "tuple"):
        return f"{name.upper()}({', '.join(texts)})"
    named = (f"{_quoted(label)} {text}" for (label, _), text in zip(children, texts, strict=True))
    return f"{name.upper()}({', '.join(named)})"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
