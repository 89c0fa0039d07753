"""What a broker would cut off served logs that were not closed properly; found while clients are served.

A broker that starts after an unclean stop recovers each log from its recovery point on, and cuts it at the first
damage. Here nothing is cut: whoever serves such a directory hears what is at stake before a broker starts on it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from seglog.errors import SeglogError
from seglog.log.loader import RecoveryReport
from seglog.serve.catalog import Catalog, ServedPartition

Tell = Callable[[RecoveryReport], None]


class _StoppedError(Exception):
    """Nobody wants to know any more."""


class LossSearch:
    """Plans the recovery of each partition of `catalog` in a thread; `tell` is called with each that loses bytes.

    A log that cannot be read that far is passed over: serving it says why.
    """

    def __init__(self, catalog: Catalog, tell: Tell) -> None:
        self._catalog, self._tell = catalog, tell
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._search, name="losses", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends it before the next segment, if it was started."""
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _search(self) -> None:
        for partition in self._catalog.unclean():
            try:
                report = self._look(partition)
            except _StoppedError:
                return
            except (SeglogError, OSError):
                continue
            if report.truncated_bytes:
                self._tell(report)

    def _look(self, partition: ServedPartition) -> RecoveryReport:
        def go_on(*_: object) -> None:
            if self._stopped.is_set():
                raise _StoppedError

        go_on()
        return self._catalog.plan_recovery(partition, go_on)
