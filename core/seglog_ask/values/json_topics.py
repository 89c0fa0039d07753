"""Reads the topics in which Connect and Confluent's registries keep their state as JSON.

| topic | keys | values |
|---|---|---|
| Connect's configs | `connector-NAME`, `task-NAME-N`, `commit-NAME`, `session-key`, … | JSON objects |
| Connect's offsets | `["CONNECTOR",{partition of the source}]` | the source's offset, an object |
| Connect's status | `status-connector-NAME`, `status-task-NAME-N`, `status-topic-TOPIC:connector-NAME` | JSON objects |
| `_schemas` | an object with `keytype`: SCHEMA, CONFIG, MODE, DELETE_SUBJECT, … | an object |
| `_dek_registry_keys` | an object whose type is KEK or DEK | an object |

A key is shown by what it names. In values, secrets are `HIDDEN`: Connect's session key, settings of connectors and of a
KMS whose names say so, and the material of a key that is not encrypted. Everything else stays as it was written.

Kafka: KafkaConfigBackingStore, KafkaOffsetBackingStore, KafkaStatusBackingStore. Confluent: SchemaRegistryKeyType,
KeyEncryptionKey, DataEncryptionKey.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from seglog.configuration.sensitive import HIDDEN, is_sensitive
from seglog.escaping import json_value
from seglog_ask.values.plain_forms import json_document, text_or_reason
from seglog_ask.values.schemas import NotDecodedError, Text

_SESSION_KEY = "session-key"
# What begins a key of Connect's topics, in the order in which Connect looks for it, and what follows.
_CONFIGS = {
    "target-state-": "connector",
    "connector-": "connector",
    "task-": "task",
    "commit-": "connector",
    "restart-connector-": "connector",
    "tasks-fencing-": "connector",
    "logger-cluster-": "logger",
}
_STATUS = {"status-connector-": "connector", "status-task-": "task"}
_TOPIC_STATUS, _OF_CONNECTOR = "status-topic-", ":connector-"
_KEY_TYPES = ("keytype", "type")  # of _dek_registry_keys; the second is that of its first release
_MATERIAL = "keyMaterial"
_MOST_DIGITS = 40  # of a number that Python may have to write again


def connect_config(key: bytes | None, value: bytes | None, _offset: int) -> tuple[Text | None, Text | None]:
    """Returns what a record of Connect's configs says: a connector's or task's settings, the number of tasks, …"""
    hide = _without_session_key if key == _SESSION_KEY.encode() else _without_secrets
    return _of(key, _config_key), _of(value, lambda data: _object(data, hide))


def connect_offset(key: bytes | None, value: bytes | None, _offset: int) -> tuple[Text | None, Text | None]:
    """Returns what a record of Connect's offsets says: how far a connector has read a partition of its source."""
    return _of(key, _offset_key), _of(value, _object)


def connect_status(key: bytes | None, value: bytes | None, _offset: int) -> tuple[Text | None, Text | None]:
    """Returns what a record of Connect's status says: a connector's or task's state, or a topic that it uses."""
    return _of(key, _status_key), _of(value, _object)


def registry_schema(key: bytes | None, value: bytes | None, _offset: int) -> tuple[Text | None, Text | None]:
    """Returns what a record of a schema registry says."""
    return _of(key, lambda data: _typed_object(data, ("keytype",))), _of(value, _object)


def registry_key(key: bytes | None, value: bytes | None, _offset: int) -> tuple[Text | None, Text | None]:
    """Returns what a record of the registry of encryption keys says: a KEK, which a KMS holds, or an encrypted DEK."""
    return _of(key, lambda data: _typed_object(data, _KEY_TYPES)), _of(value, lambda data: _object(data, _without_kms))


def _of(data: bytes | None, decode: Callable[[bytes], str]) -> Text | None:
    return None if data is None else text_or_reason(decode, data)


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise NotDecodedError(f"byte {error.start} is not UTF-8") from error


def _config_key(data: bytes) -> str:
    key = _text(data)
    if key == _SESSION_KEY:
        return json_value({"type": _SESSION_KEY})
    for start, what in _CONFIGS.items():
        if key.startswith(start):
            return _named(start.removesuffix("-"), what, key.removeprefix(start))
    raise NotDecodedError(f"its beginning is not one of {', '.join((*_CONFIGS, _SESSION_KEY))}")


def _status_key(data: bytes) -> str:
    key = _text(data)
    for start, what in _STATUS.items():
        if key.startswith(start):
            return _named(start.removesuffix("-"), what, key.removeprefix(start))
    topic, middle, connector = key.removeprefix(_TOPIC_STATUS).partition(_OF_CONNECTOR)
    if key.startswith(_TOPIC_STATUS) and middle:
        return json_value({"type": "status-topic", "topic": topic, "connector": connector})
    raise NotDecodedError(f"its beginning is not one of {', '.join((*_STATUS, _TOPIC_STATUS))}")


def _named(kind: str, what: str, name: str) -> str:
    """Returns a key by what it names. A task is CONNECTOR-N; names of connectors may have hyphens."""
    if what != "task":
        return json_value({"type": kind, what: name})
    connector, _, number = name.rpartition("-")
    if not connector or not (number.isascii() and number.isdigit()):
        raise NotDecodedError("it does not end with a connector and the number of a task")
    return json_value({"type": kind, "connector": connector, "task": int(number)})


def _offset_key(data: bytes) -> str:
    key = _parsed(json_document(data))
    is_key = isinstance(key, list) and len(key) == 2 and isinstance(key[0], str)
    if not is_key or not isinstance(key[1], dict | None):
        raise NotDecodedError("it is JSON, but not a list of a connector's name and an object")
    return _written({"type": "offset", "connector": key[0], "partition": key[1]})


def _typed_object(data: bytes, names: tuple[str, ...]) -> str:
    """Returns a key that says what it is in a field of one of these names."""
    text = _object(data)
    key = _parsed(text)
    if not any(isinstance(key.get(name), str) for name in names):
        raise NotDecodedError(f"it is JSON, but has no {names[0]}")
    return text


def _object(data: bytes, hide: Callable[[dict[str, Any]], bool] = lambda _value: False) -> str:
    """Returns a JSON object as it was written, or without the secrets that `hide` takes out of it."""
    text = json_document(data)
    value = _parsed(text)
    if not isinstance(value, dict):
        raise NotDecodedError("it is JSON, but not an object")
    return _written(value) if hide(value) else text


def _parsed(text: str) -> Any:
    return json.loads(text, parse_int=_number, parse_float=_number)


def _number(text: str) -> int | float | str:
    """Returns a number with all its digits: as text if Python would write it otherwise."""
    if len(text) <= _MOST_DIGITS:
        for kind in (int, float):
            with contextlib.suppress(ValueError):
                if repr(kind(text)) == text:
                    return kind(text)
    return text


def _written(value: object) -> str:
    try:
        return json_value(value)
    except RecursionError as error:
        raise NotDecodedError("its JSON is nested too deeply") from error


def _without_session_key(value: dict[str, Any]) -> bool:
    return _hidden(value, lambda name: name == "key")


def _without_secrets(value: dict[str, Any]) -> bool:
    return _hidden(value.get("properties"), is_sensitive)


def _without_kms(value: dict[str, Any]) -> bool:
    hidden = _hidden(value.get("kmsProps"), is_sensitive)
    return _hidden(value, lambda name: name == _MATERIAL) or hidden


def _hidden(settings: object, is_secret: Callable[[str], bool]) -> bool:
    """Puts `HIDDEN` in the place of secrets; returns True if there were any."""
    names = [name for name in settings if is_secret(name)] if isinstance(settings, Mapping) else []
    for name in names:
        settings[name] = HIDDEN  # type: ignore[index]
    return bool(names)
