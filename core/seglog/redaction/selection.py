"""Which records an erasure is about: those with certain keys, or those at certain offsets; files that name them."""

from __future__ import annotations

import base64
import binascii
import csv
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from io import StringIO
from typing import Any

from seglog import layout
from seglog.errors import InputError
from seglog.format.filenames import topic_name_problem
from seglog.model import TopicPartition
from seglog.scan.key_set import KeySet
from seglog.scan.offset_set import OffsetSet
from seglog.scan.selection import Selection

_COLUMNS = ("topic", "partition", "offset")
NONE = OffsetSet(())


@dataclass(frozen=True)
class RecordsToErase:
    """The records to erase: those whose key is in `keys` (None: not by key), or at `offsets` of a partition.

    Neither is ever printed: they are what the request wants forgotten.
    """

    keys: KeySet | None = field(default=None, repr=False)
    offsets: Mapping[TopicPartition, OffsetSet] = field(default_factory=dict, repr=False)

    def concerns(self, key: TopicPartition) -> bool:
        """True if a partition may hold a selected record."""
        return self.keys is not None or key in self.offsets

    def of(self, key: TopicPartition) -> Selection:
        """Returns the part for one partition."""
        return Selection(keys=self.keys) if self.keys is not None else Selection(offsets=self.offsets.get(key, NONE))

    @property
    def rule(self) -> str:
        """How records were chosen, without saying which: for the report."""
        if self.keys is not None:
            return f"the key is one of {len(self.keys)}" if len(self.keys) > 1 else "the key is the one of the request"
        count = sum(map(len, self.offsets.values()))
        return f"{count} offsets in {len(self.offsets)} partitions"


# --- files of keys and offsets


def read_keys(text: bytes, source: str) -> KeySet:
    """Returns the keys in a file: one a line as text, or as JSON lines with `key` or `key_b64`.

    An empty line is not a key. Raises InputError for a line that is neither.
    """
    keys: list[bytes] = []
    for number, line in enumerate(text.split(b"\n"), 1):
        line = line.removesuffix(b"\r")
        if line.startswith(b"{"):
            keys.append(_key_of(_object(line, source, number), source, number))
        elif line:
            keys.append(line)
    if not keys:
        raise InputError(source, 1, "there is no key in it")
    return KeySet(keys)


def read_offsets(text: bytes, source: str) -> dict[TopicPartition, OffsetSet]:
    """Returns the offsets in a file: CSV with the columns topic, partition and offset, or JSON lines with these names.

    Further columns are ignored. Raises InputError for any other line.
    """
    decoded = _utf8(text, source)
    first = decoded.lstrip()[:1]
    rows = _json_rows(decoded, source) if first == "{" else _csv_rows(decoded, source)
    found: dict[TopicPartition, set[int]] = {}
    for number, row in rows:
        found.setdefault(_partition_of(row, source, number), set()).add(
            _number(row["offset"], "offset", source, number)
        )
    if not found:
        raise InputError(source, 1, "there is no offset in it")
    return {key: OffsetSet(offsets) for key, offsets in found.items()}


def _csv_rows(text: str, source: str) -> Iterable[tuple[int, Mapping[str, Any]]]:
    reader = csv.reader(StringIO(text, newline=""))
    try:
        header = [name.strip().lower() for name in next(reader, [])]
        missing = [name for name in _COLUMNS if name not in header]
        if missing:
            raise InputError(source, 1, f"the first line names no column {missing[0]!r}: topic,partition,offset")
        places = [header.index(name) for name in _COLUMNS]
        for cells in reader:
            if not cells:
                continue
            if len(cells) != len(header):
                raise InputError(source, reader.line_num, f"{len(cells)} values for {len(header)} columns")
            yield reader.line_num, {name: cells[at] for name, at in zip(_COLUMNS, places, strict=True)}
    except csv.Error as error:
        raise InputError(source, reader.line_num, str(error)) from error


def _json_rows(text: str, source: str) -> Iterable[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        row = _object(line.encode("utf-8", "surrogateescape"), source, number)
        if row.get("type", "record") != "record":
            continue
        missing = [name for name in _COLUMNS if name not in row]
        if missing:
            raise InputError(source, number, f"the object has no {missing[0]!r}")
        yield number, row


def _utf8(text: bytes, source: str) -> str:
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(source, text.count(b"\n", 0, error.start) + 1, "the line is not UTF-8") from error


def _object(line: bytes, source: str, number: int) -> Mapping[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        raise InputError(source, number, "the line begins with { and is not a JSON object") from None
    if not isinstance(row, dict):
        raise InputError(source, number, "the line is not a JSON object")
    return row


def _key_of(row: Mapping[str, Any], source: str, number: int) -> bytes:
    encoded, plain = row.get("key_b64"), row.get("key")
    try:
        if isinstance(encoded, str):
            return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise InputError(source, number, "key_b64 is not base64") from None
    if isinstance(plain, str):
        return plain.encode("utf-8", "surrogatepass")
    raise InputError(source, number, "the object has neither key (text) nor key_b64")


def _partition_of(row: Mapping[str, Any], source: str, number: int) -> TopicPartition:
    topic = row["topic"]
    if not isinstance(topic, str) or topic_name_problem(topic) is not None:
        raise InputError(source, number, f"{topic!r} is not a topic's name")
    return TopicPartition(topic, _number(row["partition"], "partition", source, number, layout.INT32_MAX))


def _number(value: object, name: str, source: str, number: int, most: int = layout.INT64_MAX) -> int:
    text = str(value).strip()
    if isinstance(value, bool) or not (text.isascii() and text.isdigit()) or int(text[:20]) > most:
        raise InputError(source, number, f"{name} is a number from 0 to {most}, not {text[:40]!r}")
    return int(text)
