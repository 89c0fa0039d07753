"""`seglog serve`: a read-only Kafka endpoint over directories."""

from __future__ import annotations

import threading
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from seglog.units import count_text
from seglog_cli.failures import UsageError
from seglog_cli.options import Directories, command, one_of, option, parsed
from seglog_cli.services import SIGNALS
from seglog_cli.session import Session
from seglog_cli.tiering import Tiers

if TYPE_CHECKING:
    from seglog.errors import CorruptionError
    from seglog.log.loader import RecoveryReport
    from seglog_cli.console import Console
    from seglog_rescue.serve.catalog import UnservedPartition
    from seglog_rescue.serve.endpoint import Address, ConnectionEnd, Endpoint

_ANY_ADDRESS = ("0.0.0.0", "::")
_MOST_PORT = 65535


@command(urls=["paths"])
def run(
    session: Session,
    paths: Directories,
    listen: Annotated[
        str, option("--listen", "HOST:PORT", "The address to listen on. With port 0 the system chooses a port.")
    ] = "127.0.0.1:9092",
    advertise: Annotated[
        str | None,
        option("--advertise", "HOST:PORT", "The address that clients connect to (default: that of --listen)."),
    ] = None,
    on_corrupt: Annotated[
        str, option("--on-corrupt", "fail|skip", "At damage, refuse the read (fail) or continue after it (skip).")
    ] = "fail",
    offsets: Annotated[
        Path | None,
        option("--offsets", "FILE", "Keep the groups' commits in this file, and begin with those that it holds."),
    ] = None,
    tls_cert: Annotated[
        Path | None, option("--tls-cert", "FILE", "Speak TLS with this certificate chain (PEM).")
    ] = None,
    tls_key: Annotated[
        Path | None,
        option("--tls-key", "FILE", "The certificate's private key (default: from the certificate's file)."),
    ] = None,
    tls_client_ca: Annotated[
        Path | None,
        option("--tls-client-ca", "FILE", "Accept only clients with a certificate of these authorities (PEM)."),
    ] = None,
    metrics: Annotated[
        str | None,
        option("--metrics", "HOST:PORT", "Serve counters for Prometheus under /metrics, and /healthz for a probe."),
    ] = None,
    *,
    tiers: Tiers,
) -> int:
    """Serves partitions to Kafka clients, read-only.

    Consumers list topics, seek by offset and by time, and read with both isolation levels and all codecs, as from a
    broker. Requests that write get an authorization error. There is no authentication: whoever reaches the address
    reads everything.

    The command creates, locks and changes nothing in the directories, so they may belong to a running broker. Clients
    see the data of a partition as it was when one of them first asked for it. If several directories have replicas of a
    partition, the one with the highest leader epoch is served, and among those the longest. Old messages (magic 0 and
    1) are sent as they are; clients understand them.

    Groups, of the classic and of the consumer protocol, begin at the offsets in the directories' own
    __consumer_offsets. Their commits are kept in memory, or with --offsets in a file that the next run begins with.

    Each batch's checksum is checked before it is sent. A fetch that meets damage gets CORRUPT_MESSAGE, or with
    --on-corrupt skip the next good batch. A partition that cannot be opened gets KAFKA_STORAGE_ERROR; if PATH names the
    partition itself, or it is one of __consumer_offsets, the command ends, or with skip leaves it out, as it does a
    replica. Each problem is reported once. If a log was not closed properly, a message says what a broker that starts
    on it would cut.

    SIGTERM and SIGINT end the command in order.

    Examples:
      seglog serve /var/lib/kafka/data
      seglog serve --listen 0.0.0.0:9092 --advertise rescue.example:9092 /mnt/broker1/data /mnt/broker2/data
      seglog serve --on-corrupt skip --metrics 127.0.0.1:9308 backup/orders-0
    """
    import asyncio

    from seglog_rescue.serve.catalog import Catalog
    from seglog_rescue.serve.endpoint import Endpoint
    from seglog_rescue.serve.running import committed_offsets
    from seglog_rescue.serve.running import run as run_endpoint
    from seglog_rescue.serve.server import TlsFiles

    skip = one_of("--on-corrupt", on_corrupt, ("fail", "skip")) == "skip"
    place = parsed("--listen", _address, listen)
    given = place if advertise is None else parsed("--advertise", _address, advertise)
    if given.host in _ANY_ADDRESS:
        raise UsageError(f"--advertise must say how clients reach {place}: they cannot connect to {given.host}")
    page = None if metrics is None else parsed("--metrics", _address, metrics)
    if tls_cert is None and (tls_key is not None or tls_client_ca is not None):
        raise UsageError("--tls-key and --tls-client-ca need --tls-cert")
    tls = None if tls_cert is None else TlsFiles(tls_cert, tls_key, tls_client_ca).context()
    reporter = Reporter(session.console)
    looking, paths = tiers.seen(session, paths, warn_of_runs=False)
    seen = partial(Catalog.open, paths, fs=looking.fs, clock=session.clock, config_of=looking.config_of)
    with seen(skip_damage=skip, left_out=reporter.left_out) as catalog:
        commits, kept = committed_offsets(catalog, session.fs, None if offsets is None else session.resolved(offsets))
        endpoint = Endpoint(catalog, given, session.clock, reporter, skip_damage=skip)
        received = asyncio.run(
            run_endpoint(
                endpoint,
                place,
                threads=session.begin_threads(),
                tls=tls,
                offsets=commits,
                offsets_file=kept,
                metrics=page,
                ready=lambda listening, shown: reporter.ready(endpoint, listening, shown),
            )
        )
    session.console.message("stopped")
    return SIGNALS[received]


def _address(text: str) -> Address:
    """Parses HOST:PORT; an IPv6 address is in brackets."""
    from seglog_rescue.serve.endpoint import Address

    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (colon and host and port.isascii() and port.isdigit() and int(port) <= _MOST_PORT):
        raise ValueError(f"{text!r} is not HOST:PORT")
    return Address(host, int(port))


class Reporter:
    """The endpoint's observer. JSON lines go to stdout, text to stderr."""

    def __init__(self, console: Console) -> None:
        self._console, self._lock = console, threading.Lock()

    def left_out(self, copy: UnservedPartition) -> None:
        """Reports a partition's directory that is not served."""
        self._tell(
            {"type": "left_out", "path": str(copy.directory), "message": copy.reason},
            f"{copy.directory} is not served: {copy.reason}",
            warning=True,
        )

    def ready(self, endpoint: Endpoint, listening: Address, metrics: Address | None) -> None:
        """Reports that clients can connect, and where."""
        topics = endpoint.catalog.topics
        partitions = sum(len(each) for each in topics.values())
        record: dict[str, object] = {
            "type": "serving",
            "listen": str(listening),
            "advertised": str(endpoint.advertised),
            "metrics": None if metrics is None else str(metrics),
            "topics": len(topics),
            "partitions": partitions,
            "cluster_id": endpoint.cluster_id,
        }
        shown = "" if metrics is None else f", metrics on http://{metrics}/metrics"
        what = f"{count_text(len(topics), 'topic')}, {count_text(partitions, 'partition')}"
        self._write(record, f"serving {what}, read-only, on {listening}{shown}")

    def damaged(self, damage: CorruptionError) -> None:
        record: dict[str, object] = {"type": "damage", "path": str(damage.path), "message": str(damage)}
        for name in ("position", "first_offset", "last_offset"):
            if getattr(damage, name) is not None:
                record[name] = getattr(damage, name)
        self._tell(record, str(damage), warning=True)

    def offsets_not_kept(self, path: Path, error: OSError) -> None:
        message = f"{path}: commits are refused, as the file does not take them: {error.strerror or error}"
        self._tell({"type": "offsets_not_kept", "path": str(path), "message": message}, message, warning=True)

    def recovery_would_cut(self, report: RecoveryReport) -> None:
        end, size, where = report.log_end_offset, report.truncated_bytes, report.directory
        message = (
            f"{where} was not closed properly: a broker that starts on it cuts {size} bytes off, and the log then ends"
            f" at offset {end}; `seglog recover --dry-run {where}` says more"
        )
        record: dict[str, object] = {"type": "recovery_would_cut", "path": str(where), "log_end_offset": end}
        self._tell({**record, "bytes": size, "message": message}, message, warning=True)

    def connection_ended(self, end: ConnectionEnd) -> None:
        record = {"type": "connection", **asdict(end), "seconds": round(end.seconds, 3)}
        who = f"{end.peer} ({end.client_id})" if end.client_id else end.peer
        did = f"{end.requests} requests, {end.sent_bytes} bytes sent, {end.seconds:.1f} s"
        self._tell(record, f"{who}: {did}: {end.reason}", warning=end.hostile)

    def _tell(self, record: dict[str, object], text: str, *, warning: bool = False) -> None:
        """Tells of an event. Clients are served, too, where nobody takes the lines or the disk is full."""
        try:
            self._write(record, text, warning=warning)
        except OSError as error:
            self._console.warning(f"events are not written: {error.filename}: {error.strerror}")

    def _write(self, record: dict[str, object], text: str, *, warning: bool = False) -> None:
        with self._lock:
            if self._console.as_json:
                self._console.json(record)
                self._console.flush()
            elif warning:
                self._console.warning(text)
            else:
                self._console.message(text)
