"""One connection between its two ends: what arrives while it is stopped, and what a slow client gets."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from pathlib import Path
from typing import Any, cast

from seglog.clock import SystemClock
from seglog.storage.local import LocalFileSystem
from seglog_rescue.serve import protocol
from seglog_rescue.serve.connection import Connection, RequestBudget
from seglog_rescue.serve.dispatch import Dispatcher
from seglog_rescue.serve.endpoint import Address, Endpoint
from seglog_rescue.serve.protocol import Answer
from seglog_rescue.serve.spans import FileSpan
from tests.support.raw_client import request_frame
from tests.support.serving import LIMIT_SECONDS, Noted


class Dispatching:
    """A dispatcher that reads nothing ahead."""

    def answer_is_sent(self, _peer: object) -> None: ...

    def connection_ends(self, _peer: object) -> None: ...


class Answering(Dispatching):
    """A dispatcher that answers nothing, as soon as it may."""

    def __init__(self) -> None:
        self.asked, self.may = asyncio.Event(), asyncio.Event()

    async def answer(self, *_request: object) -> None:
        self.asked.set()
        await self.may.wait()


def test_bytes_that_come_after_a_connection_was_ended_are_no_error() -> None:
    """It is ended when a request lies in its buffer of which it knows nothing yet."""
    assert asyncio.run(problems_of_an_ended_connection()) == []


async def problems_of_an_ended_connection() -> list[dict[str, Any]]:
    problems: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: problems.append(context))
    near, far = socket.socketpair()
    with near:
        near.settimeout(LIMIT_SECONDS)
        reader, writer = await asyncio.open_connection(sock=far)
        dispatcher = Answering()
        endpoint = Endpoint(cast(Any, None), Address("127.0.0.1", 0), SystemClock(), Noted())
        budget = RequestBudget(endpoint)
        connection = Connection(endpoint, cast(Dispatcher, dispatcher), budget, reader, writer)
        running = asyncio.create_task(connection.run())
        await asyncio.sleep(0)  # it waits for a request
        frame = request_frame(protocol.METADATA, 12, {"topics": None})
        reader.feed_data(struct.pack(">i", len(frame)) + frame)
        connection.stop()
        await asyncio.wait_for(dispatcher.asked.wait(), LIMIT_SECONDS)
        near.sendall(b"more")
        for _ in range(5):
            await asyncio.sleep(0)  # the loop looks at its sockets
        dispatcher.may.set()
        await asyncio.wait_for(running, LIMIT_SECONDS)
    return problems


class Sending(Dispatching):
    """A dispatcher that answers with a part of a file, between other bytes."""

    def __init__(self, path: Path, position: int, size: int) -> None:
        self._path, self._position, self._size = path, position, size

    async def answer(self, *_request: object) -> Answer:
        answer = Answer()
        answer.write(b"before")
        answer.write(FileSpan(LocalFileSystem().open(self._path, "r"), self._position, self._size))
        answer.write(b"after")
        answer.finish()
        return answer


def test_a_client_that_reads_slowly_gets_every_byte_in_order(tmp_path: Path) -> None:
    path, content = tmp_path / "0.log", os.urandom(3 << 20)
    path.write_bytes(content)
    received = asyncio.run(received_slowly(Sending(path, 1000, 2 << 20)))
    expected = b"before" + content[1000 : 1000 + (2 << 20)] + b"after"
    assert received == struct.pack(">i", len(expected)) + expected


async def received_slowly(dispatcher: Sending) -> bytes:
    near, far = socket.socketpair()
    far.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
    with near:
        near.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=far)
        endpoint = Endpoint(cast(Any, None), Address("127.0.0.1", 0), SystemClock(), Noted())
        connection = Connection(endpoint, cast(Dispatcher, dispatcher), RequestBudget(endpoint), reader, writer)
        running = asyncio.create_task(connection.run())
        frame = request_frame(protocol.METADATA, 12, {"topics": None})
        loop, received = asyncio.get_running_loop(), b""
        await loop.sock_sendall(near, struct.pack(">i", len(frame)) + frame)
        while len(received) < 4 or len(received) < 4 + struct.unpack_from(">i", received)[0]:
            received += await asyncio.wait_for(loop.sock_recv(near, 1 << 15), LIMIT_SECONDS)
            await asyncio.sleep(0)
        connection.stop()
        await asyncio.wait_for(running, LIMIT_SECONDS)
    return received
