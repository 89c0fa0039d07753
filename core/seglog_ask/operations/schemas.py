"""A schema registry's log for people, and for another registry: files, and the requests that import everything.

The requests are those of Confluent's REST API, which Apicurio and Karapace speak too. With the mode IMPORT, versions
get the ids that they had, so that values written by them stay readable.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from seglog.errors import NotALogError, RefusedError
from seglog.escaping import json_text
from seglog.storage.filesystem import FileSystem, write_atomically
from seglog_ask.values.schema_files import LIST
from seglog_ask.values.schemas import AVRO, EXTENSIONS, Schema
from seglog_ask.values.schemas_topic import TOPIC, SchemasTopic, read_schemas, settings_fields
from seglog_ask.values.sources import schemas_log

_MOST_NAME = 150  # bytes of a subject in a file's name


def registry_contents(fs: FileSystem, path: Path) -> SchemasTopic:
    """Reads the log of a registry: a partition, one of its `.log` files, or a log directory that has `_schemas-0`.

    Raises NotALogError, OSError.
    """
    status = fs.status(path)
    if status is not None and status.is_directory:
        log = schemas_log(fs, path)
        if log is None:
            raise NotALogError(path, f"no log of a schema registry ({TOPIC}-0) there")
        return read_schemas(fs, log)
    if status is None or path.suffix != ".log":
        raise NotALogError(path)
    return read_schemas(fs, path)


def fields_of(schema: Schema) -> dict[str, Any]:
    """Returns a schema as the JSON that `values.schema_files` reads, without its text."""
    return {
        "type": "schema",
        "subject": schema.subject,
        "version": schema.version,
        "id": schema.id,
        "schema_type": schema.type,
        "references": _references(schema),
        "deleted": schema.deleted,
        **_more(schema),
    }


def _more(schema: Schema) -> dict[str, Any]:
    """Returns what decoding does not need, by Confluent's names."""
    texts = {"metadata": schema.metadata, "ruleSet": schema.rules}
    return {name: json.loads(text) for name, text in texts.items() if text}


def _references(schema: Schema) -> list[dict[str, Any]]:
    return [{"name": one.name, "subject": one.subject, "version": one.version} for one in schema.references]


def write_files(fs: FileSystem, directory: Path, schemas: Sequence[Schema]) -> None:
    """Writes a file for each schema into a new or empty directory, and a list of them, which `--schemas` takes.

    Raises RefusedError if something is in the directory, OSError.
    """
    if fs.status(directory) is None:
        fs.make_directory(directory)
    elif fs.list(directory):
        raise RefusedError(f"{directory}: something is there; name a new directory")
    lines = []
    for schema in schemas:
        name = _file_name(schema)
        write_atomically(fs, directory / name, schema.text.encode("utf-8", "surrogatepass"))
        lines.append(json_text({**fields_of(schema), "file": name}))
    write_atomically(fs, directory / LIST, "".join(f"{line}\n" for line in lines).encode())


def _file_name(schema: Schema) -> str:
    """Returns a name that any file system takes: the subject, percent-encoded, then version and id."""
    subject = quote(schema.subject, safe="@+ ").replace(".", "%2E", schema.subject.startswith("."))[:_MOST_NAME]
    return f"{subject}-v{schema.version}-id{schema.id}{EXTENSIONS.get(schema.type, '.txt')}"


def import_requests(contents: SchemasTopic, schemas: Sequence[Schema]) -> Iterator[dict[str, Any]]:
    """Yields the requests (`method`, `path`, `body`) that give a new registry these schemas, in order: references
    before what needs them, then what is deleted, then the settings.
    """
    yield {"method": "PUT", "path": "/mode?force=true", "body": {"mode": "IMPORT"}}
    for schema in _referred_first(contents, schemas):
        body: dict[str, Any] = {"schema": schema.text, "id": schema.id, "version": schema.version}
        if schema.type != AVRO:
            body["schemaType"] = schema.type
        if schema.references:
            body["references"] = _references(schema)
        body |= _more(schema)
        yield {"method": "POST", "path": f"/subjects/{quote(schema.subject, safe='')}/versions", "body": body}
    for schema in schemas:
        if schema.deleted:
            path = f"/subjects/{quote(schema.subject, safe='')}/versions/{schema.version}"
            yield {"method": "DELETE", "path": path, "body": None}
    modes = {subject: mode for (kind, subject), mode in contents.settings.items() if kind == "MODE"}
    for (kind, subject), setting in sorted(contents.settings.items()):
        if (kind, subject) != ("MODE", ""):
            path = f"/{kind.lower()}" + (f"/{quote(subject, safe='')}" if subject else "")
            yield {"method": "PUT", "path": path, "body": settings_fields(kind, setting)}
    yield {"method": "PUT", "path": "/mode?force=true", "body": {"mode": modes.get("", "READWRITE")}}


def _referred_first(contents: SchemasTopic, schemas: Sequence[Schema]) -> Iterator[Schema]:
    """Yields the schemas, and those that they refer to, each after what it refers to, otherwise in their order."""
    versions, done = contents.known.subjects, set[tuple[str, int | None]]()
    for first in schemas:
        waiting = [(first, False)]
        while waiting:
            schema, met = waiting.pop()
            place = schema.subject, schema.version
            if met:
                yield schema
            elif place not in done:
                done.add(place)
                waiting.append((schema, True))
                for one in reversed(schema.references):
                    meant = versions.get(one.subject, {}).get(one.version)
                    if meant is not None and (meant.subject, meant.version) not in done:
                        waiting.append((meant, False))
