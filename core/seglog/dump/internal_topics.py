"""Records of Kafka's internal topics as text in the place of their bytes, decoded as kafka-dump-log decodes them.

Kafka: OffsetsMessageParser and its siblings in DumpLogSegments. A decoder gives the texts of a key and a value: JSON,
except for values of `__remote_log_metadata`, which kafka-dump-log prints as Java does. For a record that it cannot take
it gives a sentence that says why, in the place of the key (of metadata: of the value); it never raises. Control records
are not decoded.
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

# From a record's key, value and offset to the texts of key and value; None where nothing is printed.
Decoder: TypeAlias = Callable[[bytes | None, bytes | None, int], tuple[str | None, str | None]]

DECODERS: dict[str, Decoder] = {
    "__consumer_offsets": partial(coordinator.coordinator_text, coordinator.OFFSETS),
    "__transaction_state": partial(coordinator.coordinator_text, coordinator.TRANSACTIONS),
    "__share_group_state": partial(coordinator.coordinator_text, coordinator.SHARE_STATE),
    "__cluster_metadata": lambda _key, value, offset: (None, coordinator.metadata_text(value, offset)),
    "__remote_log_metadata": lambda _key, value, offset: (None, remote_metadata_text(value, offset)),
}


def decoder_of(partition: str) -> Decoder | None:
    """That of a partition directory's topic, if it is an internal one."""
    name = parse_partition_directory(partition)
    return None if name is None else DECODERS.get(name.topic_partition.topic)


def decoded(records: Records, decoder: Decoder) -> Records:
    """`records` with texts in the place of keys and values. A null stays null, and bytes without a text stay bytes."""
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
    """Rendered JSON lines in which keys and values of records that are text of a JSON object are that object."""
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
                continue  # a text of Java's
    return json_text(fields).encode()
