"""A running endpoint for tests: the server in a thread of this process, or `seglog serve` as a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import subprocess
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from seglog.clock import SystemClock
from seglog.configuration.keys import LogConfig
from seglog.errors import CorruptionError
from seglog.log.loader import RecoveryReport
from seglog.log.log import Log
from seglog.model import NO_TIMESTAMP, Isolation
from seglog.storage.local import LocalFileSystem
from seglog_rescue.serve.catalog import Catalog, LeftOut
from seglog_rescue.serve.endpoint import Address, ConnectionEnd, Endpoint, Limits
from seglog_rescue.serve.running import committed_offsets
from seglog_rescue.serve.server import Server
from tests.support.command_line import COMMAND, ROOT
from tests.support.consumers import Row

LOOPBACK = "127.0.0.1"
LIMIT_SECONDS = 60
NO_OFFSET = -1

T = TypeVar("T")


class Noted:
    """An observer that keeps what it hears."""

    def __init__(self) -> None:
        self.ends: list[ConnectionEnd] = []
        self.damages: list[CorruptionError] = []
        self.unkept: list[OSError] = []
        self.cuts: list[RecoveryReport] = []
        self.heard = threading.Condition()

    def connection_ended(self, end: ConnectionEnd) -> None:
        with self.heard:
            self.ends.append(end)
            self.heard.notify_all()

    def damaged(self, damage: CorruptionError) -> None:
        self.damages.append(damage)

    def offsets_not_kept(self, path: Path, error: OSError) -> None:
        self.unkept.append(error)

    def recovery_would_cut(self, report: RecoveryReport) -> None:
        self.cuts.append(report)

    def wait_for(self, found: Callable[[ConnectionEnd], bool]) -> ConnectionEnd:
        """The first connection that has ended so, now or soon."""
        with self.heard:
            assert self.heard.wait_for(lambda: any(map(found, self.ends)), LIMIT_SECONDS)
            return next(filter(found, self.ends))


class Serving:
    """An endpoint over `paths` for as long as a `with` lasts."""

    def __init__(
        self,
        *paths: Path,
        skip_damage: bool = False,
        limits: Limits | None = None,
        offsets: Path | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.observer = Noted()
        fs = LocalFileSystem()
        self.catalog = open_catalog(paths, skip_damage=skip_damage)
        commits, file = committed_offsets(self.catalog, fs, offsets)
        self.commits = commits
        self.endpoint = Endpoint(
            self.catalog,
            Address(LOOPBACK, 0),
            SystemClock(),
            self.observer,
            limits=limits or Limits(),
            skip_damage=skip_damage,
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.server = self.run(self._made(commits, file, tls))
        self.address = self.run(self.server.start(Address(LOOPBACK, 0)))
        self.endpoint.advertised = self.address

    async def _made(self, commits: Any, file: Any, tls: ssl.SSLContext | None) -> Server:
        return Server(self.endpoint, tls=tls, offsets=commits, offsets_file=file)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What a coroutine gives, run on the server's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(LIMIT_SECONDS)

    @property
    def bootstrap(self) -> str:
        return str(self.address)

    def close(self) -> None:
        self.run(self.server.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(LIMIT_SECONDS)
        self._loop.close()
        self.catalog.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_catalog(paths: Sequence[Path], *, skip_damage: bool = False, left_out: LeftOut = lambda _: None) -> Catalog:
    """The catalog of some paths, every topic with the default configuration."""
    config = LogConfig()
    return Catalog.open(
        paths,
        fs=LocalFileSystem(),
        clock=SystemClock(),
        config_of=lambda _directory: lambda _topic: config,
        skip_damage=skip_damage,
        left_out=left_out,
    )


def local_rows(log: Log, isolation: Isolation = Isolation.READ_UNCOMMITTED) -> list[Row]:
    """What `seglog read` shows, as rows of `tests.support.consumers`."""
    return [
        (
            record.offset if record.offset is not None else NO_OFFSET,
            NO_TIMESTAMP if record.timestamp is None else record.timestamp,
            record.key,
            record.value,
            tuple((header.key, header.value) for header in record.headers),
        )
        for record in log.records(isolation=isolation)
    ]


@contextmanager
def served(*arguments: str | Path, cwd: Path = ROOT) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, Any]]]:
    """The process, and what it says when it is ready; it is stopped when the `with` ends."""
    command = [*COMMAND, "serve", "--json", "--listen", "127.0.0.1:0", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'core'}{os.pathsep}{ROOT}"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd, env=environment)
    assert process.stdout is not None and process.stderr is not None
    try:
        line = process.stdout.readline()
        assert line, process.stderr.read().decode()
        yield process, json.loads(line)
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=LIMIT_SECONDS)


def address_of(said: dict[str, Any], field: str = "listen") -> Address:
    host, _, port = said[field].rpartition(":")
    return Address(host, int(port))
