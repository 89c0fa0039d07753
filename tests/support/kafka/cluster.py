"""A real cluster of several processes: one controller of its own, and brokers with several log directories each.

The controller is a node without partitions; each broker keeps a copy of the metadata log in its first log directory.
Working files lie beside the directories, as those of `Broker` do.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from tests.support.kafka.broker import Broker
from tests.support.kafka.jvm import KAFKA_VERSION

CONTROLLER_ID = 3000
HEAP = "256m"


class Controller(Broker):
    """The only voter of a cluster; brokers are made `beside` it."""

    def __init__(
        self,
        log_directory: Path,
        *,
        settings: Mapping[str, str] | None = None,
        release: str = KAFKA_VERSION,
        dynamic: bool = False,
    ) -> None:
        own = {**(settings or {}), "process.roles": "controller", "node.id": str(CONTROLLER_ID)}
        super().__init__(log_directory, settings=own, heap=HEAP, alone=False, release=release, dynamic=dynamic)

    def _answers(self) -> bool:
        host, port = self.voters.partition("@")[2].split(":")
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except OSError:
            return False
        return True


class Cluster:
    """A running cluster; a context manager kills what still runs.

    `directories` maps each broker's id to its log directories, the first of them with the metadata; `settings` are the
    brokers' and the controller's, `own` those of single brokers. `brokers` are those that run. `release` and `dynamic`
    are as for `Broker`.
    """

    def __init__(
        self,
        controller: Path,
        directories: Mapping[int, list[Path]],
        *,
        settings: Mapping[str, str] | None = None,
        own: Mapping[int, Mapping[str, str]] | None = None,
        release: str = KAFKA_VERSION,
        dynamic: bool = False,
    ) -> None:
        self._own = own or {}
        self.directories, self.brokers = dict(directories), dict[int, Broker]()
        self._settings, self._release, self._dynamic = dict(settings or {}), release, dynamic
        self._stack = ExitStack()
        started = Controller(controller, settings=settings, release=release, dynamic=dynamic)
        self.controller = self._stack.enter_context(started)
        try:
            for node in directories:
                self.start(node)
        except BaseException:
            self.kill()
            raise

    def start(self, node: int) -> Broker:
        """Starts a broker on its directories."""
        paths = self.directories[node]
        more = {"node.id": str(node), "log.dirs": ",".join(map(str, paths))}
        self.brokers[node] = Broker(
            paths[0],
            beside=self.controller,
            settings={**more, **self._settings, **self._own.get(node, {})},
            heap=HEAP,
            release=self._release,
            dynamic=self._dynamic,
        )
        return self.brokers[node]

    @property
    def bootstrap(self) -> str:
        """The addresses of the brokers that run."""
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    @property
    def every_directory(self) -> list[Path]:
        """The log directories of all brokers, and the controller's."""
        return [path for paths in self.directories.values() for path in paths] + [self.controller.log_directory]

    def kill_broker(self, node: int) -> None:
        """Ends one broker at once."""
        self.brokers.pop(node).kill()

    def kill(self) -> None:
        """Ends all that still runs at once."""
        for node in list(self.brokers):
            self.kill_broker(node)
        if self.controller.process.poll() is None:
            self.controller.kill()
        self._stack.pop_all()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
