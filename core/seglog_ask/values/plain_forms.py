"""The forms of keys and values that need no schema.

Kafka's own serializers write numbers big-endian. Others are what programs write: little-endian numbers (`-le`),
MessagePack, CBOR, files of Avro, and what gzip has compressed.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable
from importlib import import_module
from typing import Literal
from uuid import UUID

from seglog.escaping import json_value, safe_json
from seglog_ask.values.expanding import gunzipped
from seglog_ask.values.schemas import NotDecodedError, Text

_UUID_BYTES = 16


def text_or_reason(decode: Callable[[bytes], Text], data: bytes) -> Text:
    """Returns what `decode` returns, or the NotDecodedError that it raises."""
    try:
        return decode(data)
    except NotDecodedError as error:
        return error


def _string(data: bytes) -> str:
    try:
        return json_value(data.decode())
    except UnicodeDecodeError as error:
        raise NotDecodedError(f"byte {error.start} is not UTF-8") from error


def _number(size: int, order: Literal["big", "little"] = "big") -> Callable[[bytes], str]:
    def decode(data: bytes) -> str:
        if len(data) != size:
            raise NotDecodedError(f"it has {len(data)} bytes, not {size}")
        return str(int.from_bytes(data, order, signed=True))

    return decode


def _float(form: str) -> Callable[[bytes], str]:
    def decode(data: bytes) -> str:
        if len(data) != struct.calcsize(form):
            raise NotDecodedError(f"it has {len(data)} bytes, not {struct.calcsize(form)}")
        return json_value(struct.unpack(form, data)[0])

    return decode


def _uuid(data: bytes) -> str:
    if len(data) != _UUID_BYTES:
        raise NotDecodedError(f"it has {len(data)} bytes, not {_UUID_BYTES}")
    return f'"{UUID(bytes=data)}"'


def _not_a_number(text: str) -> None:
    raise NotDecodedError(f"it is not JSON: {text}")


def json_document(data: bytes) -> str:
    """Returns JSON as it is, in one line, so that no number loses a digit. Raises NotDecodedError for anything else."""
    try:
        text = data.decode()
        json.loads(text, parse_constant=_not_a_number, parse_int=len, parse_float=len)
    except NotDecodedError:
        raise
    except (ValueError, RecursionError) as error:
        raise NotDecodedError(f"it is not JSON: {error}") from error
    return safe_json(text.strip().replace("\n", " ").replace("\r", " "))  # between tokens: strings have them escaped


def _of_messagepack(data: bytes) -> str:
    from seglog_ask.values import documents

    return documents.of_messagepack(data)


def _of_cbor(data: bytes) -> str:
    from seglog_ask.values import documents

    return documents.of_cbor(data)


def _of_avro_file(data: bytes) -> Text:
    from seglog_ask.values import avro_file

    return avro_file.records(data)


def require(form: str) -> None:
    """Imports the libraries that a form needs. Raises ModuleNotFoundError without them."""
    module = _NEEDING.get(form)
    if module is not None:
        import_module(f"seglog_ask.values.{module}")


_NEEDING = {"msgpack": "documents", "cbor": "documents", "avro-file": "avro_file"}
PLAIN: dict[str, Callable[[bytes], Text]] = {
    "string": _string,
    "hex": lambda data: f'"{data.hex()}"',
    "base64": lambda data: f'"{base64.b64encode(data).decode()}"',
    "short": _number(2),
    "int": _number(4),
    "long": _number(8),
    "float": _float(">f"),
    "double": _float(">d"),
    "short-le": _number(2, "little"),
    "int-le": _number(4, "little"),
    "long-le": _number(8, "little"),
    "float-le": _float("<f"),
    "double-le": _float("<d"),
    "uuid": _uuid,
    "json": json_document,
    "gzip": lambda data: _string(gunzipped(data)),
    "gzip-json": lambda data: json_document(gunzipped(data)),
    "msgpack": _of_messagepack,
    "cbor": _of_cbor,
    "avro-file": _of_avro_file,
}
