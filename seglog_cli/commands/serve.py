"""`seglog serve`: a read-only Kafka endpoint over directories."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from seglog_cli.exit_codes import ExitCode
from seglog_cli.failures import UsageError
from seglog_cli.options import Directories, command, one_of, option, parsed, takes_urls
from seglog_cli.session import Session
from seglog_cli.tiering import Tiers

if TYPE_CHECKING:
    from seglog.serve.endpoint import Address

_EXITS = {signal.SIGTERM: ExitCode.TERMINATED, signal.SIGINT: ExitCode.INTERRUPTED}
_ANY_ADDRESS = ("0.0.0.0", "::")
_MOST_PORT = 65535


@command
@takes_urls("paths")
def run(
    session: Session,
    paths: Directories,
    tiers: Tiers,
    listen: Annotated[
        str, option("--listen", "HOST:PORT", "The address to listen at. For port 0 the system chooses one.")
    ] = "127.0.0.1:9092",
    advertise: Annotated[
        str | None, option("--advertise", "HOST:PORT", "The address that clients are told (default: that of --listen).")
    ] = None,
    on_corrupt: Annotated[
        str, option("--on-corrupt", "fail|skip", "At damage, refuse the read (fail) or go on after it (skip).")
    ] = "fail",
    offsets: Annotated[
        Path | None, option("--offsets", "FILE", "Keep in this file what groups commit, and begin with what it holds.")
    ] = None,
    tls_cert: Annotated[
        Path | None, option("--tls-cert", "FILE", "Speak TLS with this certificate chain (PEM).")
    ] = None,
    tls_key: Annotated[
        Path | None, option("--tls-key", "FILE", "The certificate's private key (default: in the certificate's file).")
    ] = None,
    tls_client_ca: Annotated[
        Path | None,
        option("--tls-client-ca", "FILE", "Let in only clients with a certificate of these authorities (PEM)."),
    ] = None,
    metrics: Annotated[
        str | None, option("--metrics", "HOST:PORT", "Serve counters for Prometheus at this address, under /metrics.")
    ] = None,
) -> int:
    """Serves the partitions in directories to Kafka clients, for reading only.

    Consumers list topics, seek by offset and by time, and read with both isolations and all codecs, as from a broker.
    Requests that write get an authorization error. The command creates, locks and changes nothing in the directories,
    so they may belong to a running broker. Clients see what was there at the start. When replicas of a partition lie in
    several directories, the one with the highest leader epoch is served, and of those the longest. Old messages (magic
    0 and 1) are sent as they are; clients understand them.

    Groups (the classic protocol) begin at the offsets in the directories' own __consumer_offsets. What they commit is
    kept in memory, or with --offsets in a file with which the next run begins.

    The command compares each batch's checksum before it sends the batch. A fetch that meets damage gets
    CORRUPT_MESSAGE, or with --on-corrupt skip the next good batch. Each damaged place is reported once. With skip, a
    partition that cannot be opened is left out. If a log was not closed properly, a line says what a broker that starts
    on it would cut. There is no authentication: whoever reaches the address reads everything. SIGTERM and SIGINT end
    the command in order.

    Examples:
      seglog serve /var/lib/kafka/data
      seglog serve --listen 0.0.0.0:9092 --advertise rescue.example:9092 /mnt/broker1/data /mnt/broker2/data
      seglog serve --on-corrupt skip --metrics 127.0.0.1:9308 backup/orders-0
    """
    import asyncio

    from seglog.serve.catalog import Catalog
    from seglog.serve.endpoint import Endpoint
    from seglog.serve.running import committed_offsets
    from seglog.serve.running import run as run_endpoint
    from seglog.serve.server import TlsFiles
    from seglog_cli.views.serving import Reporter

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
    with Catalog.open(
        paths, fs=looking.fs, clock=session.clock, config_of=looking.config_of, skip_damage=skip
    ) as catalog:
        reporter.opened(catalog)
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
    return _EXITS[received]


def _address(text: str) -> Address:
    """HOST:PORT, an IPv6 address in brackets."""
    from seglog.serve.endpoint import Address

    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (colon and host and port.isascii() and port.isdigit() and int(port) <= _MOST_PORT):
        raise ValueError(f"{text!r} is not HOST:PORT")
    return Address(host, int(port))
