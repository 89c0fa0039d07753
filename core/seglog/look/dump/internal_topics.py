"""Decodes records of Kafka's internal topics to text as kafka-dump-log does.

Kafka: OffsetsMessageParser and its siblings in DumpLogSegments. A decoder returns the texts of a key and a value: JSON,
except for values of `__remote_log_metadata`, which kafka-dump-log prints as Java does. For a record that it cannot
decode it returns a sentence with the reason in place of the key (for metadata: of the value); it never raises. Control
records are not decoded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import numpy as np

from seglog import layout
from seglog.escaping import json_text
from seglog.format import coordinator
from seglog.format.columns import Records
from seglog.format.filenames import parse_partition_directory
from seglog.format.remote_metadata import remote_metadata_text

# Maps a record's key, value and offset to the texts of key and value; None prints nothing.
Decoder: TypeAlias = Callable[[bytes | None, bytes | None, int], tuple[str | None, str | None]]

DECODERS: dict[str, Decoder] = {
    "__consumer_offsets": partial(coordinator.coordinator_text, coordinator.OFFSETS),
    "__transaction_state": partial(coordinator.coordinator_text, coordinator.TRANSACTIONS),
    "__share_group_state": partial(coordinator.coordinator_text, coordinator.SHARE_STATE),
    "__cluster_metadata": lambda _key, value, offset: (None, coordinator.metadata_text(value, offset)),
    "__remote_log_metadata": lambda _key, value, offset: (None, remote_metadata_text(value, offset)),
}


def decoder_of(partition: str) -> Decoder | None:
    """Returns the decoder for a partition directory's topic, None if the topic is not internal."""
    name = parse_partition_directory(partition)
    return None if name is None else DECODERS.get(name.topic_partition.topic)


def decoded(records: Records, decoder: Decoder) -> Records:
    """Returns `records` with keys and values replaced by their texts; null and undecodable ones stay as they are."""
    rows = records.rows.copy()
    batches = records.batches
    control = (batches["magic"] >= 2) & (batches["attributes"] & layout.CONTROL_MASK != 0)
    texts, end = [], len(records.arena)
    for i in np.flatnonzero(~control[rows["batch"]]).tolist():
        key, value = records.key(i), records.value(i)
        found = zip(("key", "value"), (key, value), decoder(key, value, int(rows["offset"][i])), strict=True)
        for part, data, text in found:
            if data is not None and text is not None:
                texts.append(text.encode("utf-8", "backslashreplace"))
                rows[f"{part}_position"][i], rows[f"{part}_size"][i] = end, len(texts[-1])
                end += len(texts[-1])
    arena = np.concatenate((records.arena, np.frombuffer(b"".join(texts), dtype=np.uint8)))
    return replace(records, arena=arena, rows=rows)


def with_objects(blocks: Iterable[memoryview]) -> Iterator[memoryview]:
    """Parses keys and values that are the text of a JSON object, in the record lines of rendered JSON."""
    lines = b"".join(map(bytes, blocks)).split(b"\n")
    opened = [_opened(line) if line.startswith(b'{"type":"record"') else line for line in lines]
    if lines != [b""]:
        yield memoryview(b"\n".join(opened))


def _opened(line: bytes) -> bytes:
    fields = json.loads(line)
    for part in ("key", "value"):
        text = fields.get(part)
        if isinstance(text, str) and text.startswith("{"):
            try:
                fields[part] = json.loads(text)
            except ValueError:
                continue  # text as Java prints it
    return json_text(fields).encode()
