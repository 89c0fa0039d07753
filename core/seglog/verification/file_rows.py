"""Reads every file of a log directory except `.log`, row by row: indexes, snapshots, checkpoints, Kafka 0.7 logs.

A file's name says what it holds, as in Kafka; the suffixes `.deleted`, `.cleaned`, `.swap` and `.tmp` do not matter.
What cannot be read becomes a finding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from seglog.errors import CorruptCheckpointError, CorruptSnapshotError, RefusedError, UnsupportedError
from seglog.format import checkpoint, filenames
from seglog.format.filenames import FileKind, parse_file_name
from seglog.format.index_entries import decode_offset_index, decode_time_index, decode_transaction_index
from seglog.format.producer_snapshot import decode_snapshot
from seglog.format.quorum_state import parse_quorum_state
from seglog.format.uuids import format_uuid
from seglog.scan.listing import OFFSET_CHECKPOINTS
from seglog.storage.filesystem import FileSystem
from seglog.storage.padding import last_written
from seglog.units import count_text
from seglog.verification.findings import Finding, finding, place_of
from seglog.verification.messages_07 import Messages07, Row

_INDEX_READ_BYTES = 1020 * 1024  # a multiple of all three entry sizes


def is_known(path: Path) -> bool:
    """True if `rows_of` can read a file of this name."""
    return _reader(path.name) is not None


def rows_of(fs: FileSystem, path: Path) -> Iterator[Row | Finding]:
    """Yields (type, fields) for each entry of the file, and findings on its damage."""
    reader = _reader(path.name)
    if reader is None:
        raise UnsupportedError(f"{path}: no Kafka file has this name")
    try:
        yield from reader(fs, path)
    except (CorruptCheckpointError, RefusedError) as error:
        yield finding("CHECKPOINT_CORRUPT", *place_of(path), str(error))
    except CorruptSnapshotError as error:
        yield finding("SNAPSHOT_CORRUPT", *place_of(path), error.reason, position=error.position)


Reader = Callable[[FileSystem, Path], Iterator[Row | Finding]]


def _reader(name: str) -> Reader | None:
    parsed = parse_file_name(name)
    if parsed is not None:
        return _BY_KIND.get(parsed.kind)
    return _BY_NAME.get(name.removesuffix(".tmp").removesuffix(".deleted"))


def _rows_of(kind: str, parse: Callable[[bytes, Path], Iterable[dict[str, Any]]]) -> Reader:
    """Returns a reader of small files, which `parse` turns into the fields of each entry."""

    def read(fs: FileSystem, path: Path) -> Iterator[Row | Finding]:
        for fields in parse(fs.read_bytes(path), path):
            yield kind, fields

    return read


def _index_rows(kind: str, decode: Callable[[bytes, int], np.ndarray], entry_bytes: int) -> Reader:
    """Returns a reader of index files, in pieces. A preallocated tail of zeros is one row with the entry count."""

    def read(fs: FileSystem, path: Path) -> Iterator[Row | Finding]:
        name = parse_file_name(path.name)
        base = 0 if name is None else name.offset
        with fs.open(path, "r") as file:
            size = file.size()
            used = min(size // entry_bytes, -(-last_written(file) // entry_bytes)) * entry_bytes
            for position in range(0, used, _INDEX_READ_BYTES):
                rows = decode(file.read_at(position, min(_INDEX_READ_BYTES, used - position)), base)
                names = rows.dtype.names or ()
                for values in rows.tolist():
                    yield kind, dict(zip(names, values, strict=True))
        unused = size // entry_bytes - used // entry_bytes
        if unused:
            yield "preallocated_entries", {"count": unused}
        if size % entry_bytes:
            message = f"{count_text(size % entry_bytes, 'byte')} follow the last whole entry"
            yield finding("INDEX_SIZE_INVALID", *place_of(path), message, position=size - size % entry_bytes)

    return read


def _producers(data: bytes, path: Path) -> Iterator[dict[str, Any]]:
    for entry in decode_snapshot(data, path):
        yield {name: getattr(entry, name) for name in entry.__slots__}


def _offsets(data: bytes, path: Path) -> Iterator[dict[str, Any]]:
    for key, offset in checkpoint.parse_offset_checkpoint(data, path).items():
        yield {"topic": key.topic, "topic_partition": key.partition, "offset": offset}


def _epochs(data: bytes, path: Path) -> Iterator[dict[str, Any]]:
    for entry in checkpoint.parse_leader_epochs(data, path):
        yield {"epoch": entry.epoch, "start_offset": entry.start_offset}


def _partition_metadata(data: bytes, path: Path) -> Iterator[dict[str, Any]]:
    found = checkpoint.parse_partition_metadata(data, path)
    yield {"version": found.version, "topic_id": format_uuid(found.topic_id)}


def _meta_properties(data: bytes, path: Path) -> Iterator[dict[str, Any]]:
    found = checkpoint.parse_meta_properties(data, path)
    directory = None if found.directory_id is None else format_uuid(found.directory_id)
    fields = {"version": found.version, "cluster_id": found.cluster_id, "node_id": found.node_id}
    yield {**fields, "directory_id": directory}


_BY_KIND: dict[FileKind, Reader] = {
    FileKind.OFFSET_INDEX: _index_rows("offset_index_entry", decode_offset_index, 8),
    FileKind.TIME_INDEX: _index_rows("time_index_entry", decode_time_index, 12),
    FileKind.TRANSACTION_INDEX: _index_rows("aborted_transaction", lambda data, _: decode_transaction_index(data), 34),
    FileKind.PRODUCER_SNAPSHOT: _rows_of("producer", _producers),
    FileKind.LOG_07: lambda fs, path: Messages07(fs, path).rows(),
}
_BY_NAME: dict[str, Reader] = {
    **dict.fromkeys(OFFSET_CHECKPOINTS, _rows_of("checkpoint", _offsets)),
    filenames.LEADER_EPOCH_CHECKPOINT: _rows_of("leader_epoch", _epochs),
    filenames.PARTITION_METADATA: _rows_of("partition_metadata", _partition_metadata),
    filenames.META_PROPERTIES: _rows_of("meta_properties", _meta_properties),
    filenames.CLEAN_SHUTDOWN_FILE: _rows_of(
        "clean_shutdown", lambda data, _: [{"broker_epoch": checkpoint.parse_clean_shutdown(data)}]
    ),
    filenames.QUORUM_STATE: _rows_of("quorum_state", lambda data, path: [{"data": parse_quorum_state(data, path)}]),
}
