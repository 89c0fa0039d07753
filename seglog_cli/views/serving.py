"""What `seglog serve` tells while it runs: that it is ready, damage it meets, and each connection's end."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from seglog.units import count_text

if TYPE_CHECKING:
    from pathlib import Path

    from seglog.errors import CorruptionError
    from seglog.log.loader import RecoveryReport
    from seglog.serve.catalog import Catalog
    from seglog.serve.endpoint import Address, ConnectionEnd, Endpoint
    from seglog_cli.console import Console


class Reporter:
    """The endpoint's observer. JSON lines go to stdout, text to stderr."""

    def __init__(self, console: Console) -> None:
        self._console, self._lock = console, threading.Lock()

    def opened(self, catalog: Catalog) -> None:
        """Says which partitions are not served."""
        for one in catalog.left_out:
            self._tell(
                {"type": "left_out", "path": str(one.directory), "message": one.reason},
                f"{one.directory} is not served: {one.reason}",
                warning=True,
            )

    def ready(self, endpoint: Endpoint, listening: Address, metrics: Address | None) -> None:
        """Says that clients can connect, and where."""
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
        self._tell(record, f"serving {what}, read-only, on {listening}{shown}")

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
        record = {
            "type": "connection",
            "peer": end.peer,
            "client_id": end.client_id,
            "requests": end.requests,
            "sent_bytes": end.sent_bytes,
            "seconds": round(end.seconds, 3),
            "reason": end.reason,
            "hostile": end.hostile,
        }
        who = f"{end.peer} ({end.client_id})" if end.client_id else end.peer
        did = f"{end.requests} requests, {end.sent_bytes} bytes sent, {end.seconds:.1f} s"
        self._tell(record, f"{who}: {did}: {end.reason}", warning=end.hostile)

    def _tell(self, record: dict[str, object], text: str, *, warning: bool = False) -> None:
        with self._lock:
            if self._console.as_json:
                self._console.json(record)
                self._console.flush()
            elif warning:
                self._console.warning(text)
            else:
                self._console.message(text)
