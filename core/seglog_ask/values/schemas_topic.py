"""Reads a schema registry's topic (`_schemas-0`) from its log, without the registry: subjects, versions, ids,
references, and what was deleted.

Keys and values are JSON. A key's `keytype` says what it is: SCHEMA (a version of a subject), DELETE_SUBJECT and
CLEAR_SUBJECT (all versions up to one are deleted), CONFIG and MODE (settings of a subject, or of all), and others that
hold no schema. The newest record of a key counts. A version that was deleted still decodes what it wrote, also one
whose record was replaced by null, as long as the log has it. What is damaged or no JSON is told, and left out.

Confluent: SchemaRegistryKeyType, SchemaKey, SchemaValue, KafkaStoreMessageHandler.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID

from seglog.escaping import escaped, json_value
from seglog.model import Record
from seglog.scan.log_walk import Gap, LogWalk, WalkedEntries, walk_view
from seglog.scan.view import PartitionView
from seglog.storage.filesystem import FileSystem
from seglog_ask.values.schemas import AVRO, KnownSchemas, Reference, Schema

TOPIC = "_schemas"

_DEFAULT_CONTEXT = ":.:"
_PROBLEMS_KEPT = 100


@dataclass
class SchemasTopic:
    """What a log of schemas holds. `schemas` are in the order of ids; `settings` maps (CONFIG or MODE, subject) to a
    value; `problems` are sentences about what could not be read.
    """

    known: KnownSchemas
    schemas: list[Schema] = field(default_factory=list)
    settings: dict[tuple[str, str], str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def read_schemas(fs: FileSystem, path: Path) -> SchemasTopic:
    """Reads the schemas in a partition directory or a `.log` file. Raises NotALogError, OSError."""
    reading = _Reading(path)
    if path.suffix == ".log":
        reading.take(LogWalk(fs, path))
    else:
        with PartitionView(fs, path) as view:
            reading.take(step for _, step in walk_view(view))
    return reading.finished()


class _Reading:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._versions: dict[tuple[str, int], tuple[Schema, UUID | None]] = {}
        self._found = SchemasTopic(KnownSchemas(escaped(str(path))))

    def take(self, steps: Iterator[WalkedEntries | Gap] | LogWalk) -> None:
        """Reads the records of good batches, in order."""
        for step in steps:
            if isinstance(step, Gap):
                if not step.preallocated:
                    self._problem(f"position {step.position}: {step.why}")
                continue
            if not step.valid.all():
                self._problem(f"{int((~step.valid).sum())} batches have a wrong checksum")
            for records in step.records(step.batches[step.valid]):
                for record in records:
                    self._record(record)

    def _problem(self, sentence: str) -> None:
        if len(self._found.problems) < _PROBLEMS_KEPT:
            self._found.problems.append(f"{self._path}: {sentence}")

    def _record(self, record: Record) -> None:
        try:
            key = None if record.key is None else _object(record.key)
            value = None if record.value is None else _object(record.value)
            if key is not None:
                self._entry(key, value)
        except (ValueError, RecursionError) as error:
            self._problem(f"the record at offset {record.offset} is left out: {error}")

    def _entry(self, key: Mapping[str, Any], value: Mapping[str, Any] | None) -> None:
        kind, subject = key.get("keytype"), key.get("subject") or ""
        if kind == "SCHEMA":
            place = _text(subject, "subject"), _number(key.get("version"), "version")
            if value is None:
                if place in self._versions:
                    schema, guid = self._versions[place]
                    self._versions[place] = replace(schema, deleted=True), guid
            else:
                self._versions[place] = _schema(*place, value)
        elif kind in ("DELETE_SUBJECT", "CLEAR_SUBJECT") and value is not None:
            last = _number(value.get("version"), "version") if kind == "DELETE_SUBJECT" else None
            for place, (schema, guid) in list(self._versions.items()):
                if place[0] == subject and (last is None or place[1] <= last):
                    self._versions[place] = replace(schema, deleted=True), guid
        elif kind in ("CONFIG", "MODE"):
            setting = None if value is None else value.get("compatibilityLevel" if kind == "CONFIG" else "mode")
            if isinstance(setting, str):
                self._found.settings[kind, _text(subject, "subject")] = setting
            else:
                self._found.settings.pop((kind, subject), None)

    def finished(self) -> SchemasTopic:
        """Returns what was read."""
        found = self._found
        if found.problems:  # whoever misses a schema learns that it may have been there
            found.known.where += f", where something is damaged ({found.problems[0]})"
        for _, (schema, guid) in sorted(self._versions.items(), key=lambda item: (_order(item[1][0]), item[0])):
            found.schemas.append(schema)
            found.known.add(schema, is_elsewhere=_is_elsewhere(schema))  # in contexts, ids are numbers of their own
            if guid is not None:
                found.known.ids.setdefault(guid, schema)
        for number, twins in found.known.twins.items():
            places = " and ".join(one.place for one in twins)
            self._problem(f"schema id {number} is of {places}, which differ: a topic has that of its subject")
        return found


def _order(schema: Schema) -> tuple[int, bool]:
    return schema.id if isinstance(schema.id, int) else 0, _is_elsewhere(schema)


def _is_elsewhere(schema: Schema) -> bool:
    """True for a subject of another context than the one by default."""
    return schema.subject.startswith(":.") and not schema.subject.startswith(_DEFAULT_CONTEXT)


def _object(data: bytes) -> dict[str, Any]:
    found = json.loads(data.decode())
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")
    return found


def _schema(subject: str, version: int, value: Mapping[str, Any]) -> tuple[Schema, UUID | None]:
    references = value.get("references") or []
    if not isinstance(references, list):
        raise ValueError("its references are not a list")
    schema = Schema(
        _text(value.get("schemaType") or AVRO, "schemaType"),
        _text(value.get("schema"), "schema"),
        _number(value.get("id"), "id"),
        subject,
        version,
        tuple(reference_of(one) for one in references),
        value.get("deleted") is True,
        metadata=_json(value.get("metadata")),
        rules=_json(value.get("ruleSet")),
    )
    return schema, _guid(value)


def _json(value: Any) -> str:
    return "" if value is None else json_value(value)


def reference_of(fields: Any) -> Reference:
    """Returns a reference from its JSON. Raises ValueError."""
    if not isinstance(fields, dict):
        raise ValueError("a reference is not a JSON object")
    names = _text(fields.get("name"), "name"), _text(fields.get("subject"), "subject")
    return Reference(*names, _number(fields.get("version"), "version"))


def settings_fields(kind: str, setting: str) -> dict[str, str]:
    """Returns the REST API's body for a setting of CONFIG or MODE."""
    return {"compatibility" if kind == "CONFIG" else "mode": setting}


def _guid(value: Mapping[str, Any]) -> UUID | None:
    """Returns a schema's GUID: newer registries write it; it is the MD5 that older ones wrote, in base64."""
    try:
        if isinstance(value.get("guid"), str):
            return UUID(value["guid"])
        if isinstance(value.get("md5"), str):
            return UUID(bytes=base64.b64decode(value["md5"], validate=True))
    except (ValueError, binascii.Error):
        return None
    return None


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"its {name} is not text")
    return value


def _number(value: Any, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"its {name} is not a number")
    return value
