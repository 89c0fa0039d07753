"""Runs the endpoint until a signal ends it, for `seglog serve`.

Meanwhile a thread works out what a broker would cut off served logs that were not closed properly. A broker that starts
after an unclean stop recovers each log from its recovery point on, and cuts it at the first damage. The endpoint cuts
nothing, but the operator learns what is at stake before a broker starts on such a directory.
"""

from __future__ import annotations

import asyncio
import signal
import ssl
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from seglog.errors import RefusedError
from seglog.log.loader import RecoveryReport
from seglog.storage.filesystem import FileSystem
from seglog_rescue.groups.coordinator_replay import OFFSETS_TOPIC
from seglog_rescue.serve.catalog import Catalog
from seglog_rescue.serve.committed import CommittedOffsets, OffsetsFile, load_offsets_topic
from seglog_rescue.serve.endpoint import Address, Endpoint
from seglog_rescue.serve.metrics import MetricsPage
from seglog_rescue.serve.server import Server

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
    """Serves until SIGTERM or SIGINT, which it returns. Calls `ready` with the addresses that it listens on.

    If the endpoint advertises port 0, the actual port replaces it. Raises OSError if it cannot listen.
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
    losses = _LossSearch(endpoint.catalog, endpoint.observer.recovery_would_cut)
    try:
        listening = await server.start(listen)
        if endpoint.advertised.port == 0:
            endpoint.advertised = replace(endpoint.advertised, port=listening.port)
        if metrics is not None:
            metrics = replace(metrics, port=await page.start(metrics.host, metrics.port))
        ready(listening, metrics)
        losses.start()
        return await ended
    finally:
        losses.stop()
        await server.stop()
        await page.stop()
        for each in SIGNALS:
            loop.remove_signal_handler(each)


class _StoppedError(Exception):
    """Ends the search for losses."""


class _LossSearch:
    """Looks in a thread for logs of which a broker that starts would cut bytes off; calls `report` with each."""

    def __init__(self, catalog: Catalog, report: Callable[[RecoveryReport], None]) -> None:
        self._catalog, self._report = catalog, report
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._search, name="losses", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the search before the next segment, if it was started."""
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _search(self) -> None:
        try:
            for report in self._catalog.losses(self._raise_if_stopped):
                self._report(report)
                self._raise_if_stopped()
        except _StoppedError:
            return

    def _raise_if_stopped(self) -> None:
        if self._stopped.is_set():
            raise _StoppedError


def committed_offsets(
    catalog: Catalog, fs: FileSystem, path: Path | None
) -> tuple[CommittedOffsets, OffsetsFile | None]:
    """Returns the commits of the served `__consumer_offsets` and of the file at `path`, and that file.

    The partitions take note of the commits' leader epochs.

    Raises RefusedError for a file within a served directory, InputError for another kind of file, and OSError.
    """
    commits = CommittedOffsets()
    topic = catalog.topics.get(OFFSETS_TOPIC, {})
    logs = catalog.open_now([topic[number] for number in sorted(topic)])
    load_offsets_topic((log.view for log in logs), commits)
    file = None
    if path is not None:
        for log_directory in catalog.log_directories:
            if path.is_relative_to(log_directory):
                raise RefusedError(f"{path} lies in {log_directory}, which is served and so never written to")
        file = OffsetsFile(fs, path)
        file.open(commits)
    for _group, place, commit in commits:
        served = catalog.find(place.topic, place.partition)
        if served is not None:
            served.note_committed(commit.leader_epoch)
    return commits, file
