"""Decodes the records of topics that Kafka and what belongs to it keep for themselves; their names say which.

A `Decoder` returns the texts of a key and a value for Kafka's own topics, as kafka-dump-log does: JSON, except for
values of `__remote_log_metadata`, which kafka-dump-log prints as Java does. For a record that it cannot decode it
returns a sentence with the reason in place of the key (for metadata: of the value); it never raises.

A `Kind` is what a topic holds, with the names of such topics. It shows Kafka's own as their `Decoder` does, and those
of MirrorMaker, Connect, registries and Streams as JSON, or with the reason why a key or value is not one of theirs.

`control_texts` decodes control records, which kafka-dump-log shows in other words: markers, and KRaft's own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import TypeAlias

from seglog.escaping import json_value
from seglog.format import coordinator
from seglog.format.control import parse_control_record
from seglog.format.filenames import parse_partition_directory
from seglog.format.wire import WireError
from seglog.model import ControlType
from seglog_ask.values import json_topics, streams_records
from seglog_ask.values.coordinator_texts import coordinator_text, metadata_text
from seglog_ask.values.mirror_records import CHECKPOINT, HEARTBEAT, OFFSET_SYNC, MirrorFormat
from seglog_ask.values.schemas import NotDecodedError, Text
from seglog_ask.values.streams_records import parts
from seglog_stores.formats.remote_metadata import remote_metadata_text

# Maps a record's key, value and offset to the texts of key and value; None prints nothing.
Decoder: TypeAlias = Callable[[bytes | None, bytes | None, int], tuple[str | None, str | None]]
# The same, to JSON or the reason why there is none; None: it is shown as it is.
Decode: TypeAlias = Callable[[bytes | None, bytes | None, int], tuple[Text | None, Text | None]]

DECODERS: dict[str, Decoder] = {
    "__consumer_offsets": partial(coordinator_text, coordinator.OFFSETS),
    "__transaction_state": partial(coordinator_text, coordinator.TRANSACTIONS),
    "__share_group_state": partial(coordinator_text, coordinator.SHARE_STATE),
    "__cluster_metadata": lambda _key, value, offset: (None, metadata_text(value, offset)),
    "__remote_log_metadata": lambda _key, value, offset: (None, remote_metadata_text(value, offset)),
}


@dataclass(frozen=True, slots=True)
class Kind:
    """What a topic holds. `topics` is a regular expression for the names that say so; None: no name does."""

    name: str
    decode: Decode
    topics: str | None


def _as_kafka_prints(topic: str) -> Decode:
    decoder = DECODERS[topic]

    def decode(key: bytes | None, value: bytes | None, offset: int) -> tuple[Text | None, Text | None]:
        key_text, value_text = decoder(key, value, offset)
        return _of_text(key_text), _of_text(value_text)

    return decode


def _of_text(text: str | None) -> str | None:
    """Returns as JSON what a decoder of Kafka's says: a JSON object, or a text in quotes."""
    if text is not None and text.startswith("{"):
        try:
            return json_value(json.loads(text))
        except ValueError:
            return json_value(text)  # as Java prints it
    return None if text is None else json_value(text)


def _mirrored(form: MirrorFormat) -> Decode:
    def decode(key: bytes | None, value: bytes | None, _offset: int) -> tuple[Text | None, Text | None]:
        return _fields(form.decode_key, key), _fields(form.decode_value, value)

    return decode


def _fields(decode: Callable[[bytes], object], data: bytes | None) -> Text | None:
    try:
        return None if data is None else json_value(decode(data))
    except WireError as error:
        return NotDecodedError(str(error))


_ANY = ".+"
_NUMBER = r"-\d{10}"  # of a part of a topology, which has no other name
_STREAMS_JOIN = rf"(KSTREAM-(JOIN|OUTER)(THIS|OTHER){_NUMBER}-store|.+-(outer-)?(this|other)-join-store)"
_STREAMS_HELD = rf"(KSTREAM-OUTERSHARED{_NUMBER}-store|.+-(left|outer)-shared-join-store)"
_MIRROR_INTERNAL = r"mm2-{}\..+\.internal"

KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("offsets", _as_kafka_prints("__consumer_offsets"), "__consumer_offsets"),
        Kind("transactions", _as_kafka_prints("__transaction_state"), "__transaction_state"),
        Kind("share-states", _as_kafka_prints("__share_group_state"), "__share_group_state"),
        Kind("metadata", _as_kafka_prints("__cluster_metadata"), "__cluster_metadata"),
        Kind("remote-log-metadata", _as_kafka_prints("__remote_log_metadata"), "__remote_log_metadata"),
        Kind("mirror-offset-syncs", _mirrored(OFFSET_SYNC), r"mm2-offset-syncs(\W|_).+(\W|_)internal"),
        Kind("mirror-checkpoints", _mirrored(CHECKPOINT), r".+(\W|_)checkpoints(\W|_)internal"),
        Kind("mirror-heartbeats", _mirrored(HEARTBEAT), r"(.+\.)?heartbeats"),
        Kind("connect-configs", json_topics.connect_config, f"connect-configs|{_MIRROR_INTERNAL.format('configs')}"),
        Kind("connect-offsets", json_topics.connect_offset, f"connect-offsets|{_MIRROR_INTERNAL.format('offsets')}"),
        Kind("connect-status", json_topics.connect_status, f"connect-status|{_MIRROR_INTERNAL.format('status')}"),
        Kind("schemas", json_topics.registry_schema, "_schemas"),
        Kind("encryption-keys", json_topics.registry_key, "_dek_registry_keys"),
        Kind("streams-window", parts(streams_records.window_key, None), f"{_ANY}-{_STREAMS_JOIN}-changelog"),
        Kind("streams-session", parts(streams_records.session_key, None), None),
        Kind("streams-windowed-key", parts(streams_records.windowed_key, None), None),
        Kind(
            "streams-outer-join",
            parts(streams_records.held_join_key, streams_records.held_join_values),
            f"{_ANY}-{_STREAMS_HELD}-changelog",
        ),
        Kind(
            "streams-suppress",
            parts(None, streams_records.suppressed),
            rf"{_ANY}-KTABLE-SUPPRESS-STATE-STORE{_NUMBER}-changelog",
        ),
        Kind(
            "streams-foreign-key",
            parts(streams_records.subscription_key, streams_records.subscription),
            rf"{_ANY}-KTABLE-FK-JOIN-SUBSCRIPTION-STATE-STORE{_NUMBER}-changelog",
        ),
        Kind(
            "streams-subscription",
            parts(None, streams_records.subscription),
            rf"{_ANY}-(KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION{_NUMBER}|.+-subscription-registration)-topic",
        ),
        Kind(
            "streams-response",
            parts(None, streams_records.subscription_response),
            rf"{_ANY}-(KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE{_NUMBER}|.+-subscription-response)-topic",
        ),
    )
}


@cache
def _of_any_name() -> re.Pattern[str]:
    named = (kind for kind in KINDS.values() if kind.topics is not None)
    return re.compile("|".join(f"(?P<{kind.name.replace('-', '_')}>{kind.topics})" for kind in named), re.DOTALL)


def kind_of(topic: str) -> Kind | None:
    """Returns what a topic holds if its name says so."""
    match = _of_any_name().fullmatch(topic)
    return None if match is None else KINDS[(match.lastgroup or "").replace("_", "-")]


def decoder_of(topic: str) -> Decoder:
    """Returns the decoder of one of Kafka's own topics in DECODERS."""
    return DECODERS[topic]


def kind_of_partition(directory: str) -> Kind | None:
    """Returns what the topic of a partition directory holds, if its name says so."""
    name = parse_partition_directory(directory)
    return None if name is None else kind_of(name.topic_partition.topic)


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
