"""Dispatches each request to the function that answers its API.

Threads read files, so a slow disk delays no other client. What is in the page cache (`is_quick`) and the rest is done
on the event loop. A produce request that wants no acknowledgement (acks 0) gets none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from seglog_rescue.serve import protocol, topics
from seglog_rescue.serve.endpoint import Address, Endpoint
from seglog_rescue.serve.fetch_answers import write_fetch_answer
from seglog_rescue.serve.fetches import fetch, is_quick
from seglog_rescue.serve.group_requests import GROUP_APIS, GroupRequests
from seglog_rescue.serve.protocol import VERSIONS, Answer, ErrorCode, Request, Values, write_answer
from seglog_rescue.serve.read_ahead import Ahead, ReadAhead
from seglog_rescue.serve.refusals import OTHER_PROTOCOLS, REFUSALS

T = TypeVar("T")
Given = TypeVar("Given")

_READERS: Mapping[int, Callable[[Endpoint, Any, int], Values]] = {
    protocol.LIST_OFFSETS: topics.list_offsets,
    protocol.OFFSET_FOR_LEADER_EPOCH: topics.offsets_for_leader_epochs,
    protocol.METADATA: topics.metadata,  # the first answer reads each partition's leader epoch
    protocol.DESCRIBE_TOPIC_PARTITIONS: topics.describe_topic_partitions,
}
_IMMEDIATE: Mapping[int, Callable[[Endpoint, Any, int], Values]] = {
    protocol.DESCRIBE_CONFIGS: topics.describe_configs,
    protocol.DESCRIBE_CLUSTER: topics.describe_cluster,
    **OTHER_PROTOCOLS,
}


@dataclass(slots=True)
class Peer:
    """A client: its address, the name that it gives itself, and what it is expected to fetch next."""

    host: str
    port: int
    client_id: str = ""
    ahead: Ahead = field(default_factory=Ahead)

    def __str__(self) -> str:
        return str(Address(self.host, self.port))


class Dispatcher:
    """Answers the requests of all connections. `stopping` ends waiting fetches."""

    def __init__(self, endpoint: Endpoint, groups: GroupRequests, threads: Executor, stopping: asyncio.Event) -> None:
        self._endpoint, self._groups, self._threads, self._stopping = endpoint, groups, threads, stopping
        self._read_ahead = ReadAhead(endpoint)

    async def answer(self, request: Request, peer: Peer) -> Answer | None:
        """Returns the answer, None if the client wants none."""
        if request.body is None:
            values: Values = {"error_code": ErrorCode.unsupported_version, "api_keys": _versions()}
            return write_answer(request, values, version=0)
        if request.api_key == protocol.FETCH:
            return write_fetch_answer(request, await self._fetch(request, peer.ahead))
        values = await self._values(request, peer)
        if request.api_key == protocol.PRODUCE and int(request.body.acks) == 0:
            return None
        return write_answer(request, values)

    async def _values(self, request: Request, peer: Peer) -> Values:
        endpoint, key = self._endpoint, request.api_key
        if key == protocol.API_VERSIONS:
            return {"error_code": ErrorCode.none, "api_keys": _versions()}
        if key in _READERS:
            return await self._in_thread(_READERS[key], request.body, request.version)
        if key in _IMMEDIATE:
            return _IMMEDIATE[key](endpoint, request.body, request.version)
        if key in GROUP_APIS:
            return await self._groups.answer(request, peer.host)
        endpoint.metrics.refused_writes_total += 1
        return REFUSALS[key](request.body)

    def answer_is_sent(self, peer: Peer) -> None:
        """Reads ahead for a client that takes its answer."""
        self._read_ahead.find(peer.ahead)

    def connection_ends(self, peer: Peer) -> None:
        """Drops what was read ahead."""
        self._read_ahead.drop(peer.ahead)

    async def _fetch(self, request: Request, ahead: Ahead) -> Values:
        self._read_ahead.begin(ahead)
        if is_quick(self._endpoint, request.body, ahead):
            fetched = fetch(self._endpoint, request.body, ahead)
        else:
            fetched = await self._in_thread(fetch, request.body, ahead)
        self._endpoint.metrics.fetched_bytes_total += fetched.file_bytes
        if not fetched.settled:
            wait_s = min(request.body.max_wait.total_seconds(), self._endpoint.limits.wait_ms / 1000)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), max(0.0, wait_s))
        return fetched.values

    async def _in_thread(self, work: Callable[[Endpoint, Any, Given], T], body: Any, given: Given) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, work, self._endpoint, body, given)


def _versions() -> list[Mapping[str, int]]:
    return [{"api_key": key, "min_version": least, "max_version": most} for key, (least, most) in VERSIONS.items()]
