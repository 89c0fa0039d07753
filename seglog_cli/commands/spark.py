"""`seglog spark`: the same work over all cores of a machine, or over a cluster."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from seglog.errors import ConfigError
from seglog.units import count_text
from seglog_cli.catalogue import COMMANDS
from seglog_cli.commands.clean import OutcomesShown, Rounds, cleaning_workspace
from seglog_cli.commands.diff import ComparedLevel, Copies, check_level, show_diff_summary, show_difference
from seglog_cli.commands.redact import ErasureOptions, redact_paths
from seglog_cli.commands.stats import Measures
from seglog_cli.commands.verify import LevelName, Live, verdict
from seglog_cli.exit_codes import ExitCode
from seglog_cli.failures import SkippedPartitions, UsageError
from seglog_cli.grouping import FindingsShown, Grouped
from seglog_cli.help_option import HelpOption
from seglog_cli.options import (
    CONTEXT,
    Directories,
    DryRun,
    MetadataDirectory,
    OptionGroup,
    OverridePolicy,
    Paths,
    command,
    labelled,
    one_of,
    option,
)
from seglog_cli.parameters import PlainCommand
from seglog_cli.selecting import Chosen, DifferenceLimit, Isolation, Wanted
from seglog_cli.session import Session
from seglog_cli.tiering import Tiers
from seglog_cli.views.findings import look, show_summary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from seglog.look.inspect.sizing import SizingRequest
    from seglog.scan.listing import PartitionListing

app = typer.Typer(help=COMMANDS["spark"], rich_markup_mode=None, context_settings=CONTEXT)

_KEYS_SHOWN = 20
_MOST_ERROR_BYTES = 64 << 10


@dataclass(frozen=True)
class Cluster(OptionGroup):
    """Where Spark runs."""

    master: Annotated[
        str | None,
        option("--master", "URL", "Spark's master, such as local[4] or yarn (default: all cores, or spark-submit's)."),
    ] = None
    conf: Annotated[list[str] | None, option("--conf", "KEY=VALUE", "A Spark setting; repeatable.")] = None

    @contextlib.contextmanager
    def started(self, session: Session, title: str) -> Iterator[tuple[SparkSession, Callable[[int, int], None]]]:
        """Yields a Spark session for the duration of a command, and a callback that shows its progress."""
        chosen = {"spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
        for text in self.conf or ():
            key, mark, value = text.partition("=")
            if not mark or not key:
                raise UsageError(f"--conf: {text!r} is not KEY=VALUE")
            chosen[key] = value
        loaded = sys.modules.get("pyspark.sql")
        was_running = loaded is not None and loaded.SparkSession.getActiveSession() is not None
        spark = _started(session, f"seglog {title}", self.master, chosen)
        try:
            with session.progress(title, None, "tasks") as progress:
                yield spark, lambda done, total: progress.update(done, total)
        finally:
            if not was_running:
                spark.stop()


@app.callback()
def group(show_help: HelpOption = False) -> None:
    """Verifies, measures, cleans, exports and compares logs with Spark, on all cores or on a cluster.

    This needs the extra spark (pip install '.[spark]' in seglog's clone) and Java 17 or later. On a cluster every
    executor needs seglog and must see the logs under the same paths, or as URLs of an object store. Credentials in this
    environment (AWS_ACCESS_KEY_ID and the like) are sent to the executors.
    """


@app.command("verify", cls=PlainCommand, context_settings=CONTEXT)
@command(urls=["paths"])
def verify(
    session: Session,
    paths: Paths,
    shown: FindingsShown,
    tiers: Tiers,
    level: LevelName = "semantic",
    live: Live = False,
    *,
    cluster: Cluster,
) -> int:
    """Verifies logs as `seglog verify` does, many partitions at a time.

    Findings, levels and exit codes are those of `seglog verify`.

    Examples:
      seglog spark verify --level crc /var/lib/kafka/data
      seglog spark verify --master yarn s3://backup/kafka
    """
    from seglog.scan.listing import resolve_paths
    from seglog.verification.verify import VerifyOptions

    chosen = VerifyOptions.of(level, live=live)
    session, paths = tiers.seen(session, paths)
    targets = resolve_paths(session.fs, paths)
    with cluster.started(session, "verify") as (spark, watch):
        from seglog_ask.spark import jobs

        report = jobs.verify(spark, targets, chosen, watch, seen=session.fs)
    tiers.hear(session, report.remarks)
    with Grouped(session, look(session.console), shown) as findings:
        for finding in report.findings:
            findings.add(finding)
    summary = report.summary
    code = tiers.code(verdict(summary), ExitCode.FOUND)
    show_summary(session.console, summary, int(code))
    return code


@app.command("stats", cls=PlainCommand, context_settings=CONTEXT)
@command(urls=["paths"])
def stats(
    session: Session,
    paths: Paths,
    tiers: Tiers,
    measures: Measures,
    cluster: Cluster,
) -> int:
    """Shows what logs hold, as `seglog stats` does, many partitions at a time.

    --sizing also shows how dirty each log is, the dedupe buffer that its keys need, and whether a cleaner keeps up.

    Examples:
      seglog spark stats --json /var/lib/kafka/data
      seglog spark stats --sizing --master yarn /mnt/broker*/data
    """
    from seglog.operations.stats import MeasuredDirectories, MeasuredPartition, PartitionStatistics
    from seglog.scan.listing import list_partition, resolve_paths

    measures.check(session)
    session, paths = tiers.seen(session, paths)
    targets = resolve_paths(session.fs, paths)
    unreadable = SkippedPartitions.among(session, targets)
    work = session.workspace("--config", "--set")
    partitions: list[MeasuredPartition] = []
    listings: list[PartitionListing] = []
    for partition in MeasuredDirectories(work, targets, unreadable.passing_over).partitions():
        with unreadable.passing_over(partition.directory):
            listings.append(list_partition(work.fs, partition.directory))
            partitions.append(partition)
    by_directory = {partition.directory: partition for partition in partitions}
    now_ms = session.clock.now_ms()

    def sizing_of(listing: PartitionListing) -> SizingRequest:
        return by_directory[listing.directory].sizing_request(now_ms, measures.write_rate)

    with cluster.started(session, "stats") as (spark, watch):
        from seglog_ask.spark import jobs

        measured = jobs.statistics(
            spark, listings, sizing_of=sizing_of if measures.sizing else None, watch=watch, seen=session.fs
        )
    for partition, contents in zip(partitions, measured, strict=True):
        measures.show(session, PartitionStatistics(contents.log, contents.sizing, partition.rounds))
        tiers.hear(session, contents.remarks)
    return tiers.code(unreadable.exit_code)


@app.command("redact", cls=PlainCommand, context_settings=CONTEXT)
@command()
def redact(
    session: Session,
    paths: Directories,
    erasure: ErasureOptions,
    metadata_dir: MetadataDirectory = None,
    dry_run: DryRun = False,
    *,
    cluster: Cluster,
) -> int:
    """Erases named records as `seglog redact` does, with the search spread over tasks.

    Plan, refusals, report and files are those of `seglog redact`. Tasks only read; the driver holds the locks and
    writes the segments with a hit. All executors must see the log directories under the same paths.

    Examples:
      seglog spark redact --dry-run --key customer-7 --replicas 1 /mnt/broker*/data
    """
    asked = erasure.asked(session, dry_run=dry_run)
    with cluster.started(session, "redact") as (spark, watch):
        from seglog_ask.spark.redacting import searching

        return redact_paths(session, paths, erasure, asked, metadata_dir, searching(spark, watch))


@app.command("clean", cls=PlainCommand, context_settings=CONTEXT)
@command(urls=["paths", "output"], only_with=["output"])
def clean(
    session: Session,
    paths: Directories,
    output: Annotated[
        Path | None, option("--output -o", "URL", "Clean into new objects below this prefix, and change no log.")
    ] = None,
    *,
    rounds: Rounds,
    override_policy: OverridePolicy = False,
    metadata_dir: MetadataDirectory = None,
    plan: Annotated[
        str,
        option(
            "--plan",
            "auto|directory|shuffle",
            "One task for each partition (directory), all tasks for each (shuffle), or by its size (auto).",
        ),
    ] = "auto",
    reducers: Annotated[
        int, option("--reducers", "N", "Share the keys among this many tasks (0: as many as the size needs).", least=0)
    ] = 0,
    cluster: Cluster,
) -> int:
    """Compacts logs as `seglog clean` does, byte for byte, over many tasks.

    Small partitions are cleaned side by side, with a task for each. A giant one is split: many tasks index its
    segments, reducers compare its keys, and many tasks rewrite its segments. Tasks write next to the log; the driver
    holds the lock, checks that nothing has changed, and swaps. A task that fails or runs twice does no harm. Every
    task has its own --dedupe-buffer-size. `seglog clean --dry-run` is the preview.

    With --output, the paths may be URLs, and the logs there stay as they are. Every named partition, and every
    compacted partition of a named log directory, is cleaned into new objects below that prefix, which must be new. One
    manifest commits all of them at the end; after an error nothing is committed. `seglog fetch` makes partitions of
    the committed logs.

    Examples:
      seglog spark clean --master yarn /mnt/kafka/data
      seglog spark clean --policy compact --output s3://backup/cleaned s3://backup/kafka/customers-0
      seglog spark clean --policy compact --plan shuffle /mnt/kafka/data/customers-0
    """
    one_of("--plan", plan, ("auto", "directory", "shuffle"))
    if reducers and plan == "directory":
        raise UsageError("--reducers is for --plan shuffle or auto: --plan directory has none")
    session, shown = Tiers().seen(session, paths) if output is not None else (session, paths)
    request, work = rounds.request(shown, override_policy, metadata_dir), cleaning_workspace(session)
    directories, view = request.directories(work), OutcomesShown(session)  # checked before Spark starts
    with cluster.started(session, "clean") as (spark, watch):
        from seglog_ask.spark import cleaning

        placement = cleaning.Placement(plan, reducers=reducers)  # type: ignore[arg-type]
        if output is None:
            with contextlib.closing(cleaning.clean(spark, work, directories, placement, watch)) as outcomes:
                for outcome in outcomes:
                    view.show(outcome)
        else:
            from seglog_ask.spark.cleaning_objects import Destination, clean_into

            to, tasks = Destination.of(paths, output), cleaning.SparkTasks(spark, placement, watch)
            for outcome in clean_into(tasks, to, work, shown, directories):
                view.show(outcome)
    view.raise_failure()
    return ExitCode.DONE


@app.command("export", cls=PlainCommand, context_settings=CONTEXT)
@command(urls=["paths"])
def export(
    session: Session,
    paths: Paths,
    output: Annotated[Path, option("--output -o", "FOLDER", "The folder to write; it must be empty or missing.")],
    chosen: Chosen,
    compression: Annotated[
        str, option("--compression", "zstd|snappy|gzip|none", "The codec of the Parquet files.")
    ] = "zstd",
    *,
    cluster: Cluster,
) -> None:
    """Writes records as Parquet, in folders topic=…/date=… that Spark, DuckDB and others read as columns.

    The date is the record's timestamp's, in UTC. Damage is an error, and then no output is left.

    Examples:
      seglog spark export -o /lake/orders /mnt/kafka/data/orders-*
      seglog spark export -o /lake/week --since -7d --isolation read_committed /mnt/kafka/data
    """
    selection = chosen.selection("read_uncommitted")
    one_of("--compression", compression, ("zstd", "snappy", "gzip", "none"))
    with cluster.started(session, "export") as (spark, watch):
        from seglog_ask.spark.exporting import export as export_job

        done = export_job(spark, paths, output, compression=compression, selection=selection, watch=watch)
    session.console.result(
        {"type": "export", "files": done.files, "rows": done.rows, "bytes": done.bytes},
        f"{output}: {count_text(done.rows, 'record')} in {count_text(done.files, 'file')}, {done.bytes} bytes",
    )


@app.command("latest", cls=PlainCommand, context_settings=CONTEXT)
@command(urls=["paths"])
def latest(
    session: Session,
    paths: Paths,
    output: Annotated[
        Path | None, option("--output -o", "FOLDER", "Write Parquet files into this folder, and show nothing.")
    ] = None,
    isolation: Isolation = None,
    limit: Annotated[int | None, option("--limit", "N", "Show at most N keys (default: 20).", least=1)] = None,
    *,
    cluster: Cluster,
) -> None:
    """Shows or writes the live value of each key, as a compacted log would hold it. Only committed records count.

    With --isolation read_uncommitted, records of aborted and open transactions count too.

    Examples:
      seglog spark latest -o /lake/customers /mnt/kafka/data/customers-*
    """
    from seglog.model import Isolation as Level

    level = labelled("--isolation", isolation or "read_committed", Level)
    if output is not None and limit is not None:
        raise UsageError("--limit is for showing keys: -o writes all of them")
    if output is not None:
        from seglog_ask.spark.exporting import require_empty

        require_empty(session.fs, output)
    with cluster.started(session, "latest") as (spark, watch):
        from seglog_ask.spark.latest import latest as latest_rows
        from seglog_ask.spark.tasks import remote_errors, watched

        rows = latest_rows(spark, paths, {"isolationLevel": level.label})
        with watched(spark, watch), remote_errors():
            if output is not None:
                rows.write.mode("append").parquet(str(output))
                return
            shown = rows.orderBy("topic", "partition", "offset").limit(limit or _KEYS_SHOWN).collect()
    for row in shown:
        fields = {name: _text(row[name]) for name in row.__fields__}
        place = f"{fields['topic']}-{fields['partition']} {fields['offset']}"
        session.console.result({"type": "latest", **fields}, f"{place} {fields['key']} {fields['value']}")


@app.command("diff", cls=PlainCommand, context_settings=CONTEXT)
@command(urls=["copies"])
def diff(
    session: Session,
    copies: Copies,
    wanted: Wanted,
    tiers: Tiers,
    level: ComparedLevel = "batches",
    limit: DifferenceLimit = None,
    *,
    cluster: Cluster,
) -> int:
    """Compares replicas as `seglog diff` does, many partitions at a time.

    Examples:
      seglog spark diff /mnt/broker1/data /mnt/broker2/data
    """
    if len(copies) < 2:
        raise UsageError("diff needs at least two copies")
    selection = check_level(level, wanted)
    session, copies = tiers.seen(session, copies)
    with cluster.started(session, "diff") as (spark, watch):
        from seglog_ask.spark import jobs

        found = jobs.diff(
            spark,
            copies,
            level,  # type: ignore[arg-type]
            selection=selection,
            watch=watch,
            seen=session.fs,
        )
    for one in found:
        tiers.hear(session, one.remarks)
        for difference in one.differences[:limit]:
            show_difference(session.console, difference, one.partition, one.copies)
    shown = sum(len(one.differences[:limit]) for one in found)
    cut = sum(len(one.differences) > limit for one in found) if limit is not None else 0
    code = ExitCode.FOUND if shown or cut else tiers.code(ExitCode.DONE)
    show_diff_summary(session.console, len(found), shown, cut, int(code))
    return code


@app.command("conf", cls=PlainCommand, context_settings=CONTEXT)
@command()
def conf(
    session: Session,
    cores: Annotated[int, option("--cores", "N", "The cores of each executor.", least=1)] = 4,
) -> None:
    """Prints the settings that a cluster needs for seglog's jobs, as lines of spark-defaults.conf.

    Examples:
      seglog spark conf --cores 8 >> $SPARK_HOME/conf/spark-defaults.conf
    """
    from seglog_ask.spark.session import configuration

    for setting in configuration(cores):
        if session.as_json:
            row = {"type": "setting", "key": setting.key, "value": setting.value, "reason": setting.reason}
            session.console.json(row)
        else:
            session.console.line(f"# {setting.reason}")
            session.console.line(f"{setting.key} {setting.value}")


def _started(session: Session, name: str, master: str | None, settings: dict[str, str]) -> SparkSession:
    """Starts the session. Shows the JVM's stderr with -v; otherwise only its first error if Spark does not start."""
    from seglog_ask.spark.session import session as spark_session

    if session.console.verbose:
        return spark_session(name, master, settings)
    with _stderr_aside() as file:
        try:
            return spark_session(name, master, settings)
        except ConfigError as error:
            written = os.pread(file.fileno(), _MOST_ERROR_BYTES, 0).decode("utf-8", "replace")
            lines = map(str.strip, written.splitlines())
            errors = [line for line in lines if "Exception" in line or "Error" in line]
            raise ConfigError(": ".join([str(error), *errors[:1]])) from error


@contextlib.contextmanager
def _stderr_aside() -> Iterator[BinaryIO]:
    """Makes stderr a temporary file while open: a JVM writes much there that is not ours, as long as it lives."""
    sys.stderr.flush()
    number = sys.__stderr__.fileno() if sys.__stderr__ is not None else 2
    with tempfile.TemporaryFile() as file:
        ours = os.dup(number)
        os.dup2(file.fileno(), number)
        try:
            yield file
        finally:
            sys.stderr.flush()
            os.dup2(ours, number)
            os.close(ours)


def _text(value: object) -> object:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "backslashreplace")
    return value if value is None or isinstance(value, int) else str(value)
