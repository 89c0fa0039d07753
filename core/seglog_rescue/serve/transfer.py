"""Sending fetched bytes to a socket without copying them through Python (Kafka: FileRecords.writeTo, MessageSetSend).

A send is a header with its size and error code, then the segment's bytes, by `sendfile` if the platform has it, else by
read and send. It remembers its progress, so a non-blocking socket may take any part of it per call.

    +-------------------+-----------------------+----------------------------------+
    | size (int32)      | error code (int16)    | bytes of the segment             |
    | of what follows   | 0 = none              | `size - 2` of them               |
    +-------------------+-----------------------+----------------------------------+

This is the library's own, for a plain socket of the caller's. `seglog serve` shares `by_sendfile` and no more
(`serve.connection`): the answers of the versioned protocol have other headers, and its sockets belong to an event loop.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Sequence

from seglog.errors import IncompleteError
from seglog.log.reader import FetchResult
from seglog.storage.filesystem import File

ERROR_NONE = 0
ERROR_UNKNOWN = -1
ERROR_OFFSET_OUT_OF_RANGE = 1
ERROR_CORRUPT_MESSAGE = 2

_HEADER = struct.Struct(">ih")
_CODE_BYTES = 2
_COPY_BYTES = 64 << 10
# sendfile exists but does not support this kind of descriptor
_NO_SENDFILE = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSOCK, errno.EOPNOTSUPP})


def by_sendfile(target: int, file: File, position: int, size: int) -> int | None:
    """Returns how many bytes of a file a socket (its descriptor) took by sendfile; None if it does not work for this
    file or socket, and never will. Raises BlockingIOError if the socket takes none now, and the socket's errors.
    """
    try:
        return os.sendfile(target, file.fileno(), position, size)
    except OSError as error:
        if error.errno not in _NO_SENDFILE:
            raise
    return None


class MessageSetSend:
    """Sends one fetch result; an error is sent as its code and no bytes."""

    def __init__(self, result: FetchResult | None, error_code: int = ERROR_NONE, *, use_sendfile: bool = True) -> None:
        self._file = None if result is None or error_code else result.file
        self._position = 0 if result is None else result.position
        self._size = 0 if result is None or self._file is None else result.size
        self._header = _HEADER.pack(_CODE_BYTES + self._size, error_code)
        self._sent = 0
        self._use_sendfile = use_sendfile and hasattr(os, "sendfile")
        self.error_code = error_code

    @property
    def size(self) -> int:
        """The bytes of the whole send, including the header."""
        return len(self._header) + self._size

    @property
    def complete(self) -> bool:
        """True if everything was handed to the socket."""
        return self._sent == self.size

    def write_to(self, target: socket.socket) -> int:
        """Writes as much as `target` takes now; returns the bytes written, 0 if it takes none.

        A blocking socket gets everything in one call. Raises OSError as the socket does, IncompleteError if the file
        has become shorter than was promised to the receiver.
        """
        written = 0
        try:
            while not self.complete:
                written += self._step(target)
        except (BlockingIOError, InterruptedError):
            return written
        return written

    def _step(self, target: socket.socket) -> int:
        if self._sent < len(self._header):
            count = target.send(self._header[self._sent :])
        else:
            count = self._send_file(target)
        self._sent += count
        return count

    def _send_file(self, target: socket.socket) -> int:
        assert self._file is not None
        done = self._sent - len(self._header)
        position, remaining = self._position + done, self._size - done
        count = by_sendfile(target.fileno(), self._file, position, remaining) if self._use_sendfile else None
        if count is None:
            self._use_sendfile = False
            piece = self._file.read_at(position, min(remaining, _COPY_BYTES))
            count = target.send(piece) if piece else 0
        if count == 0:
            raise IncompleteError(f"{self._file.path}: {remaining} bytes promised at position {position} are gone")
        return count


class MultiMessageSetSend:
    """Several sends after one size (int32) for all of them: one answer for several partitions."""

    def __init__(self, sends: Sequence[MessageSetSend]) -> None:
        self._sends = list(sends)
        self._header = struct.pack(">i", sum(send.size for send in self._sends))
        self._header_sent = 0
        self._current = 0

    @property
    def size(self) -> int:
        """The bytes of the whole send, including its own header."""
        return len(self._header) + sum(send.size for send in self._sends)

    @property
    def complete(self) -> bool:
        """True if everything was handed to the socket."""
        return self._header_sent == len(self._header) and self._current == len(self._sends)

    def write_to(self, target: socket.socket) -> int:
        """Writes as much as `target` takes now; returns the bytes written."""
        written = 0
        try:
            while self._header_sent < len(self._header):
                count = target.send(self._header[self._header_sent :])
                self._header_sent += count
                written += count
        except (BlockingIOError, InterruptedError):
            return written
        while self._current < len(self._sends):
            send = self._sends[self._current]
            written += send.write_to(target)
            if not send.complete:
                break
            self._current += 1
        return written
