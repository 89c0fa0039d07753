"""The endpoint's counters, and the page that shows them to Prometheus."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, fields

_MAX_HEAD_BYTES = 8 << 10
_TIMEOUT_S = 5.0
_MAX_CONNECTIONS = 16


@dataclass(slots=True)
class Metrics:
    """Counters since the start; `connections`, `requests_bytes`, `groups` and `members` are current values."""

    connections: int = 0
    connections_total: int = 0
    connections_refused_total: int = 0
    hostile_total: int = 0
    requests_total: int = 0
    requests_bytes: int = 0
    fetched_bytes_total: int = 0
    sent_bytes_total: int = 0
    refused_writes_total: int = 0
    damages_total: int = 0
    groups: int = 0
    members: int = 0
    rebalances_total: int = 0
    commits_total: int = 0


HELP = {
    "connections": "Open connections.",
    "connections_total": "Accepted connections.",
    "connections_refused_total": "Connections closed at once because of the limit.",
    "hostile_total": "Connections closed because of what the client sent.",
    "requests_total": "Requests answered.",
    "requests_bytes": "Bytes of the requests being read or answered.",
    "fetched_bytes_total": "Bytes of segment files sent.",
    "sent_bytes_total": "All bytes sent in answers.",
    "refused_writes_total": "Requests refused because the endpoint is read-only.",
    "damages_total": "Damaged places in the logs, each counted once.",
    "groups": "Groups with members.",
    "members": "Members of groups.",
    "rebalances_total": "Completed rebalances.",
    "commits_total": "Offsets committed.",
}


def exposition(metrics: Metrics) -> str:
    """Returns the counters in Prometheus' text format 0.0.4."""
    lines = []
    for field in fields(metrics):
        name = f"seglog_serve_{field.name}"
        kind = "counter" if field.name.endswith("_total") else "gauge"
        lines += [f"# HELP {name} {HELP[field.name]}", f"# TYPE {name} {kind}"]
        lines.append(f"{name} {getattr(metrics, field.name)}")
    return "\n".join(lines) + "\n"


class MetricsPage:
    """A page for Prometheus from `start` to `stop`: `GET /metrics` over HTTP/1.1, one request per connection.

    `GET /healthz` answers "ok" to a probe: the page starts when clients can connect, and stops with the endpoint.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._listener: asyncio.Server | None = None
        self._open = 0

    async def start(self, host: str, port: int) -> int:
        """Listens; returns the port, which the system chooses for port 0. Raises OSError."""
        self._listener = await asyncio.start_server(self._answer, host, port, limit=_MAX_HEAD_BYTES)
        return int(self._listener.sockets[0].getsockname()[1])

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
        path = target[1].split(b"?")[0] if len(target) == 3 and target[0] == b"GET" else b""
        found = path in (b"/metrics", b"/healthz")
        body = b"ok\n" if found else b"only GET /metrics and /healthz are served\n"
        if path == b"/metrics":
            body = exposition(self._metrics).encode()
        lines = [
            b"HTTP/1.1 200 OK" if found else b"HTTP/1.1 404 Not Found",
            b"Content-Type: text/plain; version=0.0.4; charset=utf-8",
            b"Content-Length: %d" % len(body),
            b"Connection: close",
        ]
        return b"\r\n".join(lines) + b"\r\n\r\n" + body
