"""The file of facts: JSON lines, one object a line, written by `seglog replicas --collect` and documented in FORMAT.md.

The first line names the format and its version, the last one counts the lines before it and has their SHA-256. Unknown
fields and types of lines are ignored, a newer major version is refused. A file that was cut or edited is refused.
"""

from __future__ import annotations

import hashlib
import json
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from seglog.errors import CorruptionError, UnsupportedError
from seglog.format.filenames import parse_partition_directory, topic_name_problem
from seglog.format.uuids import parse_uuid
from seglog.layout import INT64_MAX
from seglog.model import TopicPartition
from seglog_rescue.replicas.digests import Mark
from seglog_rescue.replicas.facts import DirectoryFacts, GroupFacts, HostFacts, MetadataFacts, ReplicaFacts, TopicFacts
from seglog_rescue.replicas.keys import KeyMark

FORMAT = "seglog-replicas"
VERSION = 1, 0
MOST_BYTES = 1 << 30  # a million partitions
_ROWS = (Mark, KeyMark)  # written as lists, because there are many
_SUMS = ("digest",)  # fields of rows that do not ascend: written as they are, the others as differences
_BESIDE = "records"  # a field that is written as what it lacks of the offset: 0 where every offset has its record
_IDS = "directories"  # a field of ids, as the metadata has them
_Shape = TypeVar("_Shape")


class FactsError(CorruptionError):
    """A file of facts that was cut or edited, or that breaks a rule of its format."""

    def __init__(self, path: Path | str, reason: str, line: int | None = None) -> None:
        place = "" if line is None else f"line {line}: "
        super().__init__(path, place + reason)


def is_facts(beginning: bytes) -> bool:
    """True if a file begins as one of facts does."""
    return beginning.startswith(b'{"type":"facts","format":"' + FORMAT.encode())


def write_facts(facts: HostFacts) -> bytes:
    """Returns the file."""
    lines = list(_lines(facts))
    body = b"".join(lines)
    return body + _line({"type": "end", "lines": len(lines), "sha256": hashlib.sha256(body).hexdigest()})


def _lines(facts: HostFacts) -> Iterator[bytes]:
    version = ".".join(map(str, VERSION))
    head = {"type": "facts", "format": FORMAT, "version": version, "collected": facts.collected}
    yield _line(head | ({"problems": list(facts.problems)} if facts.problems else {}))
    for directory in facts.directories:
        yield _line({"type": "directory", **_encoded(replace(directory, replicas=()))})
        for replica in directory.replicas:
            values = _encoded(replica)
            if replica.directory == _usual_place(directory, values):
                del values["directory"]
            yield _line({"type": "replica", **values})
    for metadata in facts.metadata:
        yield _line({"type": "metadata", **_encoded(replace(metadata, topics=()))})
        for topic in metadata.topics:
            yield _line({"type": "topic", **_encoded(topic)})
    for group in facts.groups:
        yield _line({"type": "group", **_encoded(group)})


def _usual_place(owner: DirectoryFacts, values: Mapping[str, Any]) -> str:
    return f"{owner.path}/{values.get('topic')}-{values.get('partition')}"


def _line(values: Mapping[str, object]) -> bytes:
    return json.dumps(values, separators=(",", ":"), ensure_ascii=True).encode() + b"\n"


def _encoded(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(_differences(value)) if value and isinstance(value[0], _ROWS) else list(map(_encoded, value))
    if not is_dataclass(value):
        return value
    values = {}
    for name, default in _defaults_of(typing.cast(Any, type(value))).items():
        part = getattr(value, name)
        if part != default:
            values[name] = _encoded(part)
    return values


@cache
def _defaults_of(shape: Any) -> dict[str, Any]:
    """Returns the default of each field, MISSING for one without."""
    return {each.name: each.default for each in fields(shape)}


def _differences(rows: tuple[Any, ...]) -> Iterator[list[int]]:
    names, before = list(_defaults_of(typing.cast(Any, type(rows[0])))), dict[str, int]()
    for row in rows:
        whole = {name: getattr(row, name) for name in names}
        if _BESIDE in whole:
            whole[_BESIDE] = whole["offset"] - whole[_BESIDE]
        yield [whole[name] - before.get(name, 0) for name in names]
        before = {name: value for name, value in whole.items() if name not in _SUMS}


def parse_facts(data: bytes, path: Path | str) -> HostFacts:
    """Reads a file of facts. Raises FactsError if it was cut, edited or breaks a rule, UnsupportedError if its major
    version is newer."""
    lines = data.split(b"\n")
    head = _object(lines[0], path, 1)
    if head.get("type") != "facts" or head.get("format") != FORMAT:
        raise FactsError(path, "it is not a file of facts (seglog replicas --collect writes them)")
    _require_version(head.get("version"), path)
    _require_whole(data, lines, path)
    read = _Reading(path, _value(int, head.get("collected"), path, 1, "collected"))
    read.problems = _value(tuple[str, ...], head.get("problems", []), path, 1, "problems")
    for number, line in enumerate(lines[1:-2], 2):
        read.line(_object(line, path, number), number)
    return read.facts()


def _require_version(version: object, path: Path | str) -> None:
    major = version.partition(".")[0] if isinstance(version, str) else ""
    if not (major.isascii() and major.isdigit() and len(major) < 10):
        raise FactsError(path, f"{json.dumps(version)[:40]} is not a version", 1)
    if int(major) > VERSION[0]:
        raise UnsupportedError(
            f"{path}: facts of version {version}; this seglog reads version {VERSION[0]}: use the release that wrote it"
        )


def _require_whole(data: bytes, lines: list[bytes], path: Path | str) -> None:
    if len(lines) < 3 or lines[-1]:
        raise FactsError(path, "its last line is missing: the file was cut")
    end = _object(lines[-2], path, len(lines) - 1)
    if end.get("type") != "end":
        raise FactsError(path, "its last line is missing: the file was cut")
    body = data[: len(data) - len(lines[-2]) - 1]
    if end.get("lines") != len(lines) - 2 or end.get("sha256") != hashlib.sha256(body).hexdigest():
        raise FactsError(path, "its checksum does not fit: the file was edited, or lines of it are missing")


def _object(line: bytes, path: Path | str, number: int) -> dict[str, Any]:
    try:
        value = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise FactsError(path, f"it is not JSON ({error}): the file was cut, or is not one of facts", number) from error
    if not isinstance(value, dict):
        raise FactsError(path, "it is not a JSON object", number)
    return value


class _Reading:
    """The lines of one file, as they come."""

    def __init__(self, path: Path | str, collected: int) -> None:
        self._path, self._collected = path, collected
        self.problems: tuple[str, ...] = ()
        self._directories: list[tuple[DirectoryFacts, list[ReplicaFacts]]] = []
        self._metadata: list[tuple[MetadataFacts, list[TopicFacts]]] = []
        self._groups: list[GroupFacts] = []

    def line(self, values: dict[str, Any], number: int) -> None:
        """Takes a line; passes over a type that it does not know."""
        kind = values.get("type")
        if kind == "directory":
            self._directories.append((_shaped(DirectoryFacts, values, self._path, number), []))
        elif kind == "replica":
            owner, replicas = self._under(self._directories, number)
            values = {"directory": _usual_place(owner, values), **values}
            facts = _shaped(ReplicaFacts, values, self._path, number)
            _require_partition(facts, self._path, number)
            replicas.append(facts)
        elif kind == "metadata":
            self._metadata.append((_shaped(MetadataFacts, values, self._path, number), []))
        elif kind == "topic":
            self._under(self._metadata, number)[1].append(_shaped(TopicFacts, values, self._path, number))
        elif kind == "group":
            self._groups.append(_shaped(GroupFacts, values, self._path, number))

    def _under(self, owners: list[_Shape], number: int) -> _Shape:
        if not owners:
            raise FactsError(self._path, "it has no line before it that it belongs to", number)
        return owners[-1]

    def facts(self) -> HostFacts:
        """Returns what was read."""
        return HostFacts(
            str(self._path),
            self._collected,
            tuple(replace(directory, replicas=tuple(replicas)) for directory, replicas in self._directories),
            tuple(replace(metadata, topics=tuple(topics)) for metadata, topics in self._metadata),
            tuple(self._groups),
            self.problems,
        )


def _require_partition(facts: ReplicaFacts, path: Path | str, number: int) -> None:
    """Raises FactsError for a replica whose partition or directory is not one: names become lines for a shell."""
    problem = topic_name_problem(facts.topic)
    if problem is not None or facts.partition < 0:
        raise FactsError(path, f"its partition is invalid: {problem or f'number {facts.partition}'}", number)
    name = parse_partition_directory(Path(facts.directory).name)
    expected = TopicPartition(facts.topic, facts.partition), facts.state
    if name is None or (name.topic_partition, name.state.value) != expected:
        text = json.dumps(facts.directory)[:80]
        raise FactsError(path, f"{text} is not a directory of {facts.name} in the state {facts.state!r}", number)


def _shaped(shape: type[_Shape], values: Mapping[str, Any], path: Path | str, number: int) -> _Shape:
    """Makes a dataclass of the values of a line, each of which must have its type."""
    made = {}
    for name, (kind, default) in _fields_of(typing.cast(Any, shape)).items():
        if name in values:
            made[name] = _value(kind, values[name], path, number, name)
        elif default is MISSING:
            raise FactsError(path, f"the field {name} is missing", number)
    return shape(**made)


@cache
def _fields_of(shape: Any) -> dict[str, tuple[Any, Any]]:
    hints = typing.get_type_hints(shape)
    return {each.name: (hints[each.name], each.default) for each in fields(shape)}


def _value(kind: Any, value: Any, path: Path | str, number: int, name: str) -> Any:
    """Returns `value` as `kind`: int, str, bool, a dataclass, or a tuple of these."""
    check = _IS.get(kind)
    if check is not None:
        if check(value) and (name != _IDS or _is_id(value)):
            return value
    elif is_dataclass(kind) and isinstance(kind, type):
        if isinstance(value, dict):
            return _shaped(kind, value, path, number)
    elif isinstance(kind, types.GenericAlias) and isinstance(value, list):
        kinds = typing.get_args(kind)
        if kinds[0] in _ROWS:
            return _rows(kinds[0], value, path, number, name)
        if kinds[-1] is ...:
            return tuple(_value(kinds[0], each, path, number, name) for each in value)
        if len(value) == len(kinds):
            return tuple(_value(one, each, path, number, name) for one, each in zip(kinds, value, strict=True))
    raise FactsError(path, f"the field {name}: {json.dumps(value)[:40]} is not valid", number)


def _is_id(text: str) -> bool:
    try:
        parse_uuid(text)
    except ValueError:
        return False
    return True


def _rows(kind: Any, value: list[Any], path: Path | str, number: int, name: str) -> tuple[Any, ...]:
    """Returns rows whose fields were written as differences from the row before."""
    names, rows, before = list(_fields_of(kind)), [], dict[str, int]()
    for each in value:
        if not isinstance(each, list) or len(each) < len(names) or not all(type(part) is int for part in each):
            raise FactsError(path, f"the field {name}: {json.dumps(each)[:40]} is not valid", number)
        whole = {key: before.get(key, 0) + part for key, part in zip(names, each, strict=False)}
        before = {key: part for key, part in whole.items() if key not in _SUMS}
        if _BESIDE in whole:
            whole[_BESIDE] = whole["offset"] - whole[_BESIDE]
        rows.append(_shaped(kind, whole, path, number))
    return tuple(rows)


_IS: Mapping[Any, Callable[[Any], bool]] = {
    int: lambda value: isinstance(value, int) and not isinstance(value, bool) and -1 <= value <= 2 * INT64_MAX + 1,
    str: lambda value: isinstance(value, str),
    bool: lambda value: isinstance(value, bool),
}
