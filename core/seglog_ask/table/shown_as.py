"""The options that say what keys and values are (`values.forms.FORMS`), and where the schemas for them are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ShownAs:
    """The forms of keys and values, and the schemas: `schemas` is a place, `schema` is FILE or FILE:MESSAGE."""

    key: str = "auto"
    value: str = "auto"
    schemas: str | None = None
    schema: str | None = None


AS_THEY_ARE = ShownAs()


def shown_as_of(given: Mapping[str, str]) -> ShownAs:
    """Returns what options say, whose names are in lower case."""
    key, value = (given.get(name, "auto").lower() for name in ("keyas", "valueas"))
    return ShownAs(key, value, given.get("schemas"), given.get("schema"))
