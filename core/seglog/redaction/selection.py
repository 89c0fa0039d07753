"""Which records an erasure is about: those with certain keys, or those at certain offsets.

Keys are compared as bytes, all of them. A table of fingerprints (the last eight bytes of a key, folded to 16 bits)
leaves few candidates, so a thousand keys cost about as much as one.
"""

from __future__ import annotations

import base64
import binascii
import csv
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from io import StringIO
from typing import Any

import numpy as np

from seglog import layout
from seglog.errors import InputError
from seglog.format.columns import Records
from seglog.format.filenames import topic_name_problem
from seglog.model import TopicPartition

_WORD = 8
_FOLD = np.uint64(0x9E3779B97F4A7C15)
_FOLDED_BITS = 16
_COLUMNS = ("topic", "partition", "offset")


class KeySet:
    """A set of keys that can be looked up in columns of records."""

    def __init__(self, keys: Iterable[bytes]) -> None:
        self._keys = frozenset(keys)
        sizes: dict[int, list[bytes]] = {}
        for key in self._keys:
            sizes.setdefault(len(key), []).append(key)
        self._fingerprints = {size: _fingerprints(found) for size, found in sizes.items() if size}

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: bytes | None) -> bool:
        return key in self._keys

    def __iter__(self) -> Any:
        return iter(self._keys)

    def mask(self, records: Records) -> np.ndarray:
        """Returns which records have one of the keys (bool, one a record). A null key is never one of them."""
        rows, arena = records.rows, records.arena
        mask = np.zeros(len(rows), dtype=np.bool_)
        if b"" in self._keys:
            mask |= rows["key_size"] == 0
        for size, table in self._fingerprints.items():
            candidates = np.flatnonzero(rows["key_size"] == size)
            if not len(candidates):
                continue
            positions = rows["key_position"][candidates].astype(np.int64)
            likely = table[_folded(_last_words(arena, positions, size))]
            starts = positions[likely].tolist()
            for i, start in zip(candidates[likely].tolist(), starts, strict=True):
                mask[i] = arena[start : start + size].tobytes() in self._keys
        return mask


def _fingerprints(keys: list[bytes]) -> np.ndarray:
    """Returns a table (bool) of the fingerprints of keys of one size."""
    size = len(keys[0])
    arena = np.frombuffer(b"".join(keys), dtype=np.uint8)
    table = np.zeros(1 << _FOLDED_BITS, dtype=np.bool_)
    table[_folded(_last_words(arena, np.arange(len(keys), dtype=np.int64) * size, size))] = True
    return table


def _last_words(arena: np.ndarray, positions: np.ndarray, size: int) -> np.ndarray:
    """Returns the last eight bytes of each span, or all of a shorter one, as uint64."""
    width = min(size, _WORD)
    starts = positions + (size - width)
    words = np.zeros(len(starts), dtype=np.uint64)
    if width == _WORD:
        # every position of the arena as a word, without a copy
        every = np.ndarray((len(arena) - _WORD + 1,), dtype="<u8", buffer=arena, strides=(1,))
        words[:] = every[starts]
    else:
        for i in range(width):
            words |= arena[starts + i].astype(np.uint64) << np.uint64(8 * i)
    return words


def _folded(words: np.ndarray) -> np.ndarray:
    return (words * _FOLD) >> np.uint64(64 - _FOLDED_BITS)


@dataclass(frozen=True)
class RecordsToErase:
    """The records to erase: those whose key is in `keys` (None: not by key), or at `offsets` of a partition.

    Neither is ever printed: they are what the request wants forgotten.
    """

    keys: KeySet | None = field(default=None, repr=False)
    offsets: Mapping[TopicPartition, np.ndarray] = field(default_factory=dict, repr=False)

    def concerns(self, key: TopicPartition) -> bool:
        """True if a partition may hold a selected record."""
        return self.keys is not None or key in self.offsets

    def of(self, key: TopicPartition) -> PartitionSelection:
        """Returns the part for one partition."""
        return PartitionSelection(self.keys, self.offsets.get(key))

    @property
    def rule(self) -> str:
        """How records were chosen, without saying which: for the report."""
        if self.keys is not None:
            return f"the key is one of {len(self.keys)}" if len(self.keys) > 1 else "the key is the one of the request"
        count = sum(map(len, self.offsets.values()))
        return f"{count} offsets in {len(self.offsets)} partitions"


@dataclass(frozen=True, slots=True)
class PartitionSelection:
    """The selected records of one partition; `offsets` ascend (int64), None: by keys."""

    keys: KeySet | None
    offsets: np.ndarray | None

    def may_be_in(self, batches: np.ndarray) -> np.ndarray:
        """Returns the batches (rows of layout.BATCH) that must be decoded: without control batches."""
        control = (batches["magic"] >= 2) & ((batches["attributes"] & layout.CONTROL_MASK) != 0)
        wanted = ~control & (batches["count"] != 0)
        if self.offsets is not None:
            # A wrapper of magic 0 or 1 has the offset of its last message; it may begin right after the batch before.
            firsts = batches["base_offset"].copy()
            legacy = batches["magic"] < 2
            if legacy.any():
                before = np.concatenate(([np.int64(-1)], batches["last_offset"][:-1])) + 1
                firsts[legacy] = np.minimum(firsts, before)[legacy]
            first = np.searchsorted(self.offsets, firsts, side="left")
            wanted &= first < np.searchsorted(self.offsets, batches["last_offset"], side="right")
        rows: np.ndarray = batches[wanted]
        return rows

    def span(self) -> tuple[int, int] | None:
        """Returns the least and the greatest selected offset; None if any offset may be selected."""
        if self.offsets is None:
            return None
        return (int(self.offsets[0]), int(self.offsets[-1])) if len(self.offsets) else (0, -1)

    def mask(self, records: Records) -> np.ndarray:
        """Returns which records are selected (bool, one a record)."""
        if self.keys is not None:
            return self.keys.mask(records)
        assert self.offsets is not None
        wanted = records.rows["offset"]
        places = np.searchsorted(self.offsets, wanted)
        inside = places < len(self.offsets)
        mask = np.zeros(len(wanted), dtype=np.bool_)
        mask[inside] = self.offsets[places[inside]] == wanted[inside]
        return mask


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


def read_offsets(text: bytes, source: str) -> dict[TopicPartition, np.ndarray]:
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
    return {key: np.array(sorted(offsets), dtype=np.int64) for key, offsets in found.items()}


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
