"""The newest record of each key over all groups, for one reducer and in bounded memory.

1. A reducer holds incoming keys in memory up to its limit.
2. Beyond it, they go to files in Spark's local directory, in FAN_OUT parts by a hash of their own.
3. Each part is merged like the whole. A part whose newest records are still too many is split again by another hash.
   Records before the first dirty offset are only looked up, one blob at a time.

Equal keys go into the same part by any hash, so the answers are those of one table. The entries of a single key are
never split: at most one per group, and one more each time a group's offset map was full.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from seglog.errors import IncompleteError
from seglog.kernels import key_exchange
from seglog.storage.filesystem import File, FileSystem
from seglog_ask.spark.keys import ENTRIES, SUPERSEDED, SURVIVORS, Blob, Bytes, Keys, by_reducer, opened, ordinals_blob
from seglog_ask.spark.tasks import remove_task_files

_logger = logging.getLogger("seglog.spark.key_merge")

# Half of what an executor has per core outside the heap (`session.configuration`).
MEMORY_BYTES = 512 << 20
# Of an entry without its key, which exists twice: in its blob and in the table.
ENTRY_BYTES = 80
FAN_OUT = 32
# Levels 0 to 2: FAN_OUT ** 3 parts hold 16 TiB of keys and table. If a part is too large even then, its keys are equal.
_DEEPEST = 2
_LENGTH_BYTES = 8


class Exchange(Protocol):
    """The parameters of an exchange of keys: a round's `RoundSpec`, or the plan of `latest`.

    Keys come in groups; among equal keys the one in the highest group is the newest. `hash_mask` weakens the hash that
    `hash_seeds` key, for tests. `subject` is the name in messages.
    """

    @property
    def subject(self) -> str: ...
    @property
    def hash_seeds(self) -> np.ndarray: ...
    @property
    def hash_mask(self) -> int: ...


@dataclass(frozen=True, slots=True)
class MergeSpace:
    """A reducer's resources: bytes of memory for keys, and a directory for the rest."""

    fs: FileSystem
    directory: Path
    memory_bytes: int = MEMORY_BYTES


class KeyMerge:
    """The keys of one reducer: `add` blobs in any order, then take the `answers`; `close` removes the files."""

    def __init__(self, exchange: Exchange, space: MergeSpace) -> None:
        self._exchange, self._space = exchange, space
        self._entries: list[Blob] = []
        self._clean: list[Blob] = []
        self._held = 0
        self._directory: Path | None = None
        self._spill: _Spill | None = None

    def add(self, blob: Blob) -> None:
        """Adds entries or clean records."""
        if self._spill is not None:
            self._spill.add(blob)
            return
        (self._entries if blob.kind == ENTRIES else self._clean).append(blob)
        self._held += _memory(blob)
        if self._held > self._space.memory_bytes:
            self._spill = self._spilled([*self._entries, *self._clean], 0)
            self._entries, self._clean = [], []

    def answers(self) -> Iterator[tuple[int, bytes]]:
        """Yields (group, blob) with the ordinals of the newest entries, and of superseded clean records."""
        if self._spill is None:
            yield from _merged(self._exchange, self._entries, self._clean)
        else:
            yield from self._of_parts(self._spill, 0)

    def close(self) -> None:
        """Removes the files."""
        if self._directory is not None:
            remove_task_files(self._space.fs, self._directory)
            self._directory = None

    def _of_parts(self, spill: _Spill, level: int) -> Iterator[tuple[int, bytes]]:
        for part in spill.parts:
            if part.entries.memory > self._space.memory_bytes and level < _DEEPEST:
                finer = self._spilled(part.blobs(), level + 1)
                part.remove()
                yield from self._of_parts(finer, level + 1)
            else:
                yield from _merged(self._exchange, list(part.entries.blobs()), part.clean.blobs())
                part.remove()

    def _spilled(self, blobs: Iterable[Blob], level: int) -> _Spill:
        if self._directory is None:
            self._directory = self._space.directory / f"seglog-merge-{uuid.uuid4().hex}"
            self._space.fs.make_directory(self._directory)
            _logger.info(
                "%s: a reducer's keys take more than %d bytes and go to %s (more reducers would hold them in memory)",
                self._exchange.subject,
                self._space.memory_bytes,
                self._directory,
            )
        spill = _Spill(self._space.fs, self._directory, self._exchange.hash_seeds, level)
        for blob in blobs:
            spill.add(blob)
        return spill


# --- in memory ------------------------------------------------------------------------------------------------


def _memory(blob: Blob) -> int:
    return 2 * len(blob.keys) + ENTRY_BYTES * len(blob.ordinals)


def _merged(exchange: Exchange, entries: list[Blob], clean: Iterable[Blob]) -> Iterator[tuple[int, bytes]]:
    if not entries:
        return
    table = _Table(exchange, entries)
    yield from table.survivors()
    for blob in clean:
        found = blob.ordinals[table.holds(blob)]
        if len(found):
            yield blob.group, ordinals_blob(SUPERSEDED, blob.group, found)


class _Table:
    """The newest entry of each key."""

    def __init__(self, exchange: Exchange, entries: list[Blob]) -> None:
        self._seeds, self._mask = exchange.hash_seeds, exchange.hash_mask
        counts = np.array([len(blob.ordinals) for blob in entries], dtype=np.int64)
        total = int(counts.sum())
        self._groups = np.repeat(np.array([blob.group for blob in entries], dtype=np.int64), counts)
        self._ordinals = np.concatenate([blob.ordinals for blob in entries])
        self._keys = np.concatenate([blob.keys for blob in entries])
        self._sizes = np.concatenate([blob.sizes for blob in entries])
        self._positions = np.cumsum(self._sizes) - self._sizes
        self._hashes = np.empty(total, dtype=np.int64)
        self._slots = np.full(1 << (2 * total).bit_length(), -1, dtype=np.int64)
        self._newest = np.empty(total, dtype=bool)
        key_exchange.merge(
            self._keys,
            self._positions,
            self._sizes,
            self._groups << 32 | self._ordinals,
            self._seeds,
            self._mask,
            self._hashes,
            self._slots,
            self._newest.view(np.uint8),
        )

    def survivors(self) -> Iterator[tuple[int, bytes]]:
        """Yields the newest entries' ordinals, by group."""
        of_group, ordinals = self._groups[self._newest], self._ordinals[self._newest]
        order = np.argsort(of_group, kind="stable")
        groups, starts = np.unique(of_group[order], return_index=True)
        for group, found in zip(groups.tolist(), np.split(ordinals[order], starts[1:]), strict=True):
            yield group, ordinals_blob(SURVIVORS, group, found)

    def holds(self, blob: Blob) -> np.ndarray:
        """Returns a mask of the blob's keys that have an entry."""
        found = np.empty(len(blob.ordinals), dtype=bool)
        key_exchange.look_up(
            self._keys,
            self._positions,
            self._sizes,
            self._hashes,
            self._slots,
            blob.keys,
            np.cumsum(blob.sizes) - blob.sizes,
            blob.sizes,
            self._seeds,
            self._mask,
            found.view(np.uint8),
        )
        return found


# --- in files -------------------------------------------------------------------------------------------------


class _BlobFile:
    """A file of blobs, each preceded by its length. The file is created with the first one."""

    def __init__(self, fs: FileSystem, path: Path) -> None:
        self._fs, self._path = fs, path
        self._file: File | None = None
        self._size = self.memory = 0

    def append(self, data: bytes, memory: int) -> None:
        if self._file is None:
            self._file = self._fs.open(self._path, "create")
        self._file.write_at(self._size, len(data).to_bytes(_LENGTH_BYTES, "little") + data)
        self._size += _LENGTH_BYTES + len(data)
        self.memory += memory

    def blobs(self) -> Iterator[Blob]:
        at = 0
        while self._file is not None and at < self._size:
            length = int.from_bytes(self._file.read_at(at, _LENGTH_BYTES), "little")
            data: Bytes = self._file.read_at(at + _LENGTH_BYTES, length)
            if len(data) != length:
                raise IncompleteError(f"{self._path}: only {len(data)} of {length} bytes could be read back")
            yield opened(data)
            at += _LENGTH_BYTES + length

    def remove(self) -> None:
        if self._file is not None:
            self._file.close()
            self._fs.remove(self._path)
            self._file = None


class _SpilledPart:
    """One part of the keys: its entries and its clean records."""

    def __init__(self, fs: FileSystem, stem: Path) -> None:
        self.entries = _BlobFile(fs, stem.with_suffix(".entries"))
        self.clean = _BlobFile(fs, stem.with_suffix(".clean"))

    def blobs(self) -> Iterator[Blob]:
        yield from self.entries.blobs()
        yield from self.clean.blobs()

    def remove(self) -> None:
        self.entries.remove()
        self.clean.remove()


class _Spill:
    """Keys in FAN_OUT parts, by a hash that differs between levels and from the hash that chose the reducer."""

    def __init__(self, fs: FileSystem, directory: Path, seeds: np.ndarray, level: int) -> None:
        self._seeds = np.roll(seeds, level + 1)
        self.parts = [_SpilledPart(fs, directory / f"{level}-{number}") for number in range(FAN_OUT)]

    def add(self, blob: Blob) -> None:
        keys = Keys(blob.keys, np.cumsum(blob.sizes) - blob.sizes, blob.sizes, blob.ordinals.astype(np.int64))
        # use the whole hash: a mask is for the tables of tests, and would put everything into one part
        for number, data in by_reducer(blob.kind, blob.group, keys, self._seeds, -1, FAN_OUT):
            part = self.parts[number]
            (part.entries if blob.kind == ENTRIES else part.clean).append(data, _memory(opened(data)))
