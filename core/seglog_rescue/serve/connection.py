"""One client's connection: frames in, answers out, in order, until either side ends it (Kafka: SocketServer, Selector).

1. A frame's size is checked before memory is taken for it. The bytes of all requests together are bounded, and a
   connection waits for its turn.
2. A request that cannot be decoded, or comes too slowly, ends the connection without an answer.
3. Records go from the segment file to the socket by `sendfile`; over TLS, or without a descriptor, by reads.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from seglog_rescue.serve.dispatch import Dispatcher, Peer
from seglog_rescue.serve.endpoint import ConnectionEnd, Endpoint
from seglog_rescue.serve.protocol import Answer, HostileRequestError, read_request
from seglog_rescue.serve.spans import FileSpan
from seglog_rescue.serve.transfer import by_sendfile

_logger = logging.getLogger("seglog.serve.connection")

_SIZE = struct.Struct(">i")
_COPY_BYTES = 256 << 10
_CORK = getattr(socket, "TCP_CORK", None)  # Linux
_UNKNOWN = "unknown"  # the address of a socket that is not TCP's
_FRONT_BYTES = 4 << 10  # read at a time until a request's size is known: most requests are whole then


class RequestBudget:
    """Bounds the bytes of requests held at a time, over all connections."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._most, self._metrics = endpoint.limits.requests_bytes, endpoint.metrics
        self._waiting: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def hold(self, size: int) -> AsyncIterator[None]:
        """Waits until `size` bytes fit, or no other request is held."""
        while self._metrics.requests_bytes and self._metrics.requests_bytes + size > self._most:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn
        self._metrics.requests_bytes += size
        try:
            yield
        finally:
            self._metrics.requests_bytes -= size
            while self._waiting:
                turn = self._waiting.popleft()
                if not turn.done():
                    turn.set_result(None)


class Connection:
    """Serves one client; `run` returns when the connection is closed."""

    def __init__(
        self,
        endpoint: Endpoint,
        dispatcher: Dispatcher,
        budget: RequestBudget,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._endpoint, self._dispatcher, self._budget = endpoint, dispatcher, budget
        self._reader, self._writer = reader, writer
        self._peer = _peer_of(writer)
        self._is_plain = writer.get_extra_info("sslcontext") is None
        self._corks = self._is_plain and _CORK is not None and self._peer.host != _UNKNOWN
        if self._is_plain:
            writer.transport.set_write_buffer_limits(high=0)  # `drain` waits for the last byte
        self._requests = self._sent = 0
        self._busy = self._stopped = False
        self._received = bytearray()
        self._send_until = 0.0  # by the event loop's clock: the client has to take an answer until then
        self._idle_since = endpoint.clock.monotonic()

    async def run(self) -> None:
        """Reads and answers requests. Errors end the connection and are reported to the observer, never raised."""
        begun = self._endpoint.clock.monotonic()
        hostile, reason = False, "closed by the client"
        try:
            await self._serve()
            if self._stopped:
                reason = "the endpoint stops"
        except HostileRequestError as error:
            hostile, reason = True, str(error)
        except asyncio.CancelledError:
            reason = "the endpoint stops"
            raise
        except TimeoutError:
            reason = "timed out"
        except asyncio.IncompleteReadError as error:
            reason = "closed by the client" if not error.partial else "closed by the client within a request"
        except (ConnectionResetError, BrokenPipeError):
            reason = "closed by the client"
        except OSError as error:
            reason = error.strerror or type(error).__name__
        except Exception as error:
            reason = f"internal error: {type(error).__name__}: {error}"
            _logger.exception("internal error")
        finally:
            self._writer.transport.abort()
            self._dispatcher.connection_ends(self._peer)
            self._endpoint.metrics.hostile_total += hostile
            seconds = self._endpoint.clock.monotonic() - begun
            end = ConnectionEnd(
                str(self._peer), self._peer.client_id, self._requests, self._sent, seconds, reason, hostile
            )
            self._endpoint.observer.connection_ended(end)

    def stop(self) -> None:
        """Ends the connection after the current answer, or at once if there is none."""
        self._stopped = True
        if not self._busy:
            cast(asyncio.Transport, self._writer.transport).pause_reading()  # no data may follow the end
            self._reader.feed_eof()

    async def _serve(self) -> None:
        limits = self._endpoint.limits
        while not self._stopped and await self._begins():
            self._busy = True
            (size,) = _SIZE.unpack(await self._take(_SIZE.size))
            if not 0 < size <= limits.request_bytes:
                raise HostileRequestError(f"a request of {size} bytes; at most {limits.request_bytes} are read")
            async with self._budget.hold(size):
                await self._one(size)
            self._busy, self._idle_since = False, self._endpoint.clock.monotonic()

    async def _begins(self) -> bool:
        """Waits for the first bytes of a request; returns False at the client's end."""
        if not self._received:
            async with asyncio.timeout(self._endpoint.limits.idle_s):
                self._received += await self._reader.read(_FRONT_BYTES)
        return bool(self._received)

    async def _take(self, size: int) -> bytes:
        """Takes the next bytes of a request."""
        if len(self._received) < size:
            async with asyncio.timeout(self._endpoint.limits.frame_s):
                while len(self._received) < size:
                    piece = await self._reader.read(size - len(self._received))
                    if not piece:
                        raise asyncio.IncompleteReadError(bytes(self._received), size)
                    self._received += piece
        taken = bytes(self._received[:size])
        del self._received[:size]
        return taken

    @property
    def idle_s(self) -> float:
        """The seconds since its last answer, or since it began; 0 while a request is read or answered."""
        return 0.0 if self._busy else self._endpoint.clock.monotonic() - self._idle_since

    async def _one(self, size: int) -> None:
        frame = await self._take(size)
        request = read_request(frame)
        del frame
        self._peer.client_id = request.client_id or self._peer.client_id
        answer = await self._dispatcher.answer(request, self._peer)
        del request  # decoded, it takes many times its frame, and the client may be slow to take the answer
        self._requests += 1
        self._endpoint.metrics.requests_total += 1
        if answer is None:
            return
        try:
            await self._send(answer)
        finally:
            answer.close()
        self._dispatcher.answer_is_sent(self._peer)

    async def _send(self, answer: Answer) -> None:
        self._send_until = asyncio.get_running_loop().time() + self._endpoint.limits.idle_s
        corked = self._corks and len(answer.parts) > 1
        if corked:
            self._cork(True)
        for part in answer.parts:
            if isinstance(part, FileSpan):
                await self._send_file(part)
            elif part:
                self._writer.write(part)
            self._sent += len(part)
            self._endpoint.metrics.sent_bytes_total += len(part)
        await self._drained()
        if corked:
            self._cork(False)

    def _cork(self, on: bool) -> None:
        """Lets the system send the front of an answer together with its records, and wakes the client once less; or
        lets it send the rest."""
        self._writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, _CORK, on)

    async def _send_file(self, span: FileSpan) -> None:
        loop = asyncio.get_running_loop()
        sent = await self._by_sendfile(span)
        position, end = span.position + sent, span.position + span.size
        while position < end:
            piece = await loop.run_in_executor(None, span.file.read_at, position, min(_COPY_BYTES, end - position))
            if not piece:
                raise ConnectionAbortedError(0, "a segment became shorter while it was sent")
            self._writer.write(piece)
            await self._drained()
            position += len(piece)

    async def _by_sendfile(self, span: FileSpan) -> int:
        """Sends by sendfile; returns the bytes sent, fewer (0 over TLS) if it does not work for this file or socket.

        The event loop's own sendfile waits after the last byte until the socket has drained, by four calls of epoll.
        """
        if not self._is_plain or not _has_descriptor(span):
            return 0
        await self._drained()  # nothing may be left that belongs before the records
        descriptor, sent = self._writer.get_extra_info("socket").fileno(), 0
        while sent < span.size:
            try:
                count = by_sendfile(descriptor, span.file, span.position + sent, span.size - sent)
            except BlockingIOError:
                await self._writable()
                self._check_open()
                continue
            if not count:  # it does not work here, or the file became shorter
                break
            sent += count
        return sent

    async def _drained(self) -> None:
        """Waits until the socket has taken what was written, if it has not yet."""
        self._check_open()
        if self._writer.transport.get_write_buffer_size():
            async with asyncio.timeout_at(self._send_until):
                await self._writer.drain()

    def _check_open(self) -> None:
        if self._writer.transport.is_closing():
            raise ConnectionResetError

    async def _writable(self) -> None:
        """Waits until the socket takes more bytes, by another descriptor of it: the transport waits for its own."""
        loop, turn = asyncio.get_running_loop(), asyncio.Event()
        descriptor = os.dup(self._writer.get_extra_info("socket").fileno())
        loop.add_writer(descriptor, turn.set)
        try:
            async with asyncio.timeout_at(self._send_until):
                await turn.wait()
        finally:
            loop.remove_writer(descriptor)
            os.close(descriptor)


def _has_descriptor(span: FileSpan) -> bool:
    try:
        span.file.fileno()
    except OSError:  # a file that lies in memory, such as an overlay's
        return False
    return True


def _peer_of(writer: asyncio.StreamWriter) -> Peer:
    found = writer.get_extra_info("peername")
    return Peer(str(found[0]), int(found[1])) if isinstance(found, tuple) and len(found) >= 2 else Peer(_UNKNOWN, 0)
