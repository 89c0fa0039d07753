"""Finds schemas: where the options say, or in the `_schemas-0` that lies beside the logs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from seglog.errors import ConfigError
from seglog.locations import parse_location
from seglog.storage.filesystem import FileSystem
from seglog_ask.values.forms import BY_SCHEMA, FORMS, OF_KIND, Forms, Values, is_form
from seglog_ask.values.internal_topics import KINDS
from seglog_ask.values.plain_forms import require
from seglog_ask.values.schema_files import schema_of_file, schemas_in_directory, schemas_in_list
from seglog_ask.values.schemas import Schema, SchemaSource
from seglog_ask.values.schemas_topic import TOPIC, read_schemas

_PARTITION = f"{TOPIC}-0"


def forms_of(
    fs: FileSystem,
    key: str,
    value: str,
    *,
    schemas: str | None = None,
    schema: str | None = None,
    beside: Iterable[Path] = (),
) -> Forms:
    """Returns the forms of keys and values, with the schemas that they need. Imports the libraries of the others.

    `schemas` is where schemas are, `schema` is FILE or FILE:MESSAGE; without both, the `_schemas-0` is used that lies
    beside one of the logs at `beside`. Raises ConfigError if there is none, or if they are not needed.
    """
    for name, form in (("key", key), ("value", value)):
        if form.startswith(OF_KIND) and not is_form(form):
            raise ConfigError(f"the {name} has no form '{form}' ({OF_KIND} takes {', '.join(KINDS)})")
        if not is_form(form):
            raise ConfigError(f"the {name} has no form '{form}' (there are {', '.join(FORMS)})")
        require(form)
    wanted = [form for form in (key, value) if form in BY_SCHEMA]
    if not wanted:
        if schemas is not None or schema is not None:
            raise ConfigError(f"schemas are for the forms {', '.join(BY_SCHEMA)}: ask for one of them")
        return Forms(key, value)
    given = None if schema is None else _given(fs, schema)
    source = None if schemas is None else source_at(fs, schemas)
    if source is None:
        source = _beside(fs, beside)
    if source is None and given is None:
        raise ConfigError(f"{wanted[0]} needs schemas: there is no {_PARTITION} beside the logs, so say where they are")
    return Forms(key, value, source, given)


def values_of(
    fs: FileSystem, key: str, value: str, *, schemas: str | None, schema: str | None, beside: Iterable[Path]
) -> Values | None:
    """Returns what decodes records in these forms, with the errors of `forms_of`; None if they are shown as is."""
    forms = forms_of(fs, key, value, schemas=schemas, schema=schema, beside=beside)
    return None if forms.are_plain else Values(forms)


def source_at(fs: FileSystem, where: str) -> SchemaSource:
    """Returns the schemas at a registry's URL, or on a disk or in an object store: in a log of `_schemas`, in a log
    directory that has one, in a directory of files, or in a list of `seglog schemas --json`. Raises ConfigError if
    there are none.
    """
    if where.startswith(("http://", "https://")):
        from seglog_ask.values.registry import Registry  # with Python's HTTP client

        return Registry(where)
    path = parse_location(where)
    status = fs.status(path)
    if status is None:
        raise ConfigError("there are no schemas", path)
    if not status.is_directory:
        return read_schemas(fs, path).known if path.suffix == ".log" else schemas_in_list(fs, path)
    log = schemas_log(fs, path)
    return schemas_in_directory(fs, path) if log is None else read_schemas(fs, log).known


def schemas_log(fs: FileSystem, path: Path) -> Path | None:
    """Returns the partition of schemas that a directory is or holds; None if it is neither."""
    if any(name.endswith(".log") for name in fs.list(path)):
        return path
    return _partition_in(fs, path)


def _beside(fs: FileSystem, paths: Iterable[Path]) -> SchemaSource | None:
    """Returns the schemas in the log directory of one of the paths, which are log directories, partitions or files."""
    near = (place for path in paths for place in (path.absolute(), *list(path.absolute().parents)[:2]))
    logs = (_partition_in(fs, directory) for directory in dict.fromkeys(near))
    log = next(filter(None, logs), None)
    return None if log is None else read_schemas(fs, log).known


def _partition_in(fs: FileSystem, directory: Path) -> Path | None:
    path = directory / _PARTITION
    status = fs.status(path)
    return path if status is not None and status.is_directory else None


def _given(fs: FileSystem, text: str) -> Schema:
    name, colon, message = text.rpartition(":")
    if colon and name and "/" not in message and fs.status(parse_location(text)) is None:
        return schema_of_file(fs, parse_location(name), message)
    return schema_of_file(fs, parse_location(text))
