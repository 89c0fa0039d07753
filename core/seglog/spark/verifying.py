"""Verifying partitions in tasks: a giant one in parts, each in a task of its own, and then as a whole in one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from seglog.clock import SystemClock
from seglog.errors import NotALogError
from seglog.evidence.findings import Finding, Severity
from seglog.remote.settings import StoreSettings
from seglog.remote_path import RemotePath
from seglog.scan.listing import Target, TargetKind, list_partition, log_directory_of
from seglog.scan.view import SingleFile, is_held
from seglog.spark.tasks import Watch, cores_of, run_tasks, task_bytes
from seglog.spark.tiered import Shown, task_files
from seglog.storage.filesystem import FileSystem
from seglog.tiers.segments import Remark
from seglog.verification.parts import KnownPart, KnownParts, Part, by_log, parts_of, verify_part
from seglog.verification.verify import Level, Verification, VerifyOptions, VerifySummary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What one core verifies, of a disk and of an object store, in less time than it pays to start tasks twice.
GIANT_BYTES, GIANT_OBJECT_BYTES = 4 << 30, 512 << 20
PART_BYTES = 256 << 20
# What all parts bring back passes through the driver: half of what Spark lets through (spark.driver.maxResultSize).
KNOWN_BYTES = 512 << 20


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """Findings in the order of the partitions, and the sum of what was looked at; what must be known of their tiers."""

    findings: tuple[Finding, ...]
    summary: VerifySummary
    remarks: tuple[Remark, ...] = ()


@dataclass(frozen=True, slots=True)
class Verified:
    """What a task found, and from where to where each log reaches, by its directory."""

    report: VerifyReport
    extents: dict[Path, tuple[int, int]]


def verified(
    options: VerifyOptions, store: StoreSettings, work: tuple[Target, tuple[Shown, ...], KnownParts]
) -> Verified:
    """In a task: a partition, of which parts may be known."""
    target, shown, known = work
    remarks: list[Remark] = []
    fs = task_files(store, shown, remarks.append)
    verification = Verification(fs, [target], options, SystemClock(), known=known)
    findings = tuple(verification)
    return Verified(VerifyReport(findings, verification.summary, tuple(remarks)), verification.extents)


def known_of_giants(
    spark: SparkSession,
    fs: FileSystem,
    items: Sequence[tuple[Target, tuple[Shown, ...]]],
    sizes: Sequence[int],
    options: VerifyOptions,
    store: StoreSettings,
    watch: Watch | None,
) -> list[KnownParts]:
    """What tasks have found in the parts of each giant partition; of the others nothing.

    Beside a broker nothing is known beforehand: whatever is grave must stay while it is looked at.
    """
    known: list[KnownParts] = [{} for _ in items]
    giants = [] if options.live else giants_of(spark, [target.path for target, _ in items], sizes)
    most = max(PART_BYTES, task_bytes(sizes, cores_of(spark))) if giants else 0
    work: list[tuple[Part, tuple[Shown, ...]]] = []
    owners: list[int] = []
    for number in giants:
        target, shown = items[number]
        if not is_held(log_directory_of(target)):
            parts = _parts(fs, target, most)
            work += [(part, shown) for part in parts]
            owners += [number] * len(parts)
    if not work:
        return known
    body = partial(_part_verified, options.level, store, KNOWN_BYTES // len(work))
    weights = [part.cuts[1] - part.cuts[0] for part, _ in work]
    found: list[KnownPart | None] = run_tasks(spark, work, body, watch, sizes=weights)
    for number in dict.fromkeys(owners):
        known[number] = by_log(part for part, owner in zip(found, owners, strict=True) if owner == number)
    return known


def giants_of(spark: SparkSession, paths: Sequence[Path], sizes: Sequence[int], dearer: int = 1) -> list[int]:
    """The numbers of the partitions that it pays to cut, where a byte costs `dearer` times what `verify` takes."""
    least = [(GIANT_OBJECT_BYTES if isinstance(path, RemotePath) else GIANT_BYTES) // dearer for path in paths]
    if not any(size > most for size, most in zip(sizes, least, strict=True)):
        return []
    cores, found = cores_of(spark), list[int]()
    for number, size in enumerate(sizes):
        gained = size * (cores - 1) // cores  # what other cores do meanwhile
        outlasts = size * cores > sum(sizes)  # else the others keep all cores at work
        if gained > least[number] and outlasts:
            found.append(number)
    return found


def _parts(fs: FileSystem, target: Target, most_bytes: int) -> list[Part]:
    """None of what cannot be listed: whoever verifies it says why."""
    try:
        is_file = target.kind is TargetKind.FILE
        listing = SingleFile(fs, target.path, live=False).listing if is_file else list_partition(fs, target.path)
    except (OSError, NotALogError):
        return []
    return list(parts_of(listing, most_bytes, target.path.name if is_file else None)) if listing.format != "0.7" else []


def _part_verified(
    level: Level, store: StoreSettings, most_bytes: int, work: tuple[Part, tuple[Shown, ...]]
) -> KnownPart | None:
    """In a task: a part. What cannot be read is told by whoever verifies the whole, and so is what a tier lacks."""
    part, shown = work
    try:
        return verify_part(task_files(store, shown, lambda _: None), part, level, most_bytes)
    except OSError:
        return None


def counted(findings: Iterable[Finding]) -> VerifySummary:
    """How many findings there are of each severity."""
    count = dict.fromkeys(Severity, 0)
    for found in findings:
        count[found.severity] += 1
    return VerifySummary(errors=count[Severity.ERROR], warnings=count[Severity.WARNING], infos=count[Severity.INFO])


def summed(summaries: Iterable[VerifySummary]) -> VerifySummary:
    """What was looked at in all."""
    total = VerifySummary()
    for one in summaries:
        names = [f.name for f in fields(one) if f.name not in ("complete", "live")]
        counts = {name: getattr(total, name) + getattr(one, name) for name in names}
        total = VerifySummary(**counts, complete=total.complete and one.complete, live=total.live or one.live)
    return total
