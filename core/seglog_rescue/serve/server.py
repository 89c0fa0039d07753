"""Listens, accepts connections within the limit, and stops in order (Kafka: SocketServer).

On a stop, no connection is accepted any more; idle ones are closed, busy ones finish their answer. Those still open
after a grace period are aborted.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from seglog.errors import ConfigError
from seglog_rescue.serve.committed import CommittedOffsets, OffsetsFile
from seglog_rescue.serve.connection import Connection, RequestBudget
from seglog_rescue.serve.coordinator import Coordinator
from seglog_rescue.serve.dispatch import Dispatcher
from seglog_rescue.serve.endpoint import Address, Endpoint
from seglog_rescue.serve.group_requests import GroupRequests

_GRACE_S = 5.0
_BACKLOG = 256


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: the certificate chain, its key, and the authorities that clients' certificates must come from."""

    certificate: Path
    key: Path | None
    client_authorities: Path | None

    def context(self) -> ssl.SSLContext:
        """Returns the server's context. Raises ConfigError for invalid files, OSError for one that cannot be read."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        for path in filter(None, (self.certificate, self.key, self.client_authorities)):
            with path.open("rb"):  # OpenSSL's errors do not name the missing file
                pass
        try:
            context.load_cert_chain(self.certificate, self.key)
            if self.client_authorities is not None:
                context.load_verify_locations(self.client_authorities)
                context.verify_mode = ssl.CERT_REQUIRED
        except ssl.SSLError as error:
            reason = error.reason or "not in PEM form"
            raise ConfigError(f"{self.certificate}: no certificate and key for TLS: {reason}") from error
        return context


class Server:
    """Serves an endpoint on an address from `start` to `stop`."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        threads: int = 2,
        tls: ssl.SSLContext | None,
        offsets: CommittedOffsets | None,
        offsets_file: OffsetsFile | None,
    ) -> None:
        self._endpoint, self._tls = endpoint, tls
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="serve")
        self._connections: dict[asyncio.Task[None], Connection] = {}
        self._listener: asyncio.Server | None = None
        self._stopping = asyncio.Event()
        commits = CommittedOffsets() if offsets is None else offsets
        self._coordinator = Coordinator(endpoint, commits)
        groups = GroupRequests(endpoint, self._coordinator, commits, offsets_file)
        self._dispatcher = Dispatcher(endpoint, groups, self._threads, self._stopping)
        self._budget = RequestBudget(endpoint)

    async def start(self, listen: Address) -> Address:
        """Listens; returns the address, with the port that the system chose for port 0. Raises OSError."""
        self._listener = await asyncio.start_server(
            self._accept, listen.host, listen.port, ssl=self._tls, backlog=_BACKLOG
        )
        port = int(self._listener.sockets[0].getsockname()[1])
        return Address(listen.host, port)

    async def stop(self) -> None:
        """Stops in order, and ends the threads."""
        self._stopping.set()
        self._coordinator.close()
        if self._listener is not None:
            self._listener.close()
        for connection in self._connections.values():
            connection.stop()
        if self._connections:
            await asyncio.wait(list(self._connections), timeout=_GRACE_S)
        for task in list(self._connections):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._threads.shutdown(cancel_futures=True)

    async def _make_way(self) -> None:
        """Closes the connection that has been idle for longest, if that is long: else whoever opens connections and
        leaves them keeps everybody out."""
        task, idlest = max(self._connections.items(), key=lambda one: one[1].idle_s, default=(None, None))
        if task is not None and idlest is not None and idlest.idle_s >= self._endpoint.limits.crowded_idle_s:
            idlest.stop()
            await asyncio.wait([task])

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        metrics = self._endpoint.metrics
        if metrics.connections >= self._endpoint.limits.connections:
            await self._make_way()
        if metrics.connections >= self._endpoint.limits.connections or self._stopping.is_set():
            metrics.connections_refused_total += 1
            writer.transport.abort()
            return
        metrics.connections += 1
        metrics.connections_total += 1
        connection = Connection(self._endpoint, self._dispatcher, self._budget, reader, writer)
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = connection
        try:
            await connection.run()
        except asyncio.CancelledError:
            if not self._stopping.is_set():
                raise
        finally:
            metrics.connections -= 1
            del self._connections[task]
