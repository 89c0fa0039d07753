"""Reads Kafka 0.7 logs message by message, for `dump`, `read` and `verify` (`format.message_07` decodes them).

A message's offset is its byte position in the whole log. It has no key, no timestamp and no producer.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from seglog.format.filenames import FileKind, parse_file_name
from seglog.format.message_07 import End07, Message07, payloads, walk_messages
from seglog.format.payloads import DecompressionError
from seglog.storage.filesystem import FileSystem
from seglog.verification.findings import Finding, finding, place_of

Row = tuple[str, dict[str, Any]]

_PAYLOAD_LIMIT = 64 << 20
_READ_BYTES = 64 << 20


def is_07(path: Path) -> bool:
    """True if the name is that of a Kafka 0.7 log file."""
    name = parse_file_name(path.name)
    return name is not None and name.kind is FileKind.LOG_07


class Messages07:
    """The rows of one `.kafka` file: a `message` each, with `records` also a `record` per payload, and findings.

    Covers messages from `first_offset` up to `end_offset` (exclusive). `limit` bounds the records shown, or without
    `records` the messages; `shown` counts them. `messages` and `payloads` count the good ones.
    """

    def __init__(
        self,
        fs: FileSystem,
        path: Path,
        *,
        records: bool = True,
        base64_values: bool = False,
        first_offset: int = 0,
        end_offset: int | None = None,
        limit: int | None = None,
    ) -> None:
        self._fs, self._path, self._records, self._base64 = fs, path, records, base64_values
        self._first_offset, self._end_offset, self._limit = first_offset, end_offset, limit
        name = parse_file_name(path.name)
        self._base = 0 if name is None else name.offset
        self.shown = self.messages = self.payloads = 0

    def rows(self) -> Iterator[Row | Finding]:
        """Yields the requested rows and findings. Stops at bytes that are not a message."""
        position = 0
        with self._fs.open(self._path, "r") as file:
            size = file.size()
            if self._base + size <= self._first_offset:
                return
            while position < size:
                walk = walk_messages(file.read_at(position, _READ_BYTES))
                for message in walk.messages:
                    if self._is_full:
                        return
                    yield from self._message(position + message.position, message)
                if walk.end_position == 0:
                    code = "TORN_TAIL" if walk.end is End07.TRUNCATED else "UNREADABLE_BYTES"
                    where = {"position": position, "length": size - position, "first_offset": self._base + position}
                    yield self._finding(code, walk.end.value, **where)
                    return
                position += walk.end_position

    @property
    def _is_full(self) -> bool:
        return self._limit is not None and self.shown >= self._limit

    def _message(self, position: int, message: Message07) -> Iterator[Row | Finding]:
        offset = self._base + position
        if offset < self._first_offset or (self._end_offset is not None and offset >= self._end_offset):
            return
        where = {"position": position, "length": message.size, "first_offset": offset}
        valid = message.is_valid
        codec = "unknown" if message.codec is None else message.codec.label
        fields = {"position": position, "size": message.size, "magic": message.magic, "codec": codec}
        yield "message", {"offset": offset, **fields, "crc": message.crc, "valid": valid}
        self.shown += not self._records
        if not valid:
            reason = f"the checksum of the message is wrong (stored {message.crc})"
            yield self._finding("CRC_MISMATCH", reason, **where)
            return
        try:
            contents = payloads(message, _PAYLOAD_LIMIT)
        except DecompressionError as error:
            yield self._finding("RECORDS_INVALID", error.reason, **where)
            return
        self.messages += 1
        self.payloads += len(contents)
        for payload in contents if self._records else ():
            if self._is_full:
                return
            self.shown += 1
            value = bytes(payload)
            shown = {"value_b64": base64.b64encode(value).decode("ascii")}
            if not self._base64:
                with suppress(UnicodeDecodeError):
                    shown = {"value": value.decode()}
            yield "record", {"offset": offset, **shown}

    def _finding(self, code: str, message: str, **fields: Any) -> Finding:
        return finding(code, *place_of(self._path), message, **fields)
