"""A page for Prometheus: `GET /metrics` over HTTP/1.1, one request per connection."""

from __future__ import annotations

import asyncio
import contextlib

from seglog.serve.endpoint import Address
from seglog.serve.metrics import Metrics, exposition

_MAX_HEAD_BYTES = 8 << 10
_TIMEOUT_S = 5.0
_MAX_CONNECTIONS = 16


class MetricsPage:
    """Serves the counters from `start` to `stop`."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._listener: asyncio.Server | None = None
        self._open = 0

    async def start(self, listen: Address) -> Address:
        """Listens; returns the address with its port. Raises OSError."""
        self._listener = await asyncio.start_server(self._answer, listen.host, listen.port, limit=_MAX_HEAD_BYTES)
        return Address(listen.host, int(self._listener.sockets[0].getsockname()[1]))

    async def stop(self) -> None:
        """Stops listening; does not wait for answers, which are short."""
        if self._listener is not None:
            self._listener.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                if self._open <= _MAX_CONNECTIONS:
                    async with asyncio.timeout(_TIMEOUT_S):
                        writer.write(self._response(await reader.readuntil(b"\r\n\r\n")))
                        await writer.drain()
                        writer.close()
                        await writer.wait_closed()
        finally:
            self._open -= 1
            writer.transport.abort()

    def _response(self, head: bytes) -> bytes:
        target = head.split(b"\r\n", 1)[0].split(b" ")
        found = len(target) == 3 and target[0] == b"GET" and target[1].split(b"?")[0] == b"/metrics"
        body = exposition(self._metrics).encode() if found else b"only GET /metrics is served\n"
        lines = [
            b"HTTP/1.1 200 OK" if found else b"HTTP/1.1 404 Not Found",
            b"Content-Type: text/plain; version=0.0.4; charset=utf-8",
            b"Content-Length: %d" % len(body),
            b"Connection: close",
        ]
        return b"\r\n".join(lines) + b"\r\n\r\n" + body
