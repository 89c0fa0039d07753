"""`seglog append`: records from lines or JSON lines into a partition."""

from __future__ import annotations

from typing import Annotated

from seglog_cli.options import Partition, argument, command, duration_option, flag, labelled, one_of, option
from seglog_cli.session import Session

TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")


@command
def run(
    session: Session,
    partition: Partition,
    file: Annotated[str, argument("FILE", "The file with the input (default: -, standard input).")] = "-",
    input_format: Annotated[
        str | None,
        option(
            "--input-format",
            "lines|jsonl",
            "The form of the input (default: jsonl if FILE ends with .jsonl, else lines).",
        ),
    ] = None,
    key_separator: Annotated[
        str | None, option("--key-separator", "TEXT", "The text between key and value in each line.")
    ] = None,
    codec: Annotated[
        str | None,
        option(
            "--codec",
            "none|gzip|snappy|lz4|zstd",
            "Compress batches with this codec, where compression.type is producer.",
        ),
    ] = None,
    batch_records: Annotated[
        int | None, option("--batch-records", "N", "Put at most N records into a batch.", least=1)
    ] = None,
    timestamp_type: Annotated[
        str | None,
        option(
            "--timestamp-type",
            "CreateTime|LogAppendTime",
            "Keep the records' own timestamps, or set those of the append (default: message.timestamp.type).",
        ),
    ] = None,
    flush_messages: Annotated[
        int | None, option("--flush-messages", "N", "Flush after every N records.", least=1)
    ] = None,
    flush_ms: Annotated[
        int | None, duration_option("--flush-ms", "Flush when this much time has passed since the last flush.", least=0)
    ] = None,
    create: Annotated[bool, flag("--create", "Make the partition if it is missing.")] = False,
) -> None:
    """Appends records, and says what is safe on disk.

    Each input line is one record's value, or with --key-separator its key and value. Or the input is JSON lines, as
    `dump --records --json` and `read --json` write them. After each flush a line names the offsets that now survive a
    crash; the last flush comes at the end. A log that was not closed properly is recovered first. The command holds the
    log directory's lock, so that no broker starts meanwhile.

    Examples:
      seglog append --create /tmp/logs/orders-0 records.jsonl
      printf 'k1:v1\\nk2:v2\\n' | seglog append /tmp/logs/orders-0 --key-separator : --codec zstd
      seglog append /tmp/logs/orders-0 --flush-messages 1000 --flush-ms 1s < lines.txt
    """
    from seglog.model import Compression
    from seglog.operations.append import Ingest
    from seglog.operations.input_lines import read_records
    from seglog_cli.input import open_chunks, record_format
    from seglog_cli.views.appended import show_appended

    form = record_format(file, input_format, key_separator)
    compression = None if codec is None else labelled("--codec", codec, Compression)
    chosen = {
        "message.timestamp.type": timestamp_type and one_of("--timestamp-type", timestamp_type, TIMESTAMP_TYPES),
        "flush.messages": flush_messages,
        "flush.ms": flush_ms,
    }
    with (
        open_chunks(file, flush_ms) as chunks,
        session.open_log(partition, writable=True, create=create, settings=chosen, command="append") as log,
    ):
        if compression is not None and log.config.codec not in (None, compression):
            kept = log.config.compression_type
            session.console.warning(f"--codec {codec} has no effect: the topic's compression.type is {kept}")
        pieces = read_records(chunks, form, "standard input" if file == "-" else file)
        some = False
        for appended in Ingest(log, pieces, codec=compression, batch_records=batch_records):
            show_appended(session.console, appended)
            some = True
        if not some:
            session.console.message(f"{log.topic_partition}: no records came, and none were appended")
