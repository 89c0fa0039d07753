"""Schemas in files: a directory of .avsc, .proto and .json files, or the JSON lines of `seglog schemas --json`.

`seglog schemas -o` writes such a directory, with LIST in it, which tells subjects, versions, ids and references. In a
directory without it, names tell: `20.avsc` is the schema with the id 20, a GUID's name that with this GUID, and
`orders-value.avsc` the newest version of this subject; a .proto file is also what others import by its path.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any
from uuid import UUID

from seglog.errors import ConfigError
from seglog.escaping import escaped
from seglog.storage.filesystem import FileSystem
from seglog_ask.values.schemas import EXTENSIONS, MOST_SCHEMA_BYTES, PROTOBUF, KnownSchemas, Reference, Schema
from seglog_ask.values.schemas_topic import reference_of

LIST = "schemas.jsonl"

_MOST_FILES = 100_000
_MOST_LIST_BYTES = 256 << 20
_IMPORT = re.compile(r"""^\s*import\s+(?:public\s+|weak\s+)?(["'])(.{1,255}?)\1\s*;""", re.MULTILINE)
_TYPES = {extension: kind for kind, extension in EXTENSIONS.items()}


def schema_of_file(fs: FileSystem, path: Path, message: str = "") -> Schema:
    """Returns the schema in one file. Raises ConfigError for an unknown extension or a file that is not text."""
    kind = _TYPES.get(path.suffix)
    if kind is None:
        raise ConfigError(f"a schema's file ends in {', '.join(_TYPES)}", path)
    return Schema(kind, _text(fs, path, MOST_SCHEMA_BYTES), message=message)


def schemas_in_directory(fs: FileSystem, directory: Path) -> KnownSchemas:
    """Returns the schemas in a directory and those below it. Raises ConfigError, OSError."""
    if fs.status(directory / LIST) is not None:
        return schemas_in_list(fs, directory / LIST)
    known = KnownSchemas(escaped(str(directory)))
    for path in _files(fs, directory):
        name = path.stem
        schema = schema_of_file(fs, path)
        inside = path.relative_to(directory).as_posix()
        references = _imports(schema.text) if schema.type == PROTOBUF else ()
        if schema.type == PROTOBUF:
            known.add(Schema(schema.type, schema.text, subject=inside, version=0, references=references))
        number: int | UUID | None = int(name) if name.isdecimal() and len(name) < 11 else None
        if number is None and len(name) in (32, 36):
            try:
                number = UUID(name)
            except ValueError:
                number = None
        subject = "" if number is not None else str(PurePosixPath(inside).with_suffix(""))
        known.add(Schema(schema.type, schema.text, number, subject, references=references))
    if not known.ids and not known.subjects:
        raise ConfigError(f"no file in it ends in {', '.join(_TYPES)}", directory)
    return known


def schemas_in_list(fs: FileSystem, path: Path) -> KnownSchemas:
    """Returns the schemas that JSON lines name, with their texts (`schema`) or files (`file`). Raises ConfigError."""
    known = KnownSchemas(escaped(str(path)))
    for number, line in enumerate(_text(fs, path, _MOST_LIST_BYTES).splitlines(), 1):
        try:
            fields: Any = json.loads(line) if line.strip() else None
            if isinstance(fields, dict) and fields.get("type") == "schema":
                known.add(_listed(fs, path.parent, fields))
        except (ValueError, RecursionError, TypeError) as error:
            raise ConfigError(f"it names no schema: {escaped(str(error))}", path, number) from error
    return known


def _listed(fs: FileSystem, directory: Path, fields: dict[str, Any]) -> Schema:
    text = fields.get("schema")
    if not isinstance(text, str):
        name = PurePosixPath(str(fields.get("file")))
        if name.is_absolute() or ".." in name.parts:
            raise ValueError(f"{name} is outside of the directory")
        text = _text(fs, directory / name, MOST_SCHEMA_BYTES)
    number = fields.get("id")
    return Schema(
        str(fields.get("schema_type")),
        text,
        number if isinstance(number, int) or number is None else UUID(str(number)),
        str(fields.get("subject") or ""),
        None if fields.get("version") is None else int(fields["version"]),
        tuple(reference_of(one) for one in fields.get("references") or ()),
        fields.get("deleted") is True,
    )


def _imports(text: str) -> tuple[Reference, ...]:
    """Returns what a .proto text imports, as references by path; Google's own files come with protoc."""
    names = [found[2] for found in _IMPORT.finditer(text)]
    return tuple(Reference(name, name, 0) for name in names if not name.startswith("google/protobuf/"))


def _files(fs: FileSystem, directory: Path) -> Iterator[Path]:
    waiting, count = [directory], 0
    while waiting:
        folder = waiting.pop()
        for name, status in sorted(fs.entries(folder), key=lambda entry: entry[0]):
            count += 1
            if count > _MOST_FILES:
                raise ConfigError(f"it has more than {_MOST_FILES} files", directory)
            if status.is_directory:
                waiting.append(folder / name)
            elif Path(name).suffix in _TYPES:
                yield folder / name


def _text(fs: FileSystem, path: Path, limit: int) -> str:
    try:
        return fs.read_bytes(path, limit).decode()
    except UnicodeDecodeError as error:
        raise ConfigError("it is not valid UTF-8", path) from error
