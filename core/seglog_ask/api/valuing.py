"""The arguments that say what keys and values mean, of `export` and `open_table`."""

from __future__ import annotations

from collections.abc import Iterable

from seglog.arguments import instance
from seglog.locations import parse_location
from seglog.operations.workspace import Location
from seglog.storage.filesystem import FileSystem
from seglog_ask.values import sources
from seglog_ask.values.forms import Values


def values_of(
    fs: FileSystem,
    paths: Iterable[Location],
    *,
    key_as: object,
    value_as: object,
    schemas: Location | None,
    schema: Location | None,
) -> Values | None:
    """Returns what decodes the records at the paths; None if they are shown as is. Raises TypeError, ConfigError."""
    return sources.values_of(
        fs,
        instance("key_as", key_as, str, "text"),
        instance("value_as", value_as, str, "text"),
        schemas=None if schemas is None else str(schemas),
        schema=None if schema is None else str(schema),
        beside=map(parse_location, paths),
    )
