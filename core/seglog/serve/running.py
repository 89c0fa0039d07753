"""Running the endpoint until a signal ends it: what `seglog serve` calls."""

from __future__ import annotations

import asyncio
import signal
import ssl
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from seglog.errors import RefusedError
from seglog.evidence.coordinator_replay import OFFSETS_TOPIC
from seglog.serve.catalog import Catalog
from seglog.serve.committed import CommittedOffsets, OffsetsFile, load_offsets_topic
from seglog.serve.endpoint import Address, Endpoint
from seglog.serve.losses import LossSearch
from seglog.serve.metrics_page import MetricsPage
from seglog.serve.server import Server
from seglog.storage.filesystem import FileSystem

SIGNALS = (signal.SIGTERM, signal.SIGINT)

Ready = Callable[[Address, Address | None], None]


async def run(
    endpoint: Endpoint,
    listen: Address,
    *,
    threads: int,
    ready: Ready,
    tls: ssl.SSLContext | None = None,
    offsets: CommittedOffsets | None = None,
    offsets_file: OffsetsFile | None = None,
    metrics: Address | None = None,
) -> signal.Signals:
    """Serves until SIGTERM or SIGINT, which it returns. `ready` is called with the addresses listened on.

    Where the endpoint advertises port 0, the port listened on takes its place. Raises OSError where it cannot listen.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[signal.Signals] = loop.create_future()

    def end(received: signal.Signals) -> None:
        if not ended.done():
            ended.set_result(received)

    for each in SIGNALS:
        loop.add_signal_handler(each, end, each)
    server = Server(endpoint, threads=threads, tls=tls, offsets=offsets, offsets_file=offsets_file)
    page = MetricsPage(endpoint.metrics)
    losses = LossSearch(endpoint.catalog, endpoint.observer.recovery_would_cut)
    try:
        listening = await server.start(listen)
        if endpoint.advertised.port == 0:
            endpoint.advertised = replace(endpoint.advertised, port=listening.port)
        shown = None if metrics is None else await page.start(metrics)
        ready(listening, shown)
        losses.start()
        return await ended
    finally:
        losses.stop()
        await server.stop()
        await page.stop()
        for each in SIGNALS:
            loop.remove_signal_handler(each)


def committed_offsets(
    catalog: Catalog, fs: FileSystem, path: Path | None
) -> tuple[CommittedOffsets, OffsetsFile | None]:
    """What the served `__consumer_offsets` hold, then what the file at `path` does, and that file.

    Raises RefusedError for a file within a directory that is served, InputError for another kind of file, OSError.
    """
    commits = CommittedOffsets()
    topic = catalog.topics.get(OFFSETS_TOPIC, {})
    load_offsets_topic((topic[number].log.view for number in sorted(topic)), commits)
    if path is None:
        return commits, None
    for partition in catalog:
        if path.is_relative_to(partition.directory.parent):
            raise RefusedError(f"{path}: within {partition.directory.parent}, which is served and so not written to")
    file = OffsetsFile(fs, path)
    file.open(commits)
    return commits, file
