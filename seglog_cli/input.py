"""Standard input, or a file of records, as chunks of bytes that come when they come."""

from __future__ import annotations

import contextlib
import io
import os
import select
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from seglog_cli.console import stream_error
from seglog_cli.failures import UsageError
from seglog_cli.options import one_of

if TYPE_CHECKING:
    from seglog.operations.input_lines import Format

CHUNK_BYTES = 1 << 20
_LEAST_WAIT_MS = 1
_LONGEST_WAIT_MS = 200  # after such a pause, what is there is appended without waiting for a full batch


def record_format(file: str, input_format: str | None, key_separator: str | None) -> Format:
    """The input's format: what `--input-format` says, else by the file's extension."""
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
    """Chunks of at most CHUNK_BYTES of `file` (`-`: standard input); None when nothing came for a while."""
    from seglog.remote.routing import parse_location

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
    """Fills a chunk as long as bytes are ready, so that a slow writer's records are not held back."""
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
