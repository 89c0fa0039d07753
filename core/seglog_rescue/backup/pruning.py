"""Removes old snapshots from a repository, and later the objects that only they named (`seglog backup prune`).

1. Which snapshots stay follows rules as restic and borg have them, for each set of log directories by itself; the
   newest of each always stays, because the next run builds on it.
2. The manifest of any other is first copied to `pruned/`, and only then removed. A run that is going on may still name
   what an older snapshot names, so its objects stay.
3. When a copy is older than the grace period, the objects that no snapshot and no younger copy names are removed, and
   then the copy. So are objects that no manifest names, the remains of runs that were cut short, once they are as old.

A prune that is cut short at any point leaves every listed snapshot whole, and the next one goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from seglog.errors import RefusedError
from seglog_rescue.backup.repository import PRUNED, Repository
from seglog_stores.tiers.snapshots import ended_ms, source_of

GRACE_MS = 24 * 60 * 60 * 1000

# The period in which a moment lies: of each, a rule keeps the last snapshot.
PERIODS: dict[str, Callable[[datetime], tuple[int, ...]]] = {
    "daily": lambda moment: (moment.year, moment.month, moment.day),
    "weekly": lambda moment: tuple(moment.isocalendar()[:2]),
    "monthly": lambda moment: (moment.year, moment.month),
}


@dataclass(frozen=True, slots=True)
class KeepRules:
    """How many of the last snapshots stay, and how many days, weeks (ISO) and months, in UTC, with their last one."""

    last: int = 0
    daily: int = 0
    weekly: int = 0
    monthly: int = 0


@dataclass(slots=True)
class PrunedBackup:
    """What a prune did, or would: snapshots that stay and that go, and objects that were removed, in bytes too."""

    staying: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    objects: int = 0
    bytes: int = 0


def snapshots_to_keep(identities: Iterable[str], rules: KeepRules) -> set[str]:
    """Returns which snapshots stay, by their ids alone."""
    by_source: dict[str, list[str]] = {}
    for identity in sorted(identities, reverse=True):
        by_source.setdefault(source_of(identity), []).append(identity)
    stay: set[str] = set()
    for newest_first in by_source.values():
        stay |= {*newest_first[: max(1, rules.last)]}
        for name, period in PERIODS.items():
            stay |= set(_last_of_periods(newest_first, period, getattr(rules, name)))
    return stay


def _last_of_periods(
    newest_first: Sequence[str], period: Callable[[datetime], tuple[int, ...]], most: int
) -> Sequence[str]:
    last: dict[tuple[int, ...], str] = {}
    for identity in newest_first:
        last.setdefault(period(datetime.fromtimestamp(ended_ms(identity) / 1000, UTC)), identity)
    return list(last.values())[:most]


def prune(
    repository: Repository, rules: KeepRules, now_ms: int, grace_ms: int = GRACE_MS, *, dry_run: bool = False
) -> PrunedBackup:
    """Removes the snapshots that the rules do not keep, and objects that have not been named for `grace_ms`.

    Raises RefusedError if the rules keep nothing by name, CorruptTierError for a damaged manifest: what it names is not
    known then, so nothing is removed. Raises OSError.
    """
    if rules == KeepRules():
        raise RefusedError("without a rule of what to keep, nothing is removed")
    ids = repository.ids()
    stay = snapshots_to_keep(ids, rules)
    done = PrunedBackup(sorted(stay), [identity for identity in ids if identity not in stay])
    objects_of = {identity: repository.read(identity).objects() for identity in ids}  # before anything is removed
    aside = {identity: _set_aside_ms(repository, identity) for identity in repository.ids(PRUNED)}
    for identity in done.removed:
        aside[identity] = now_ms
        if not dry_run:
            _set_aside(repository, identity)
    expired = {identity for identity, moment in aside.items() if moment <= now_ms - grace_ms}
    for identity in aside.keys() - expired - objects_of.keys():
        objects_of[identity] = repository.read(identity, PRUNED).objects()
    for identity in set(repository.ids()) - objects_of.keys():  # of a run that ended meanwhile
        objects_of[identity] = repository.read(identity).objects()
    gone = expired - stay
    in_use = set[str]().union(*(names for identity, names in objects_of.items() if identity not in gone))
    done.objects, done.bytes = remove_unnamed(repository, in_use, now_ms - grace_ms, dry_run=dry_run)
    if not dry_run:
        for identity in sorted(expired):
            repository.discard_manifest(identity, PRUNED)
    return done


def remove_unnamed(
    repository: Repository, named: Collection[str], before_ms: int | None, *, dry_run: bool
) -> tuple[int, int]:
    """Removes the objects that are not `named` and were made by then, or all of them; returns how many, and their
    bytes. Raises OSError.
    """
    objects = size = 0
    for name, status in list(repository.objects()):
        if name in named or (before_ms is not None and status.modified_ms > before_ms):
            continue
        objects, size = objects + 1, size + status.size
        if not dry_run:
            repository.discard(name)
    return objects, size


def _set_aside(repository: Repository, identity: str) -> None:
    snapshot = repository.read(identity)
    repository.discard_manifest(identity, PRUNED)  # of a prune that was cut short: the period begins now
    repository.write(snapshot, PRUNED)
    repository.discard_manifest(identity)


def _set_aside_ms(repository: Repository, identity: str) -> int:
    status = repository.fs.status(repository.manifest_path(identity, PRUNED))
    return 0 if status is None else status.modified_ms
