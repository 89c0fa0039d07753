"""Starts dead clusters (`dying_clusters`) again, node by node, in warm processes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.dying_clusters import NODES, SETTINGS, TOPICS, DyingCluster, Kind, leaders_of
from tests.support.kafka.broker import free_ports, server_properties, with_dynamic_quorum
from tests.support.kafka.cluster import CONTROLLER_ID
from tests.support.kafka.starts import Starts

STILL = {
    **SETTINGS,
    "log.cleaner.enable": "false",  # what compaction removes was not lost
    "controlled.shutdown.enable": "false",  # its end is of no interest
}
SETTLED_SECONDS = 240


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

    def close(self) -> None:
        """Ends all processes."""
        for starts in self._starts.values():
            starts.__exit__(None, None, None)


class Revived:
    """A dead cluster that is started again, node by node."""

    def __init__(self, dying: DyingCluster, nodes: Nodes) -> None:
        self._dying, self._nodes = dying, nodes
        self.brokers: dict[int, str] = {}
        self._ports = dict(zip((*NODES, CONTROLLER_ID), free_ports(len(NODES) + 1), strict=True))
        self._voters = f"{CONTROLLER_ID}@127.0.0.1:{self._ports[CONTROLLER_ID]}"

    def start_controller(self) -> None:
        """Starts the controller."""
        address = f"CONTROLLER://127.0.0.1:{self._ports[CONTROLLER_ID]}"
        own = {"process.roles": "controller", "node.id": str(CONTROLLER_ID), "listeners": address}
        properties = server_properties(self._dying.controller, {**STILL, **own}, alone=False)
        self._start(CONTROLLER_ID, properties | {"controller.quorum.voters": self._voters})

    def start(self, node: int) -> None:
        """Starts a broker, and returns when it is not fenced any more."""
        paths, address = self._dying.paths[node], f"127.0.0.1:{self._ports[node]}"
        listener = {"listeners": f"PLAINTEXT://{address}", "advertised.listeners": f"PLAINTEXT://{address}"}
        own = {"node.id": str(node), "log.dirs": ",".join(map(str, paths)), **listener}
        self._start(node, server_properties(paths[0], {**STILL, **own}, beside=self._voters))
        self.brokers[node] = address

    def _start(self, node: int, properties: Mapping[str, str]) -> None:
        if self._dying.kind.dynamic:
            properties = with_dynamic_quorum(properties)
        refusal = self._nodes.of(self._dying.kind, node).start_with(properties)
        if refusal:
            self._nodes.of(self._dying.kind, node).end()
            raise RuntimeError(f"node {node} did not start: {refusal}")

    def stop(self, node: int) -> None:
        """Ends a broker."""
        self.brokers.pop(node)
        self._nodes.of(self._dying.kind, node).end()

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
            self._nodes.of(self._dying.kind, node).end()


@contextmanager
def revived(dying: DyingCluster, nodes: Nodes) -> Iterator[Revived]:
    """A dead cluster with its controller started."""
    cluster = Revived(dying, nodes)
    cluster.start_controller()
    try:
        yield cluster
    finally:
        cluster.end()
