"""Rows of small files as lines of JSON or text; batches and records have a kernel for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def json_line(kind: str, fields: Mapping[str, Any]) -> bytes:
    """One JSON object and a line feed, `type` first; text beyond ASCII stays as it is."""
    # A file name that is no UTF-8 holds surrogates, which have no place in JSON.
    text = json.dumps({"type": kind, **fields}, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace") + b"\n"


def text_line(kind: str, fields: Mapping[str, Any]) -> bytes:
    """The same as `kind name=value …`; text that is not one plain word stands in quotes."""
    words = " ".join(f"{name}={_value(value)}" for name, value in fields.items())
    return f"{kind} {words}\n".encode("utf-8", "replace")


def _value(value: Any) -> str:
    if isinstance(value, str) and value and not any(c.isspace() or c in '"\\=' or not c.isprintable() for c in value):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
