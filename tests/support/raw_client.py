"""A client without a library's kindness: frames as they are asked for, by kio's types, or any bytes."""

from __future__ import annotations

import dataclasses
import io
import socket
import struct
from collections.abc import Mapping
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, get_args

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from seglog_rescue.serve.endpoint import Address
from seglog_rescue.serve.protocol import message

LIMIT_SECONDS = 30


class RawClient:
    """One blocking connection."""

    def __init__(self, address: Address) -> None:
        self.socket = socket.create_connection((address.host, address.port), timeout=LIMIT_SECONDS)
        self._numbers = iter(range(1 << 30))

    def ask(self, api_key: int, version: int, values: Mapping[str, Any] | None = None) -> Any:
        """Sends a request, in which what is not given has a plain value; returns the answer as kio reads it."""
        number = next(self._numbers)
        self.send(request_frame(api_key, version, values or {}, number))
        frame = self.receive()
        kind = load_response_schema(api_key, version)
        header, size = entity_reader(kind.__header_schema__)(frame, 0)
        assert header.correlation_id == number
        body, body_size = entity_reader(kind)(frame, size)
        assert size + body_size == len(frame)
        return body

    def send(self, frame: bytes) -> None:
        """Sends bytes as a frame, with its size."""
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)

    def receive(self) -> bytes:
        """The next frame; EOFError when the connection is closed."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def is_closed(self) -> bool:
        """Waits until the other side has closed."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self.socket.recv(min(size - len(data), 1 << 20))
            if not piece:
                raise EOFError
            data += piece
        return bytes(data)

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def request_frame(api_key: int, version: int, values: Mapping[str, Any], number: int = 0) -> bytes:
    """A request's bytes without their size."""
    kind: Any = load_request_schema(api_key, version)
    header: Any = kind.__header_schema__
    about = {"request_api_key": api_key, "request_api_version": version, "correlation_id": number, "client_id": "raw"}
    buffer = io.BytesIO()
    entity_writer(header)(buffer, message(header, about))
    entity_writer(kind)(buffer, filled(kind, values))
    return buffer.getvalue()


def filled(kind: Any, values: Mapping[str, Any]) -> Any:
    """An entity with the given fields, and for the others their defaults or the least that their types allow."""
    given = {field.name: _least(field.type) for field in dataclasses.fields(kind) if _is_required(field)}
    return dataclasses.replace(message(kind, {**given, **values}))


def _is_required(field: Any) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _least(annotation: Any) -> Any:
    if type(None) in get_args(annotation):
        return None
    if str(annotation).startswith("tuple"):
        return ()
    if isinstance(annotation, type):
        for kind, value in ((bool, False), (timedelta, timedelta(0)), (str, ""), (bytes, b"")):
            if issubclass(annotation, kind):
                return value
        if "str" in annotation.__name__.lower() or annotation.__name__ in ("GroupId", "TopicName", "TransactionalId"):
            return ""
        if "Timedelta" in annotation.__name__:
            return timedelta(0)
    return 0
