"""`seglog append`: records from lines or JSON lines into a partition."""

from __future__ import annotations

import contextlib
import io
import os
import select
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from seglog_cli.console import stream_error
from seglog_cli.failures import UsageError
from seglog_cli.options import (
    Partition,
    argument,
    codec_option,
    command,
    duration_option,
    flag,
    labelled,
    one_of,
    option,
)
from seglog_cli.session import Session

if TYPE_CHECKING:
    from seglog.operations.input_lines import Format

TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
CHUNK_BYTES = 1 << 20
_LEAST_WAIT_MS = 1
_LONGEST_WAIT_MS = 200  # after such a pause, the records read so far are appended without waiting for a full batch


@command()
def run(
    session: Session,
    partition: Partition,
    file: Annotated[str, argument("FILE", "The input file (default: -, standard input).")] = "-",
    input_format: Annotated[
        str | None,
        option(
            "--input-format",
            "lines|jsonl",
            "The input format (default: jsonl if FILE ends with .jsonl, else lines).",
        ),
    ] = None,
    key_separator: Annotated[
        str | None, option("--key-separator", "TEXT", "The text that separates key from value in each line.")
    ] = None,
    codec: Annotated[
        str | None,
        codec_option("Compress batches with this codec, if the topic's compression.type is producer."),
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
    create: Annotated[bool, flag("--create", "Create the partition if it is missing.")] = False,
) -> None:
    """Appends records, and reports what is safe on disk.

    Each input line is one record's value, or with --key-separator its key and value. JSON lines work too, in the form
    that `dump --records --json` and `read --json` write.

    After each flush, and once at the end, a line of output names the offsets that now survive a crash.

    The command holds the log directory's lock, so no broker can start meanwhile. A log that was not closed properly is
    recovered first.

    Examples:
      seglog append --create /tmp/logs/orders-0 records.jsonl
      printf 'k1:v1\\nk2:v2\\n' | seglog append /tmp/logs/orders-0 --key-separator : --codec zstd
      seglog append /tmp/logs/orders-0 --flush-messages 1000 --flush-ms 1s < lines.txt
    """
    from seglog.model import Compression
    from seglog.operations.append import Ingest
    from seglog.operations.input_lines import read_records

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
        partition_name, last = str(log.topic_partition), None
        for appended in Ingest(log, pieces, codec=compression, batch_records=batch_records):
            first, last = appended.first_offset, appended.last_offset
            record = {"type": "appended", "partition": partition_name, "first_offset": first, "last_offset": last}
            session.console.result(
                {**record, "durable": True}, f"appended {partition_name} offsets {first} to {last} durable"
            )
            session.console.flush()  # the reader may rely on it
        if last is None:
            session.console.message(f"{log.topic_partition}: the input had no records; nothing was appended")


def record_format(file: str, input_format: str | None, key_separator: str | None) -> Format:
    """Returns the input format: --input-format, else by the file's extension."""
    from seglog.operations.input_lines import JsonLineFormat, LineFormat

    by_name = "jsonl" if file.endswith(".jsonl") else "lines"
    kind = by_name if input_format is None else one_of("--input-format", input_format, ("lines", "jsonl"))
    if kind == "jsonl":
        if key_separator is not None:
            raise UsageError("--key-separator is for lines; JSON lines have their own key")
        return JsonLineFormat()
    if key_separator is not None and (not key_separator or "\n" in key_separator):
        raise UsageError("--key-separator: at least one character, and no newline")
    return LineFormat(key_separator)


@contextlib.contextmanager
def open_chunks(file: str, flush_ms: int | None) -> Iterator[Iterator[bytes | None]]:
    """Opens `file` (`-`: standard input) as chunks of at most CHUNK_BYTES, or None after a pause."""
    from seglog.locations import parse_location

    wait_ms = min(_LONGEST_WAIT_MS, max(flush_ms or 1 << 40, _LEAST_WAIT_MS))
    if file != "-":
        descriptor = os.open(parse_location(file), os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield _chunks(descriptor, file, wait_ms)
        finally:
            os.close(descriptor)
        return
    try:
        descriptor = sys.stdin.fileno()
    except io.UnsupportedOperation:
        yield iter(lambda: sys.stdin.buffer.read(CHUNK_BYTES), b"")
    else:
        yield _chunks(descriptor, "standard input", wait_ms)


def _chunks(descriptor: int, name: str, wait_ms: int) -> Iterator[bytes | None]:
    """Fills a chunk while bytes are ready, so that a slow writer's records are not held back."""
    ready = select.poll()
    ready.register(descriptor, select.POLLIN)
    while True:
        if not ready.poll(wait_ms):
            yield None
            continue
        pieces, size, ended = [], 0, False
        while size < CHUNK_BYTES and ready.poll(0):
            try:
                piece = os.read(descriptor, CHUNK_BYTES - size)
            except OSError as error:
                raise stream_error(error, name) from error
            if not piece:
                ended = True
                break
            pieces.append(piece)
            size += len(piece)
        if pieces:
            yield b"".join(pieces)
        if ended:
            return
