"""Logs for benchmarks, made as fast as the engine appends: columns out of numpy, no object a record.

Keys are 16 bytes (`key-` and twelve digits), drawn evenly from a key space; values are 100 bytes of words, some 16,000
different ones. The same seed gives the same keys and values.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from seglog.clock import SystemClock
from seglog.configuration.keys import LogConfig
from seglog.format.builder import columns_of_arrays
from seglog.format.columns import Records
from seglog.log.directory import LogDirectory
from seglog.log.log import Log
from seglog.model import Compression
from seglog.storage.local import LocalFileSystem

KEY_BYTES = 16
VALUE_BYTES = 100
RECORD_BYTES = 126  # of one uncompressed record in a batch, its share of the header included
_AT_ONCE = 200_000
_DISTINCT_VALUES = 1 << 14
_WORDS = (
    b"paid refused shipped order parcel invoice customer street harbour copper amber winter seven twelve northern"
    b" quiet the of and to in by for Oslo Lima Accra Kyoto Paris returned delayed open closed"
).split()


def keyed_columns(count: int, key_space: int, seed: int = 1) -> Iterator[Records]:
    """`count` records as columns, some 200,000 at a time; their timestamps are now."""
    chance = np.random.default_rng(seed)
    values = _values(chance)
    powers = 10 ** np.arange(KEY_BYTES - 5, -1, -1, dtype=np.int64)
    for first in range(0, count, _AT_ONCE):
        size = min(_AT_ONCE, count - first)
        keys = np.empty((size, KEY_BYTES), dtype=np.uint8)
        keys[:, :4] = np.frombuffer(b"key-", dtype=np.uint8)
        keys[:, 4:] = chance.integers(0, key_space, size)[:, None] // powers % 10 + ord("0")
        yield columns_of_arrays(
            values[chance.integers(0, len(values), size)].reshape(-1),
            np.arange(0, (size + 1) * VALUE_BYTES, VALUE_BYTES, dtype=np.int64),
            np.full(size, time.time_ns() // 1_000_000, dtype=np.int64),
            keys=keys.reshape(-1),
            key_offsets=np.arange(0, (size + 1) * KEY_BYTES, KEY_BYTES, dtype=np.int64),
        )


def append_keyed(log: Log, count: int, key_space: int, codec: Compression = Compression.NONE, seed: int = 1) -> None:
    """Appends `count` such records, in batches of the producer's default 16 KiB."""
    for columns in keyed_columns(count, key_space, seed):
        log.append(columns, codec=codec)


def open_directory(path: Path, config: LogConfig) -> LogDirectory:
    """The log directory for writing, every topic with this configuration."""
    return LogDirectory.open(path, fs=LocalFileSystem(), clock=SystemClock(), config_of=lambda _: config, writable=True)


def _values(chance: np.random.Generator) -> np.ndarray:
    """A table of values, one a row, each cut out of its own run of words."""
    text = [b" ".join(_WORDS[word] for word in row) for row in chance.integers(0, len(_WORDS), (_DISTINCT_VALUES, 50))]
    return np.frombuffer(b"".join(line[:VALUE_BYTES] for line in text), dtype=np.uint8).reshape(-1, VALUE_BYTES)
