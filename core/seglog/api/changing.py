"""Functions that change logs: cleaning, retention, repair, recovery, truncation, conversion.

Each but `undo` and `convert` has a `plan_` function, which reports what would be done. It takes no lock and changes
nothing. The function itself takes the log directory's lock, raises LockedError while a broker runs, and first finishes
or undoes an interrupted run as the command line does. `clean` and `retain` raise RefusedError instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Unpack

from seglog.arguments import flag, instance, integer
from seglog.cleaner.round import Strategy
from seglog.configuration.settings import DirectorySettings
from seglog.format.filenames import parse_topic_partition
from seglog.log.loader import RecoveryReport
from seglog.model import Compression, member
from seglog.operations import clean as cleaning
from seglog.operations import repair as repairing
from seglog.operations import retain as retention
from seglog.operations.clean import Cleaned, CleaningFailure, Skipped
from seglog.operations.convert import Converted, ConvertOptions, convert_to, convertible
from seglog.operations.keeping import Keeper, Truncated
from seglog.operations.recover import RecoveryOptions
from seglog.operations.recover import recover as recover_target
from seglog.operations.repair import PlannedRepair, Repaired
from seglog.operations.retain import Freed, FreeSpace, Retained, RetentionFailure, RetentionRequest
from seglog.operations.undo import named_run, remember_run
from seglog.operations.undo import undo as undo_run
from seglog.operations.workspace import (
    CommonArguments,
    Location,
    ReadArguments,
    Sources,
    Workspace,
    local_path,
    local_paths_of,
    looked_at,
    optional_integer,
    optional_path,
    paths_of,
    policy_misuse,
    settings_of,
    targets_of,
    text_list,
    warn,
    warn_of_runs,
    workspace_of,
)
from seglog.remote.routing import parse_location
from seglog.repairs.plan import Policy, RepairOptions, RepairPart
from seglog.runs.journal import RunRecord
from seglog.scan.listing import Target, log_directory_of, resolve_path
from seglog.storage import links
from seglog.units import parse_size

RepairPolicy = Literal["smallest-loss", "truncate", "excise"]
CleanOutcome = Cleaned | Skipped | CleaningFailure
RetainOutcome = Retained | RetentionFailure | Freed


# --- cleaning


def plan_clean(
    *paths: Location,
    policy: str | None = None,
    strategy: str = "offset",
    roll: bool = False,
    expire: bool = False,
    override_policy: bool = False,
    metadata_directory: Location | None = None,
    **common: Unpack[CommonArguments],
) -> list[CleanOutcome]:
    """Returns what `clean` would do now, exact to the byte. Takes the same arguments and changes nothing."""
    sources = _sources({"cleanup.policy": policy}, override_policy, metadata_directory)
    return _cleaned(common, paths, sources, strategy, roll=roll, expire=expire, dry_run=True)


def clean(
    *paths: Location,
    policy: str | None = None,
    strategy: str = "offset",
    roll: bool = False,
    expire: bool = False,
    override_policy: bool = False,
    metadata_directory: Location | None = None,
    **common: Unpack[CommonArguments],
) -> list[CleanOutcome]:
    """Compacts logs as Kafka's log cleaner does.

    A partition directory is cleaned whatever its dirty ratio. In a log directory, the partitions are cleaned that a
    broker would clean now. Returns one result per partition: Cleaned, Skipped, or CleaningFailure, which leaves the
    partition unchanged.

    A partition is cleaned only if its cleanup.policy is known to include compact, from `policy`, the configuration or
    the cluster's metadata (`metadata_directory`, if it is in another log directory). `override_policy` allows a policy
    that contradicts the cluster. `strategy` is "offset", "timestamp" or "header:NAME" (KIP-280). `roll` also cleans the
    active segment. `expire` removes tombstones and markers older than delete.retention.ms in this round.

    Raises, before anything changes: RefusedError for a named partition that must not be compacted, NotALogError, and
    ConfigError for a bad configuration or strategy. Raises LockedError at a locked log directory; those before it have
    been cleaned.

    >>> import tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     with seglog.open_log(directory + "/t-0", create=True) as log:
    ...         for value in (b"old", b"new"):
    ...             info = log.append([seglog.Record(value, key=b"k", timestamp=1000)])
    ...     (plan,) = seglog.plan_clean(directory + "/t-0", policy="compact", roll=True)
    ...     (done,) = seglog.clean(directory + "/t-0", policy="compact", roll=True)
    ...     print(plan.result.bytes_written == done.result.bytes_written, done.result.stats.reasons()["records_kept"])
    ...     with seglog.open_log(directory + "/t-0") as log:
    ...         [record.value for record in log.records()]
    True 1
    [b'new']
    """
    sources = _sources({"cleanup.policy": policy}, override_policy, metadata_directory)
    return _cleaned(common, paths, sources, strategy, roll=roll, expire=expire, dry_run=False)


def _cleaned(
    common: CommonArguments,
    paths: Sequence[Location],
    sources: Sources,
    strategy: str,
    *,
    roll: bool,
    expire: bool,
    dry_run: bool,
) -> list[CleanOutcome]:
    work = workspace_of(common)
    targets = targets_of(work, paths if dry_run else local_paths_of(paths))
    _check_policy(sources, cleaning.POLICIES, targets)
    order = cleaning.CleaningOrder.of(
        targets,
        lambda path: settings_of(work, path, sources),
        strategy=Strategy.parse(instance("strategy", strategy, str, "text")),
        roll=flag("roll", roll),
        expire=flag("expire", expire),
        threads=work.threads,
    )
    done: list[CleanOutcome] = []
    try:
        done += cleaning.clean(work.fs, targets, order.settings.__getitem__, work.clock, order.options, dry_run=dry_run)
    finally:
        warn(cleaning.keep_history(work, done))
    return done


# --- retention


def plan_retain(
    *paths: Location,
    retention_ms: int | None = None,
    retention_bytes: int | None = None,
    free: int | str | None = None,
    policy: str | None = None,
    override_policy: bool = False,
    metadata_directory: Location | None = None,
    **common: Unpack[CommonArguments],
) -> list[RetainOutcome]:
    """Returns what `retain` would delete now, and why every other segment stays. Changes nothing."""
    sources = _sources(_rules(retention_ms, retention_bytes, policy), override_policy, metadata_directory)
    ruled = retention_ms is not None or retention_bytes is not None
    return _retained(common, paths, sources, RetentionRequest(True, ruled, _space(free)))


def retain(
    *paths: Location,
    retention_ms: int | None = None,
    retention_bytes: int | None = None,
    free: int | str | None = None,
    policy: str | None = None,
    delay_ms: int | None = None,
    override_policy: bool = False,
    metadata_directory: Location | None = None,
    **common: Unpack[CommonArguments],
) -> list[RetainOutcome]:
    """Deletes old segments as a broker does: below the log start, over `retention_bytes`, older than `retention_ms`.

    Returns one result per partition: Retained or RetentionFailure. A rule applies only if it is given here or in the
    configuration. Files stay as `.deleted` for `delay_ms` (default: file.delete.delay.ms), or go at once if it is 0.

    With `free`, deletes the oldest closed segments until that many bytes are free on the disk, and returns Freed. It is
    a number of bytes or text as on the command line: "50GB", or "+10GB" for that much more than now.

    Raises, before anything changes: RefusedError if retention contradicts the cluster's configuration and
    `override_policy` is not set, NotALogError, ConfigError. Raises LockedError at a locked log directory; those before
    it are done.

    >>> import tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     with seglog.open_log(directory + "/t-0", create=True) as log:
    ...         for _ in range(3):
    ...             info = log.append([seglog.Record(b"value", timestamp=1000)])
    ...             segment = log.roll()
    ...     (plan,) = seglog.plan_retain(directory + "/t-0", retention_ms=60_000)
    ...     (done,) = seglog.retain(directory + "/t-0", retention_ms=60_000)
    ...     [[gone.base_offset for gone in each.plan.removed] for each in (plan, done)]
    [[0, 1, 2], [0, 1, 2]]
    """
    sources = _sources(_rules(retention_ms, retention_bytes, policy), override_policy, metadata_directory)
    space, delay = _space(free), optional_integer("delay_ms", delay_ms, 0)
    ruled = retention_ms is not None or retention_bytes is not None
    if space is not None and (ruled or delay):
        raise ValueError("free removes files at once: do not give retention_ms, retention_bytes or delay_ms with it")
    request = RetentionRequest(False, ruled, space, delay if space is None else 0)
    return _retained(common, paths, sources, request)


def _sources(rules: dict[str, object], override_policy: bool, metadata_directory: Location | None) -> Sources:
    return Sources(rules, flag("override_policy", override_policy), optional_path(metadata_directory))


def _rules(retention_ms: int | None, retention_bytes: int | None, policy: str | None) -> dict[str, object]:
    return {
        "retention.ms": optional_integer("retention_ms", retention_ms),
        "retention.bytes": optional_integer("retention_bytes", retention_bytes),
        "cleanup.policy": policy,
    }


def _space(free: int | str | None) -> FreeSpace | None:
    if free is None:
        return None
    more = isinstance(free, str) and free.startswith("+")
    size = parse_size(free.removeprefix("+")) if isinstance(free, str) else integer("free", free)
    if size <= 0:
        raise ValueError(f"free takes a size above 0, not {free}")
    return FreeSpace(size, more)


def _retained(
    common: CommonArguments, paths: Sequence[Location], sources: Sources, request: RetentionRequest
) -> list[RetainOutcome]:
    work = workspace_of(common)
    targets = targets_of(work, paths if request.dry_run else local_paths_of(paths))
    if request.dry_run:
        warn_of_runs(work, [target.path for target in targets])
    _check_policy(sources, retention.POLICIES, targets)
    settings = {path: settings_of(work, path, sources) for path in dict.fromkeys(map(log_directory_of, targets))}
    return list(retention.retain(work.fs, targets, settings.__getitem__, work.clock, request))


# --- repair


def plan_repair(
    *paths: Location,
    policy: RepairPolicy = "smallest-loss",
    only: str | Sequence[str] | None = None,
    quarantine: Location | None = None,
    **common: Unpack[CommonArguments],
) -> list[PlannedRepair]:
    """Returns what `repair` would do now, one plan per log directory. Takes the same arguments."""
    work, options = workspace_of(common), _repair_options(policy, only, quarantine)
    located = paths_of(paths)
    warn_of_runs(work, located)
    jobs = repairing.repair_jobs(work.fs, located)
    return [repairing.plan_job(work, job, settings_of(work, job.log_directory), options) for job in jobs]


def repair(
    *paths: Location,
    policy: RepairPolicy = "smallest-loss",
    only: str | Sequence[str] | None = None,
    quarantine: Location | None = None,
    **common: Unpack[CommonArguments],
) -> list[Repaired]:
    """Verifies partitions or log directories and repairs what is wrong, as `seglog verify --repair` does.

    Returns one result per log directory. `policy` is "smallest-loss" (remove only the damaged ranges), "excise" (the
    same, but remove batches that are out of order, too) or "truncate" (cut the log at the first damage). `only` limits
    the repair to parts: log, index, snapshot, epochs, checkpoint; one text or a list. Removed data goes to the
    quarantine first (default: beside the log directory), and `undo(outcome.run)` restores it. Raises LockedError,
    NotALogError, and RefusedError if the disk lacks room.

    >>> import tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as place:
    ...     import os; os.mkdir(place + "/logs")
    ...     path = place + "/logs/t-0"
    ...     with seglog.open_log(path, create=True) as log:
    ...         for value in (b"first", b"second", b"third"):
    ...             info = log.append([seglog.Record(value, timestamp=1000)])
    ...     with open(path + "/00000000000000000000.log", "r+b") as file:
    ...         position = file.seek(100)
    ...         written = file.write(b"XXX")
    ...     (plan,) = seglog.plan_repair(path)
    ...     [row["action"] for row in plan.plan.rows()][:1]
    ...     (done,) = seglog.repair(path)
    ...     with seglog.open_log(path) as log:
    ...         print([record.value for record in log.records()])
    ...     seglog.undo(done.outcome.run).state.value
    ['excise']
    [b'first', b'third']
    'undone'
    """
    work, options = workspace_of(common), _repair_options(policy, only, quarantine)
    done = []
    for job in repairing.repair_jobs(work.fs, local_paths_of(paths)):
        one = repairing.repair_job(work, job, settings_of(work, job.log_directory), options)
        if one.outcome.run is not None:
            warn(remember_run(work.fs, work.environment, one.outcome.run.folder))
        done.append(one)
    return done


def undo(
    run: RunRecord | Location, *, quarantine: Location | None = None, **common: Unpack[CommonArguments]
) -> RunRecord:
    """Undoes a repair, recovery or truncation: restores every file. Returns the run's record, now in state "undone".

    `run` is the run's record, folder or name; a name is looked up in `quarantine` and in the usual places. Raises
    RefusedError if a file has changed since the run, NotALogError for an unknown name, LockedError while a broker runs.
    The examples of `repair`, `recover` and `truncate` show it.
    """
    work = workspace_of(common)
    if not isinstance(run, RunRecord):
        run = named_run(work.fs, work.environment, str(parse_location(run)), optional_path(quarantine))
    return undo_run(work.fs, run)


def _repair_options(policy: str, only: str | Sequence[str] | None, quarantine: Location | None) -> RepairOptions:
    names = text_list("only", only)
    parts = frozenset(RepairPart) if names is None else frozenset(member(RepairPart, name) for name in names)
    return RepairOptions(member(Policy, policy), parts, optional_path(quarantine))


# --- recovery and truncation


def plan_recover(
    path: Location, *, recovery_point: int | None = None, **common: Unpack[CommonArguments]
) -> list[RecoveryReport]:
    """Returns what `recover` would do now. Changes nothing."""
    work, target, settings = _one(common, path)
    warn_of_runs(work, [target.path])
    options = RecoveryOptions(optional_integer("recovery_point", recovery_point, 0), dry_run=True)
    return list(recover_target(work.fs, work.clock, target, settings, options))


def recover(
    path: Location,
    *,
    recovery_point: int | None = None,
    keep: bool = True,
    quarantine: Location | None = None,
    **common: Unpack[CommonArguments],
) -> list[RecoveryReport]:
    """Recovers a partition, or all of a log directory, as a broker does that starts after a crash.

    Returns one report per partition. Reading begins at the offset `recovery_point`, or at the checkpointed one.
    Everything after the first damage is cut off; `repair` loses less. With `keep`, the data goes to the quarantine
    first, and `undo(report.run)` restores it. Raises LockedError, NotALogError, CorruptionError if a broker would not
    start.

    >>> import tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as place:
    ...     import os; os.mkdir(place + "/logs")
    ...     path = place + "/logs/t-0"
    ...     with seglog.open_log(path, create=True) as log:
    ...         for value in (b"first", b"second", b"third"):
    ...             info = log.append([seglog.Record(value, timestamp=1000)])
    ...     with open(path + "/00000000000000000000.log", "r+b") as file:
    ...         position = file.seek(100)
    ...         written = file.write(b"XXX")
    ...     (plan,) = seglog.plan_recover(path, recovery_point=0)
    ...     (done,) = seglog.recover(path, recovery_point=0)
    ...     plan.log_end_offset, done.log_end_offset, done.truncated_bytes
    ...     seglog.undo(done.run).state.value
    (1, 1, 147)
    'undone'
    """
    work, target, settings = _one(common, local_path(path))
    keeper = Keeper(work.fs, work.clock, settings, "recover", optional_path(quarantine))
    point = optional_integer("recovery_point", recovery_point, 0)
    options = RecoveryOptions(point, on_loss=keeper.on_loss if flag("keep", keep) else None)
    done = list(recover_target(work.fs, work.clock, target, settings, options))
    for report in done:
        if report.run is not None:
            warn(remember_run(work.fs, work.environment, report.run))
    return done


def plan_truncate(
    partition: Location,
    *,
    to_offset: int | None = None,
    to_time_ms: int | None = None,
    **common: Unpack[CommonArguments],
) -> Truncated:
    """Returns what `truncate` would do now. Changes nothing."""
    return _truncated(common, partition, to_offset, to_time_ms, None, dry_run=True, keep=True)


def truncate(
    partition: Location,
    *,
    to_offset: int | None = None,
    to_time_ms: int | None = None,
    keep: bool = True,
    quarantine: Location | None = None,
    **common: Unpack[CommonArguments],
) -> Truncated:
    """Cuts off the end of a log in whole batches, from `to_offset` or `to_time_ms` on.

    `to_time_ms` (epoch milliseconds) cuts at the first record with that timestamp or a later one. With `keep`, the data
    goes to the quarantine first, and `undo(done.run)` restores it. A log that was not closed properly is recovered
    first, even if there is nothing to cut. Raises ValueError unless exactly one of the two is given,
    OffsetOutOfRangeError for an offset below the log start, LockedError, NotALogError.

    >>> import tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as place:
    ...     import os; os.mkdir(place + "/logs")
    ...     path = place + "/logs/t-0"
    ...     with seglog.open_log(path, create=True) as log:
    ...         for i in range(3):
    ...             info = log.append([seglog.Record(b"value", timestamp=1000)])
    ...     done = seglog.truncate(path, to_offset=1)
    ...     (done.cut.end_before, done.cut.end_offset), seglog.undo(done.run).state.value
    ((3, 1), 'undone')
    """
    return _truncated(common, partition, to_offset, to_time_ms, quarantine, dry_run=False, keep=keep)


def _truncated(
    common: CommonArguments,
    partition: Location,
    to_offset: int | None,
    to_time_ms: int | None,
    quarantine: Location | None,
    *,
    dry_run: bool,
    keep: bool,
) -> Truncated:
    offset, moment = optional_integer("to_offset", to_offset, 0), optional_integer("to_time_ms", to_time_ms)
    if (offset is None) == (moment is None):
        raise ValueError("give to_offset or to_time_ms: it says where to cut")
    work, path = workspace_of(common), local_path(partition)
    settings = settings_of(work, links.resolve(path).parent)
    keeper = Keeper(work.fs, work.clock, settings, "truncate", optional_path(quarantine))
    done = keeper.truncate(path, offset, moment, dry_run=dry_run, keep=flag("keep", keep))
    if done.run is not None:
        warn(remember_run(work.fs, work.environment, done.run.folder))
    return done


# --- conversion


def convert(
    partition: Location,
    output: Location,
    *,
    magic: Literal[0, 1, 2] = 2,
    codec: Compression | str | None = None,
    **common: Unpack[ReadArguments],
) -> Converted:
    """Rewrites a partition in another record format or codec into the new partition directory `output`.

    Offsets and timestamps stay, and the source is only read. `magic` is the record format, 0, 1 or 2. `codec` is none,
    gzip, snappy, lz4 or zstd; None keeps each batch's codec. Raises CorruptRecordError for damage, UnsupportedError for
    data that the format cannot hold, RefusedError if `output` holds something.

    >>> import tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     with seglog.open_log(directory + "/t-0", create=True) as log:
    ...         info = log.append([seglog.Record(b"value" * 100, timestamp=1000)])
    ...     done = seglog.convert(directory + "/t-0", directory + "/packed-0", codec="zstd")
    ...     done.batches_written, done.bytes_written < done.bytes_read
    (1, True)
    """
    if magic not in (0, 1, 2):
        raise ValueError(f"magic: {magic!r} is not 0, 1 or 2")
    options = ConvertOptions(magic, None if codec is None else member(Compression, codec))
    target = links.resolve(local_path(output))
    work, (source,) = looked_at(common, [partition])
    if parse_topic_partition(target.name) is None:
        raise ValueError(f"output: {target.name} is not of the form topic-partition")
    listing = convertible(work.fs, source)
    settings = settings_of(work, target.parent)
    return convert_to(work.fs, work.clock, listing, target, options, settings)[0]


# --- shared


def _one(common: CommonArguments, path: Location) -> tuple[Workspace, Target, DirectorySettings]:
    work = workspace_of(common)
    target = resolve_path(work.fs, parse_location(path))
    return work, target, settings_of(work, log_directory_of(target))


def _check_policy(sources: Sources, policies: Sequence[str], targets: Sequence[Target]) -> None:
    problem = policy_misuse("policy", sources.chosen["cleanup.policy"], policies, targets)
    if problem:
        raise ValueError(problem)
