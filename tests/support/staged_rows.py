"""Staged files for `StagedAppend`, as a task would leave them, on any file system."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path

from seglog.format.builder import BatchOptions, columns_of, encode_columns
from seglog.model import Record, TopicPartition
from seglog.storage.filesystem import FileSystem
from seglog_ask.spark.staged_journal import StagedFile


def stage(
    fs: FileSystem, staging: Path, name: str, values: Sequence[bytes], *, first: int | None = None, each: int = 2
) -> StagedFile:
    """Values for the partition `topic-number`, durably staged in batches of `each` records.

    `first` is the first value's offset; None leaves the numbering to the append.
    """
    topic, _, number = name.rpartition("-")
    partition = TopicPartition(topic, int(number))
    records = columns_of([Record(value, b"k", timestamp=1000 + i) for i, value in enumerate(values)])
    options = BatchOptions(batch_records=each, leader_epoch=0)
    data = b"".join(bytes(piece.data) for piece in encode_columns(records, first or 0, options))
    if fs.status(staging) is None:
        fs.make_directory(staging)
    file_name = f"{name}-{uuid.uuid4().hex}"
    with fs.open(staging / file_name, "create_new") as file:
        file.write_at(0, data)
        file.sync()
    return StagedFile(partition, file_name, len(values), len(data), first, (first or 0) + len(values) - 1)
