"""Removes old snapshots from a repository, and later the objects that only they named (`seglog backup prune`).

1. Which snapshots stay follows rules as restic and borg have them, for each set of log directories by itself; the
   newest of each always stays, because the next run builds on it.
2. The manifest of any other is first copied to `pruned/`, and only then removed. A run that is going on may still name
   what an older snapshot names, so its objects stay.
3. A pack of which snapshots name less than half is written anew: what is named is stored in new packs and read back;
   the manifests are copied to `pruned/` in the same way, and then replaced. So the old pack stays as long, too.
4. When a copy is older than the grace period, the objects that no snapshot and no younger copy names are removed, and
   then the copy. So are objects that no manifest names, the remains of runs that were cut short, once they are as old.

A prune that is cut short at any point leaves every listed snapshot whole, and the next one goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from seglog.errors import RefusedError
from seglog_rescue.backup.erasures import (
    known_erasures,
    require_no_erasure,
    require_no_erasure_since,
    unfinished_erasure,
)
from seglog_rescue.backup.moving import ExtentMover, moved_part
from seglog_rescue.backup.named import NamedObjects
from seglog_rescue.backup.repository import PRUNED, Repository
from seglog_stores.formats.snapshot_manifest import Part, is_folder_of_manifests
from seglog_stores.formats.snapshot_reading import KnownLines, Manifest
from seglog_stores.tiers.snapshots import ended_ms, source_of

LEAST_NAMED = 0.5  # of a pack, or else it is written anew
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
    """What a prune did, or would: snapshots that stay and that go; objects that were removed, in bytes too; packs that
    were written anew.
    """

    staying: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    objects: int = 0
    bytes: int = 0
    packs: int = 0


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
    known then, so nothing is removed. RefusedError too if packs must be written anew while records are erased. OSError.
    """
    if rules == KeepRules():
        raise RefusedError("without a rule of what to keep, nothing is removed")
    erasures, repository = known_erasures(repository), repository.pinned()
    ids = repository.ids()
    stay = snapshots_to_keep(ids, rules)
    done = PrunedBackup(sorted(stay), [identity for identity in ids if identity not in stay])
    named = NamedObjects()
    for identity in ids:  # all are read before anything is removed, and before copies are listed: none falls between
        (named if identity in stay or grace_ms else NamedObjects()).take(repository.manifest(identity))
    aside = {identity: _set_aside_ms(repository, identity) for identity in repository.ids(PRUNED)}
    waiting = {identity for identity, moment in aside.items() if moment > now_ms - grace_ms}
    fixed = {name for identity in waiting & stay for name in named.packs[identity]}  # of manifests that are listed
    for identity in waiting:
        named.take(repository.manifest(identity, PRUNED))
    if not dry_run:
        for identity in done.removed:
            _set_aside(repository, repository.manifest(identity), waiting)
            repository.discard_manifest(identity)
    listed = {name for identity in stay for name in named.packs[identity] if name not in fixed}
    going = named.sparse(repository, LEAST_NAMED) & listed  # a manifest is not replaced twice while a copy waits
    done.packs = len(going)
    changing = [identity for identity in done.staying if going & named.packs[identity]]
    named.objects.difference_update(() if grace_ms else going)
    if going and not dry_run:
        named.objects |= _without_packs(repository, changing, going, waiting)
    for identity in set(repository.ids()) - set(ids):  # of a run that ended meanwhile
        named.take(repository.manifest(identity))
    require_no_erasure_since(repository, erasures)  # after which other manifests count
    done.objects, done.bytes = remove_unnamed(repository, named.objects, now_ms - grace_ms, dry_run=dry_run)
    if not dry_run:
        expired = aside.keys() - waiting - {*done.removed, *changing} if grace_ms else repository.ids(PRUNED)
        for identity in sorted(expired):
            repository.discard_manifest(identity, PRUNED)
        _discard_forgotten_folders(repository)
    return done


def _without_packs(
    repository: Repository, changing: Sequence[str], going: frozenset[str], waiting: Collection[str]
) -> set[str]:
    """Stores what snapshots name of packs in other ones, and replaces their manifests; returns what these name."""
    erasures, mover = require_no_erasure(repository), ExtentMover(repository, going)

    def moved(part: Part) -> Part:
        return moved_part(mover, part)

    moves, in_use = KnownLines(lambda part: moved(part) != part), NamedObjects()
    for identity in changing:  # one at a time is in memory
        moves.take(repository.manifest(identity))
    mover.finish()
    for identity in changing:
        manifest = repository.manifest(identity)
        moves.take(manifest)  # of another prune, perhaps, which has replaced it meanwhile
        mover.finish()
        anew = manifest.changed(moves, moved)
        require_no_erasure_since(repository, erasures)
        in_use.take(anew)  # which reads all of it
        if anew is not manifest:
            _set_aside(repository, manifest, waiting)
            repository.replace(anew)
    return in_use.objects


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


def _discard_forgotten_folders(repository: Repository) -> None:
    """Removes manifests in folders that do not count and never will: no erasure is at work that began before they were
    listed.
    """
    repository.fs.forget_listings()
    names = [name for name in repository.fs.list(repository.place) if is_folder_of_manifests(name)]
    if unfinished_erasure(known_erasures(repository)) is None:
        for name in set(names) - {repository.pinned().listed()}:
            replace(repository, folder=name).discard_manifests()


def _set_aside(repository: Repository, manifest: Manifest, waiting: Collection[str]) -> None:
    """Copies a manifest to those that were pruned; its period begins now. What an earlier copy of it names that waits
    stays in it: a run may have begun before that was replaced.
    """
    if manifest.id in waiting:
        earlier = repository.manifest(manifest.id, PRUNED)
        if earlier.data != manifest.data:
            manifest = manifest.joined(earlier)
    repository.replace(manifest, PRUNED)


def _set_aside_ms(repository: Repository, identity: str) -> int:
    status = repository.fs.status(repository.manifest_path(identity, PRUNED))
    return 0 if status is None else status.modified_ms
