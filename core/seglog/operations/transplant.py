"""Transplanting: partitions of a dead cluster into the log directory of a stopped broker (`seglog transplant`).

1. The sources' partitions are chosen, and what is left out is said (`transplant.choosing`).
2. Each is planned (`transplant.planner`): all that stands against it is gathered, not only the first.
3. Nothing is done unless all of it can be. The plan is carried out as one run (`transplant.apply`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from seglog.clock import Clock
from seglog.configuration.keys import LogConfig
from seglog.errors import LockedError, NotALogError, Obstacles, SeglogError
from seglog.evidence.coordinator_replay import OFFSETS_TOPIC
from seglog.evidence.transactions import Coordinated, read_coordinators
from seglog.progress import BytesRead
from seglog.scan.listing import Target
from seglog.scan.view import require_no_run
from seglog.storage.filesystem import FileSystem
from seglog.storage.lock import holder_of
from seglog.transplant.choosing import Wanted, choose
from seglog.transplant.plan import PartitionPlan, TransplantPlan
from seglog.transplant.planner import Circumstances, Planner
from seglog.transplant.target import TargetDirectory


@dataclass(frozen=True, slots=True)
class TransplantRequest:
    """What to put where. `into` is a resolved log directory; `topics` maps old names to new ones, and when it names
    any, no other topic is taken. `transactions_of` are further log directories whose `__transaction_state` tells how
    open transactions ended. `every_replica`: all replicas of the partitions get the same data before any starts.
    """

    sources: Sequence[Target]
    into: Path
    topics: Mapping[str, str] = field(default_factory=dict)
    transactions_of: Sequence[Path] = ()
    every_replica: bool = False
    quarantine: Path | None = None


def plan_transplant(
    fs: FileSystem,
    clock: Clock,
    request: TransplantRequest,
    config_of: Callable[[str], LogConfig],
    progress: BytesRead = lambda _size: None,
) -> TransplantPlan:
    """Looks at sources and target; changes nothing. RefusedError, LockedError where none of it can be; where partitions
    cannot, the error of the one, or Obstacles."""
    target = TargetDirectory(fs, request.into)
    wanted, left_out = choose(fs, request.sources, request.topics, request.into)
    around = list(dict.fromkeys(one.directory.parent for one in wanted))
    for path in around:
        _require_dead(path)
    for path in (*around, *request.transactions_of):
        require_no_run(fs, path)
    if not target.has_topic(OFFSETS_TOPIC):
        lost = [one for one in wanted if one.partition.topic == OFFSETS_TOPIC]
        wanted = [one for one in wanted if one not in lost]
        left_out += [(str(one.directory), _NO_OFFSETS_TOPIC) for one in lost]
    if not wanted:
        reason = f"; {left_out[0][0]}: {left_out[0][1]}" if left_out else ""
        raise NotALogError(request.sources[0].path, f"no partition to transplant is there{reason}")
    coordinators = _coordinators(fs, [*around, *request.transactions_of])
    common = Circumstances(target, coordinators, clock.now_ms(), request.every_replica)
    absences = target.absences(one.target for one in wanted)
    placed = [one for one in wanted if target.has_place(one.target)]
    plans, errors = _planned(Planner(fs, common, progress), placed, config_of)
    errors[:0] = absences
    if errors:
        raise errors[0] if len(errors) == 1 else Obstacles(errors)
    notes = (*target.notes(), *(note for plan in plans for note in plan.notes))
    return TransplantPlan(request.into, tuple(plans), tuple(left_out), notes, request.quarantine)


_NO_OFFSETS_TOPIC = (
    "the new cluster has no __consumer_offsets yet, so that groups would not resume: make it with the same number of"
    " partitions, and transplant again"
)


def _planned(
    planner: Planner, wanted: Sequence[Wanted], config_of: Callable[[str], LogConfig]
) -> tuple[list[PartitionPlan], list[SeglogError]]:
    plans: list[PartitionPlan] = []
    errors: list[SeglogError] = []
    for one in wanted:
        try:
            plans.append(planner.plan(one, config_of(one.target.topic)))
        except SeglogError as error:
            errors.append(error)
    return plans, errors


def _require_dead(source: Path) -> None:
    holder = holder_of(source)
    if holder is not None:
        raise LockedError(source, holder.pid, holder.describe())


def _coordinators(fs: FileSystem, directories: Sequence[Path]) -> dict[int, Coordinated] | None:
    """What the coordinators' logs say of producers; of several replicas the one that is further."""
    found: dict[int, Coordinated] | None = None
    for one in _read(fs, directories):
        known = found or {}
        newer = {key: value for key, value in one.items() if key not in known or _rank(known[key]) < _rank(value)}
        found = {**known, **newer}
    return found


def _read(fs: FileSystem, directories: Sequence[Path]) -> Iterator[dict[int, Coordinated]]:
    for directory in directories:
        with suppress(NotALogError):
            known = read_coordinators(fs, directory)
            if known is not None:
                yield known


def _rank(one: Coordinated) -> tuple[int, int, int]:
    return one.producer_epoch, one.changed_ms, one.state
