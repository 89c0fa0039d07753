"""Compares batches by the traits that those of one log share: codec, producers, time, the look of keys and values."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seglog import layout
from seglog.format.decoder import decode_records, scan_batches
from seglog.storage.filesystem import FileSystem

_SAMPLED_BATCHES = 4
_MAX_BATCH_BYTES = 1 << 20
_MAX_RECORDS = 256  # of a batch, or of a window of it
_MAX_PRODUCERS = 4096
_PREFIX_BYTES = 2
_PREFIX_SHARE = 0.8  # more keys, or values, must begin with the same bytes
_MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class Look:
    """The look of some records: the shares with a null key and with headers, mean sizes, and common first bytes."""

    records: int
    null_keys: float
    headers: float
    key_size: float
    value_size: float
    key_prefix: bytes
    value_prefix: bytes


@dataclass(frozen=True, slots=True)
class Traits:
    """The traits of batches of one log. `epochs` and `times` are (least, most); -1 for an unknown time."""

    magics: frozenset[int]
    codecs: frozenset[int]
    timestamp_types: frozenset[int]
    producers: frozenset[int]
    without_producer: bool
    epochs: tuple[int, int]
    times: tuple[int, int]
    look: Look | None

    @property
    def kind(self) -> tuple[object, ...]:
        """Equal for pieces that only offsets, producers and time tell apart."""
        look = self.look
        means = () if look is None else (look.key_size, look.value_size)
        sizes = tuple(round(2 * math.log2(size + 1)) for size in means)
        prefixes = () if look is None else (look.key_prefix, look.value_prefix, look.null_keys > 0.5)
        return (self.magics, self.codecs, self.timestamp_types, bool(self.producers), sizes, prefixes)

    def joined(self, other: Traits) -> Traits:
        """Returns the traits of both together."""
        known = [times for times in (self.times, other.times) if times[0] >= 0]
        return Traits(
            self.magics | other.magics,
            self.codecs | other.codecs,
            self.timestamp_types | other.timestamp_types,
            self.producers | other.producers,
            self.without_producer or other.without_producer,
            (min(self.epochs[0], other.epochs[0]), max(self.epochs[1], other.epochs[1])),
            (min(t[0] for t in known), max(t[1] for t in known)) if known else (-1, -1),
            self.look if other.look is None or (self.look and self.look.records >= other.look.records) else other.look,
        )


def traits_of(fs: FileSystem, paths: Sequence[Path], rows: np.ndarray) -> Traits:
    """Returns the traits of FOUND rows; reads a few batches for the look of their records."""
    times = rows["max_timestamp"][rows["max_timestamp"] >= 0]
    stamped = rows[(rows["magic"] > 0) & (rows["max_timestamp"] >= 0)]
    producers = np.unique(rows["producer_id"])[:_MAX_PRODUCERS].tolist()
    data = rows[rows["attributes"] & layout.CONTROL_MASK == 0]
    return Traits(
        frozenset(rows["magic"].tolist()),
        frozenset((data["attributes"] & layout.CODEC_MASK).tolist()),
        frozenset((stamped["attributes"] & layout.TIMESTAMP_TYPE_MASK).tolist()),
        frozenset(each for each in producers if each >= 0),
        bool((rows["producer_id"] < 0).any()),
        (int(rows["leader_epoch"].min()), int(rows["leader_epoch"].max())),
        (int(times.min()), int(times.max())) if len(times) else (-1, -1),
        _look_of(fs, paths, data),
    )


def likeness(one: Traits, other: Traits) -> float:
    """Scores how alike two pieces are: above 0 they are probably of one log, far below 0 they are not."""
    worth = 0.0
    if one.codecs and other.codecs:
        worth += 1 if one.codecs & other.codecs else -4
    if not one.magics & other.magics:
        worth -= 2
    if one.timestamp_types and other.timestamp_types and not one.timestamp_types & other.timestamp_types:
        worth -= 4
    if one.producers and other.producers:
        worth += 4 if one.producers & other.producers else -1
    elif not (one.without_producer and other.without_producer):
        worth -= 2
    if _are_near(one.times, other.times):
        worth += 1
    if one.epochs[1] == other.epochs[0] or one.epochs[0] == other.epochs[1]:
        worth += 1
    if one.look is not None and other.look is not None:
        worth += _look_likeness(one.look, other.look)
    return worth


def _are_near(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """True if two time ranges are known, and their distance is at most a minute, or the length of the longer one."""
    if one[0] < 0 or other[0] < 0:
        return False
    near = max(_MINUTE_MS, one[1] - one[0], other[1] - other[0])
    return max(other[0] - one[1], one[0] - other[1]) <= near


def _look_likeness(one: Look, other: Look) -> float:
    worth = 0.0
    if abs(one.null_keys - other.null_keys) > 0.5 or abs(one.headers - other.headers) > 0.5:
        worth -= 3
    for mine, theirs in ((one.key_size, other.key_size), (one.value_size, other.value_size)):
        apart = abs(math.log2((mine + 1) / (theirs + 1)))
        worth -= 2 if apart > 1.5 else 0
        worth += 0.5 if apart < 0.2 else 0
    for my_prefix, their_prefix in ((one.key_prefix, other.key_prefix), (one.value_prefix, other.value_prefix)):
        if my_prefix and their_prefix:
            worth += 1 if my_prefix == their_prefix else -3
    return worth


# --- the look of records


def _look_of(fs: FileSystem, paths: Sequence[Path], rows: np.ndarray) -> Look | None:
    whole = rows[(rows["first_size"] == 0) & (rows["size"] <= _MAX_BATCH_BYTES)]
    if not len(whole):
        return None
    chosen = whole[np.linspace(0, len(whole) - 1, min(_SAMPLED_BATCHES, len(whole))).astype(np.int64)]
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    headers = 0
    for row in chosen:
        with fs.open(paths[int(row["source"])], "r") as file:
            data = np.frombuffer(file.read_at(int(row["position"]), int(row["size"])), dtype=np.uint8)
        for records in decode_records(data, scan_batches(data, 0, len(data), 0).batches, 0):
            for i in range(min(len(records), _MAX_RECORDS)):
                keys.append(records.key(i))
                values.append(records.value(i))
                headers += int(records.rows["header_count"][i] > 0)
    if not keys:
        return None
    known_keys, known_values = [k for k in keys if k is not None], [v for v in values if v is not None]
    count = len(keys)
    return Look(
        count,
        1 - len(known_keys) / count,
        headers / count,
        sum(map(len, known_keys)) / max(len(known_keys), 1),
        sum(map(len, known_values)) / max(len(known_values), 1),
        _common_prefix(known_keys),
        _common_prefix(known_values),
    )


def _common_prefix(texts: list[bytes]) -> bytes:
    """Returns the first two bytes that most of `texts` share; empty if there are none."""
    known = Counter(text[:_PREFIX_BYTES] for text in texts if len(text) >= _PREFIX_BYTES)
    prefix, count = known.most_common(1)[0] if known else (b"", 0)
    return prefix if count > max(1.0, _PREFIX_SHARE * len(texts)) else b""
