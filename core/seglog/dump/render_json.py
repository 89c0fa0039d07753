"""Rows of small files as lines of JSON or text; batches and records have a kernel for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seglog.escaping import escaped, json_text, json_value


def json_line(kind: str, fields: Mapping[str, Any]) -> bytes:
    """One JSON object and a line feed, `type` first; text beyond ASCII stays as it is."""
    return json_text({"type": kind, **fields}).encode() + b"\n"


def text_line(kind: str, fields: Mapping[str, Any]) -> bytes:
    """The same as `kind name=value …`; text that is not one plain word stands in quotes."""
    words = " ".join(f"{name}={_value(value)}" for name, value in fields.items())
    return f"{kind} {words}\n".encode()


def _value(value: Any) -> str:
    if isinstance(value, str) and value and not any(c.isspace() or c in '"\\=' or not c.isprintable() for c in value):
        return value
    return escaped(json_value(value))
