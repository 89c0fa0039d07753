"""Decodes records of Kafka's internal topics to text as kafka-dump-log does.

Kafka: OffsetsMessageParser and its siblings in DumpLogSegments. A decoder returns the texts of a key and a value: JSON,
except for values of `__remote_log_metadata`, which kafka-dump-log prints as Java does. For a record that it cannot
decode it returns a sentence with the reason in place of the key (for metadata: of the value); it never raises.

`control_texts` decodes control records, which kafka-dump-log shows in other words: markers, and KRaft's own.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from seglog.format import coordinator
from seglog.format.control import parse_control_record
from seglog.format.filenames import parse_partition_directory
from seglog.format.remote_metadata import remote_metadata_text
from seglog.model import ControlType

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


def control_texts(key: bytes | None, value: bytes | None) -> tuple[str, str | None]:
    """Returns a control record's key and value as JSON, in the form of metadata records; no value for a type that is
    not known. Raises ControlRecordError for a record that Kafka does not read either.
    """
    record = parse_control_record(key, value)
    if record.type is ControlType.UNKNOWN:
        return json.dumps({"type": record.type_id}), None
    data = dict(record.data)
    if record.coordinator_epoch is not None:
        data = {"version": 0, "coordinatorEpoch": record.coordinator_epoch}
    version = data.pop("version")
    return json.dumps({"type": record.type.name}), json.dumps(
        {"type": record.type.name, "version": version, "data": data}, separators=(",", ":")
    )
