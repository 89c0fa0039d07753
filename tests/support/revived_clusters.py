"""Starts clusters of a controller and three brokers, such as dead ones (`dying_clusters`), node by node, in warm
processes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from tests.support.dying_clusters import NODES, SETTINGS, TOPICS, Kind, leaders_of
from tests.support.kafka.broker import free_ports, server_properties, with_dynamic_quorum
from tests.support.kafka.cluster import CONTROLLER_ID
from tests.support.kafka.starts import Starts

STILL = {
    **SETTINGS,
    "log.cleaner.enable": "false",  # what compaction removes was not lost
    "controlled.shutdown.enable": "false",  # its end is of no interest
    "auto.leader.rebalance.enable": "false",  # else the preferred replicas in sync lead after five minutes
}
SETTLED_SECONDS = 240


class Homes(Protocol):
    """Where the nodes of a cluster have their logs."""

    @property
    def kind(self) -> Kind: ...

    @property
    def controller(self) -> Path: ...

    @property
    def paths(self) -> dict[int, list[Path]]: ...


class Nodes:
    """Nodes of a cluster in warm processes: one for the controller, and one for each broker, by release."""

    def __init__(self, place: Path) -> None:
        self._place, self._starts = place, dict[tuple[str, int], Starts]()

    def of(self, kind: Kind, node: int) -> Starts:
        """The process in which a node runs."""
        for (release, number), starts in list(self._starts.items()):
            if release != kind.release:  # memory is for one release at a time
                starts.__exit__(None, None, None)
                del self._starts[release, number]
        if (kind.release, node) not in self._starts:
            self._starts[kind.release, node] = Starts(
                self._place / f"{kind.release}-{node}", release=kind.release, echo=2
            )
        return self._starts[kind.release, node]

    def kill(self, kind: Kind, node: int) -> None:
        """Ends a node's process as SIGKILL does."""
        self._starts.pop((kind.release, node)).__exit__(None, None, None)

    def close(self) -> None:
        """Ends all processes."""
        for starts in self._starts.values():
            starts.__exit__(None, None, None)


class Revived:
    """A cluster that is started, node by node. `settings` are those of all nodes; `ports` those of `node_ports`."""

    def __init__(
        self,
        homes: Homes,
        nodes: Nodes,
        *,
        settings: Mapping[str, str] = STILL,
        ports: Mapping[int, int] | None = None,
    ) -> None:
        self._homes, self._nodes, self._settings = homes, nodes, settings
        self.brokers: dict[int, str] = {}
        self._ports = node_ports() if ports is None else ports
        self._voters = f"{CONTROLLER_ID}@127.0.0.1:{self._ports[CONTROLLER_ID]}"

    def start_controller(self) -> None:
        """Starts the controller."""
        address = f"CONTROLLER://127.0.0.1:{self._ports[CONTROLLER_ID]}"
        own = {"process.roles": "controller", "node.id": str(CONTROLLER_ID), "listeners": address}
        properties = server_properties(self._homes.controller, {**self._settings, **own}, alone=False)
        self._start(CONTROLLER_ID, properties | {"controller.quorum.voters": self._voters})

    def start(self, node: int) -> None:
        """Starts a broker, and returns when it is not fenced any more."""
        paths, address = self._homes.paths[node], f"127.0.0.1:{self._ports[node]}"
        listener = {"listeners": f"PLAINTEXT://{address}", "advertised.listeners": f"PLAINTEXT://{address}"}
        own = {"node.id": str(node), "log.dirs": ",".join(map(str, paths)), **listener}
        self._start(node, server_properties(paths[0], {**self._settings, **own}, beside=self._voters))
        self.brokers[node] = address

    def _start(self, node: int, properties: Mapping[str, str]) -> None:
        if self._homes.kind.dynamic:
            properties = with_dynamic_quorum(properties)
        refusal = self._nodes.of(self._homes.kind, node).start_with(properties)
        if refusal:
            self._nodes.kill(self._homes.kind, node)  # it may still hold the locks of its directories
            raise RuntimeError(f"node {node} did not start: {refusal}")

    def stop(self, node: int) -> None:
        """Ends a broker."""
        self.brokers.pop(node)
        self._nodes.of(self._homes.kind, node).end()

    def kill_broker(self, node: int) -> None:
        """Ends a broker's process, as SIGKILL does."""
        self.brokers.pop(node)
        self._nodes.kill(self._homes.kind, node)

    def kill(self) -> None:
        """Ends the processes of all nodes at once."""
        for node in list(self.brokers):
            self.kill_broker(node)
        self._nodes.kill(self._homes.kind, CONTROLLER_ID)

    def address(self, node: int) -> str:
        """Where a broker listens, started or not."""
        return f"127.0.0.1:{self._ports[node]}"

    def admin(self) -> object:
        """An admin client for the brokers that run."""
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": ",".join(self.brokers.values())})

    def leaders(self) -> dict[str, int]:
        """The leader of each partition."""
        return {f"{topic}-{number}": node for (topic, number), node in leaders_of(self.admin(), NODES).items()}

    def settle(self) -> None:
        """Waits until every follower has what its leader has."""
        admin, deadline = self.admin(), time.monotonic() + SETTLED_SECONDS
        while time.monotonic() < deadline:
            topics = admin.list_topics(timeout=30).topics  # type: ignore[attr-defined]
            seen = [each for topic in TOPICS for each in topics[topic].partitions.values()]
            if all(len(each.isrs) == len(self.brokers) for each in seen):
                return
            time.sleep(0.5)
        raise TimeoutError(f"followers are not in sync: {[(each.id, each.leader, each.isrs) for each in seen]}")

    def end(self) -> None:
        """Ends what runs."""
        for node in [*self.brokers, CONTROLLER_ID]:
            self._nodes.of(self._homes.kind, node).end()


@contextmanager
def revived(homes: Homes, nodes: Nodes) -> Iterator[Revived]:
    """A dead cluster with its controller started."""
    cluster = Revived(homes, nodes)
    cluster.start_controller()
    try:
        yield cluster
    finally:
        cluster.end()


def node_ports() -> dict[int, int]:
    """A free port for each node."""
    return dict(zip((*NODES, CONTROLLER_ID), free_ports(len(NODES) + 1), strict=True))
