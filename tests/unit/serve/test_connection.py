"""One connection between its two ends: what arrives while it is stopped."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any, cast

from seglog.clock import SystemClock
from seglog.serve import protocol
from seglog.serve.connection import Connection, RequestBudget
from seglog.serve.dispatch import Dispatcher
from seglog.serve.endpoint import Address, Endpoint
from tests.support.raw_client import request_frame
from tests.support.serving import LIMIT_SECONDS, Noted


class Answering:
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
