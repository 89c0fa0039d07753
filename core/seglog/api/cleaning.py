"""Functions that delete records by a topic's cleanup policy: compaction and retention.

Each has a `plan_` function, which reports what would be done, takes no lock and changes nothing. The function itself
takes the log directory's lock. It raises LockedError while a broker runs, and RefusedError after an interrupted run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from seglog.api.calling import public
from seglog.arguments import flag, instance, integer, within
from seglog.cleaner.round import Strategy
from seglog.kafka_version import SPOKEN_FOR, KafkaVersion
from seglog.layout import INT64_MAX
from seglog.operations import clean as cleaning
from seglog.operations import retain as retention
from seglog.operations.clean import Cleaned, CleaningFailure, Skipped
from seglog.operations.retain import Freed, FreeSpace, Retained, RetentionFailure, RetentionRequest
from seglog.operations.workspace import (
    CommonArguments,
    Location,
    Sources,
    local_paths_of,
    optional_duration,
    optional_path,
    optional_size,
    policy_misuse,
    settings_of,
    targets_of,
    warn,
    warn_of_runs,
    workspace_of,
)
from seglog.scan.listing import Target, log_directory_of
from seglog.units import parse_size

CleanOutcome = Cleaned | Skipped | CleaningFailure
RetainOutcome = Retained | RetentionFailure | Freed


# --- cleaning


@public
def plan_clean(
    *paths: Location,
    policy: str | None = None,
    strategy: str = "offset",
    roll: bool = False,
    expire: bool = False,
    override_policy: bool = False,
    metadata_directory: Location | None = None,
    kafka_version: str = str(SPOKEN_FOR),
    **common: Unpack[CommonArguments],
) -> list[CleanOutcome]:
    """Returns what `clean` would do now, exact to the byte. Takes the same arguments and changes nothing.

    >>> import tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     with seglog.open_log(directory + "/t-0", create=True) as log:
    ...         for value in (b"old", b"new"):
    ...             info = log.append([seglog.Record(value, key=b"k", timestamp=1000)])
    ...     (plan,) = seglog.plan_clean(directory + "/t-0", policy="compact", roll=True)
    ...     plan, plan.result.stats.reasons()["records_superseded"]
    (<Cleaned t-0: planned, offsets 0 to 2, 144 bytes become 72>, 1)
    """
    sources = _sources({"cleanup.policy": policy}, override_policy, metadata_directory)
    return _cleaned(common, paths, sources, (strategy, kafka_version), roll=roll, expire=expire, dry_run=True)


@public
def clean(
    *paths: Location,
    policy: str | None = None,
    strategy: str = "offset",
    roll: bool = False,
    expire: bool = False,
    override_policy: bool = False,
    metadata_directory: Location | None = None,
    kafka_version: str = str(SPOKEN_FOR),
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
    `kafka_version` chooses the Kafka whose files a round writes: 4.4 keeps fewer empty batches than 4.3.

    Raises, before anything changes: RefusedError for a named partition that must not be compacted, NotALogError, and
    ConfigError for a bad configuration, strategy or version. Raises LockedError at a locked log directory; those before
    it have been cleaned.

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
    return _cleaned(common, paths, sources, (strategy, kafka_version), roll=roll, expire=expire, dry_run=False)


def _cleaned(
    common: CommonArguments,
    paths: Sequence[Location],
    sources: Sources,
    choices: tuple[str, str],
    *,
    roll: bool,
    expire: bool,
    dry_run: bool,
) -> list[CleanOutcome]:
    work = workspace_of(common)
    targets = targets_of(work, paths if dry_run else local_paths_of(paths))
    _check_policy(sources, cleaning.POLICIES, targets)
    strategy, kafka_version = choices
    order = cleaning.CleaningOrder.of(
        targets,
        lambda path: settings_of(work, path, sources),
        strategy=Strategy.parse(instance("strategy", strategy, str, "text")),
        roll=flag("roll", roll),
        expire=flag("expire", expire),
        threads=work.threads,
        kafka=KafkaVersion.parse(instance("kafka_version", kafka_version, str, "text")),
    )
    done: list[CleanOutcome] = []
    try:
        done += cleaning.clean(work.fs, targets, order.settings.__getitem__, work.clock, order.options, dry_run=dry_run)
    finally:
        warn(cleaning.keep_history(work, done))
    return done


# --- retention


@public
def plan_retain(
    *paths: Location,
    retention_ms: int | str | None = None,
    retention_bytes: int | str | None = None,
    free: int | str | None = None,
    policy: str | None = None,
    override_policy: bool = False,
    metadata_directory: Location | None = None,
    **common: Unpack[CommonArguments],
) -> list[RetainOutcome]:
    """Returns what `retain` would delete now, and why every other segment stays. Changes nothing.

    >>> import tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     with seglog.open_log(directory + "/t-0", create=True) as log:
    ...         for _ in range(2):
    ...             info = log.append([seglog.Record(b"value", timestamp=1000)])
    ...             segment = log.roll()
    ...     (plan,) = seglog.plan_retain(directory + "/t-0", retention_bytes=1)
    ...     for each in plan.plan.segments:
    ...         print(each.base_offset, each.removed, each.reason)
    0 True the log is 145 bytes over retention.bytes 1
    1 False without it 0 bytes would be left, less than retention.bytes 1; no retention.ms
    2 False the last segment, and empty
    """
    sources = _sources(_rules(retention_ms, retention_bytes, policy), override_policy, metadata_directory)
    ruled = retention_ms is not None or retention_bytes is not None
    return _retained(common, paths, sources, RetentionRequest(True, ruled, _space(free)))


@public
def retain(
    *paths: Location,
    retention_ms: int | str | None = None,
    retention_bytes: int | str | None = None,
    free: int | str | None = None,
    policy: str | None = None,
    delay_ms: int | str | None = None,
    override_policy: bool = False,
    metadata_directory: Location | None = None,
    **common: Unpack[CommonArguments],
) -> list[RetainOutcome]:
    """Deletes old segments as a broker does: below the log start, over `retention_bytes`, older than `retention_ms`.

    Returns one result per partition: Retained or RetentionFailure. A rule applies only if it is given here or in the
    configuration. Durations are milliseconds or text ("7d"), sizes bytes or text ("1GiB"). Files stay as `.deleted` for
    `delay_ms` (default: file.delete.delay.ms), or go at once if it is 0.

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
    space, delay = _space(free), optional_duration("delay_ms", delay_ms, 0)
    ruled = retention_ms is not None or retention_bytes is not None
    if space is not None and (ruled or delay):
        raise ValueError("free removes files at once: do not give retention_ms, retention_bytes or delay_ms with it")
    request = RetentionRequest(False, ruled, space, delay if space is None else 0)
    return _retained(common, paths, sources, request)


def _sources(rules: dict[str, object], override_policy: bool, metadata_directory: Location | None) -> Sources:
    return Sources(
        rules, flag("override_policy", override_policy), optional_path("metadata_directory", metadata_directory)
    )


def _rules(retention_ms: int | str | None, retention_bytes: int | str | None, policy: str | None) -> dict[str, object]:
    return {
        "retention.ms": optional_duration("retention_ms", retention_ms),
        "retention.bytes": optional_size("retention_bytes", retention_bytes),
        "cleanup.policy": policy,
    }


def _space(free: int | str | None) -> FreeSpace | None:
    if free is None:
        return None
    more = isinstance(free, str) and free.startswith("+")
    try:
        size = parse_size(free.removeprefix("+")) if isinstance(free, str) else integer("free", free)
    except ValueError as error:
        raise ValueError(f"free: {error}") from None
    if size <= 0:
        raise ValueError(f"free takes a size above 0, not {free}")
    return FreeSpace(within("free", size, 1, INT64_MAX), more)


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


def _check_policy(sources: Sources, policies: Sequence[str], targets: Sequence[Target]) -> None:
    problem = policy_misuse("policy", sources.chosen["cleanup.policy"], policies, targets)
    if problem:
        raise ValueError(problem)
