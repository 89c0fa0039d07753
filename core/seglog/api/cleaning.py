"""Functions that delete records by a topic's cleanup policy: compaction and retention.

Each has a `plan_` function, which reports what would be done, takes no lock and changes nothing. The function itself
takes the log directory's lock. It raises LockedError while a broker runs, and RefusedError after an interrupted run.
"""

from __future__ import annotations

from typing import Unpack

from seglog.api.calling import public_verb
from seglog.operations import clean as cleaning
from seglog.operations import retain as retention
from seglog.operations.clean import CleaningArguments, CleaningKeywords, CleaningRequest
from seglog.operations.retain import RetentionArguments, RetentionKeywords, RetentionRequest
from seglog.operations.workspace import Location, local_paths_of, paths_of, request_of

# --- cleaning


@public_verb(CleaningRequest)
def plan_clean(*paths: Location, **given: Unpack[CleaningArguments]) -> list[cleaning.Outcome]:
    """Returns what `clean` would do now, exact to the byte. Takes the same arguments and changes nothing.

    The example of `clean` shows it.
    """
    named = tuple(paths_of(paths))
    work, keywords = request_of(given, CleaningKeywords, named)
    return list(cleaning.clean(work, CleaningRequest(named, **keywords), dry_run=True))


@public_verb(CleaningRequest)
def clean(*paths: Location, **given: Unpack[CleaningArguments]) -> list[cleaning.Outcome]:
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
    named = tuple(local_paths_of(paths))
    work, keywords = request_of(given, CleaningKeywords, named)
    return list(cleaning.clean(work, CleaningRequest(named, **keywords)))


# --- retention


@public_verb(RetentionRequest)
def plan_retain(*paths: Location, **given: Unpack[RetentionArguments]) -> list[retention.Outcome]:
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
    named = tuple(paths_of(paths))
    work, keywords = request_of(given, RetentionKeywords, named)
    return list(retention.retain(work, RetentionRequest(named, **keywords), dry_run=True))


@public_verb(RetentionRequest)
def retain(*paths: Location, **given: Unpack[RetentionArguments]) -> list[retention.Outcome]:
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
    named = tuple(local_paths_of(paths))
    work, keywords = request_of(given, RetentionKeywords, named)
    return list(retention.retain(work, RetentionRequest(named, **keywords)))
