"""`seglog export`: writes a partition's records as JSON lines, CSV or Parquet."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from seglog.units import count_text
from seglog_cli.exit_codes import ExitCode
from seglog_cli.failures import UsageError
from seglog_cli.options import Replace, argument, command, flag, one_of, option
from seglog_cli.selecting import BytesAs, Decode, RecordLimit, Searched, require_decoders, wants_base64
from seglog_cli.session import Session
from seglog_cli.tiering import Tiers
from seglog_cli.valuing import ShownAs, tell_values
from seglog_cli.views.findings import finding_text

if TYPE_CHECKING:
    from seglog.scan.listing import Target
    from seglog.verification.findings import Finding

FORMATS = ("jsonl", "csv", "parquet")
EXTENSIONS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".csv": "csv", ".parquet": "parquet"}


@command(urls=["path"])
def run(
    session: Session,
    path: Annotated[Path, argument("PATH", "A partition directory, LOGDIR/TOPIC, or one .log file.")],
    output: Annotated[Path, option("--output -o", "FILE", "The file to write; - is standard output.")],
    wanted: Searched,
    shown_as: ShownAs,
    format_name: Annotated[
        str | None, option("--format", "jsonl|csv|parquet", "The format of FILE (default: by its extension).")
    ] = None,
    bytes_as: BytesAs = "auto",
    decode: Decode = False,
    csv_safe: Annotated[
        bool, flag("--csv-safe", "In CSV, put ' before cells that a spreadsheet would run as a formula.")
    ] = False,
    replace: Replace = False,
    limit: RecordLimit = None,
    *,
    tiers: Tiers,
) -> int:
    """Writes the records of a partition or topic to a file.

    LOGDIR/TOPIC exports all partitions of a topic, in order of their numbers; each record names its partition.

    JSON lines have the form that `dump --records` writes and `append` reads.

    CSV has a header line. Null is an empty field, and the empty string a quoted one; keys and values are written as
    they are. A spreadsheet runs a cell that begins with =, +, -, @, a tab or a line end as a formula. --csv-safe puts
    an apostrophe before such a cell; a program that reads the file must remove it.

    Parquet has typed columns and binary keys and values. It needs the extra arrow (pip install '.[arrow]' in seglog's
    clone).

    Records of aborted transactions are written too, unless --isolation is read_committed; transaction markers are not.
    Damage is reported on standard error and skipped; the exit code is then 1.

    With offsets or times only that part of the log is read, as the indexes show it; damage elsewhere is not seen, and
    --until ends after half a MiB of later records.

    --value-as and --key-as write values and keys as what they are: numbers, JSON, or by the schemas of a registry,
    whose topic _schemas-0 beside the log suffices. CSV then has the values as text, and columns for the schema and for
    the reason why a value is not decoded. Parquet has these too, and for a topic's Avro or Protobuf the columns with
    types that sql has (structs, lists, decimal numbers, times); value_bytes has what is not decoded, or not wholly.
    Avro, Protobuf, MessagePack and CBOR need the extra schemas (pip install '.[schemas]' in seglog's clone).

    --decode writes records of internal topics by what the topic's name says, as seglog read does: Kafka's own as
    kafka-dump-log's decoders do, MirrorMaker's, Connect's, the schema registry's and those of Streams. In JSON, keys
    and values are then objects. --value-as kafka:KIND says what a topic of another name holds.

    The file gets its name when it is complete. If FILE is a symbolic link that you or root own, its target is written
    or replaced. Links of other users, directories, devices and pipes are errors, and so is a file of Kafka: --replace
    never takes a log.

    Examples:
      seglog export orders-lz4-0 -o orders.jsonl
      seglog export customers-0 -o customers.csv --since 2026-01-01T00:00:00Z --bytes base64
      seglog export orders-none-0 -o - --format csv
      seglog export kafka-logs/orders -o orders.parquet
    """
    from seglog_ask.operations.export import exported_partitions, with_types
    from seglog_ask.table.engines.export import ExportFormat, ExportOptions, FileSink, export

    to_stdout = _is_standard_output(output)
    if format_name is None and output.suffix not in EXTENSIONS:
        raise UsageError(f"export: give --format {', '.join(FORMATS)}: {output} has no extension that names it")
    chosen = one_of("--format", EXTENSIONS[output.suffix] if format_name is None else format_name, FORMATS)
    as_base64 = wants_base64(bytes_as)
    if csv_safe and chosen != "csv":
        raise UsageError(f"--csv-safe is for CSV, and this is {chosen}")
    if to_stdout and chosen == "parquet" and session.console.stdout_is_terminal:
        raise UsageError("export: a terminal does not show Parquet; name a FILE")
    if as_base64 and chosen == "parquet":
        raise UsageError("--bytes base64 is for text formats: keys and values in Parquet are binary")
    if replace and to_stdout:
        raise UsageError("--replace is for a FILE, and this is standard output")
    values = shown_as.values(session, [path], decode=decode, base64=as_base64)
    options = ExportOptions(ExportFormat(chosen), wanted.selection(), as_base64, values, csv_safe, limit)
    looking, (path,) = tiers.seen(session, [path])
    targets = _targets(looking, path)
    damage: list[str] = []

    def tell(found: Finding) -> None:
        damage.append(found.code)
        session.console.warning(finding_text(session.console, found))

    with looking.reading("export", [target.path for target in targets]) as reading:
        partitions = exported_partitions(reading.fs, targets, options.selection, limited=limit is not None)
        require_decoders(decode, as_base64, (str(key) for key, _ in partitions))
        options = with_types(options, looking.fs, targets)
        with nullcontext(_StandardOutput(session)) if to_stdout else FileSink(session.fs, output, replace) as sink:
            count = export(partitions, sink, options, tell, session.console.warning)
    tell_values(session, values)
    if not to_stdout:
        session.console.result(
            {"type": "exported", "file": str(output), "records": count, "damage": len(damage)},
            f"{count_text(count, 'record')} written to {output}",
        )
    return tiers.code(ExitCode.FOUND if damage else ExitCode.DONE)


def _is_standard_output(output: Path) -> bool:
    """True for `-`, or for a name of the file that standard output is, such as /dev/stdout."""
    try:
        return str(output) == "-" or os.path.samestat(output.stat(), os.fstat(sys.stdout.fileno()))
    except (OSError, ValueError):
        return False


class _StandardOutput:
    """The sink of an export to standard output."""

    def __init__(self, session: Session) -> None:
        self.write = session.console.write_exactly


def _targets(session: Session, path: Path) -> list[Target]:
    """Returns the partitions or the file at the path. Raises UsageError for a log directory."""
    from seglog.scan.listing import TargetKind, resolve_paths

    targets = resolve_paths(session.fs, [path])
    if any(target.kind is TargetKind.LOG_DIRECTORY for target in targets):
        raise UsageError(f"export: {path} is a log directory; name one of its partitions, or {path}/TOPIC")
    return targets
