"""What all requests share: the served partitions, the endpoint's address, its limits and counters, and its observer."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from seglog.clock import Clock
from seglog.errors import CorruptionError
from seglog.log.loader import RecoveryReport
from seglog.serve.catalog import Catalog
from seglog.serve.limits import Limits
from seglog.serve.metrics import Metrics

NODE_ID = 1
CLUSTER_ID = "seglog-serve"  # where no directory says which cluster it was

_MOST_PLACES = 10_000


@dataclass(frozen=True, slots=True)
class Address:
    """A host name or number, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class ConnectionEnd:
    """A connection that has ended: from whom, as whom, what it did, and why it was closed."""

    peer: str
    client_id: str
    requests: int
    sent_bytes: int
    seconds: float
    reason: str
    hostile: bool


class Observer(Protocol):
    """Who hears what an operator wants to know. Called from the event loop and from reading threads."""

    def connection_ended(self, end: ConnectionEnd) -> None: ...

    def damaged(self, damage: CorruptionError) -> None: ...

    def offsets_not_kept(self, path: Path, error: OSError) -> None: ...

    def recovery_would_cut(self, report: RecoveryReport) -> None: ...


@dataclass(slots=True)
class Endpoint:
    """What every request is answered from. `advertised` is the address that clients are given."""

    catalog: Catalog
    advertised: Address
    clock: Clock
    observer: Observer
    limits: Limits = field(default_factory=Limits)
    skip_damage: bool = False
    metrics: Metrics = field(default_factory=Metrics)
    _places: set[tuple[str, int | None]] = field(default_factory=set)

    @property
    def cluster_id(self) -> str:
        return self.catalog.cluster_id or CLUSTER_ID

    def report(self, damage: CorruptionError) -> None:
        """Notes damage that a fetch has met; each place is reported once."""
        place = (str(damage.path), damage.position)
        if place in self._places or len(self._places) >= _MOST_PLACES:
            return
        self._places.add(place)
        self.metrics.damages_total += 1
        self.observer.damaged(damage)
