"""Exports records of partitions to other programs' formats: JSON lines, CSV, Parquet (`seglog export`).

1. Walks the log past damage, which is reported; decodes good batches a chunk at a time.
2. Applies the filters of `dump`. Skips control records, which are not data, and, if offsets do not ascend, offsets that
   were written before.
3. Passes chunk after chunk to a writer; memory does not grow with the log. JSON lines are those of `dump --records`.
4. Writes a file under a temporary name and renames it when it is complete and on stable storage (`undo.beside`).

CSV follows RFC 4180 with a header; an unquoted empty field is null, a quoted one the empty string. Keys and values are
text, or base64 with `base64`; without it, bytes that are not UTF-8 raise an error that names the offset. Values are
written unchanged, even spreadsheet formulas, unless `csv_safe` is set.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np

from seglog.errors import UnsupportedError
from seglog.escaping import plain_text
from seglog.format.columns import Records, Side
from seglog.format.decoder import control_batches
from seglog.log.read_order import Ranges, SeenOffsets, claimed_ranges
from seglog.look.dump.render_records import render_records
from seglog.model import NO_TIMESTAMP, TopicPartition
from seglog.repairs.undo.beside import NewFile
from seglog.scan.log_walk import Gap, LogWalk, WalkedEntries
from seglog.scan.selection import EVERYTHING, Selection
from seglog.storage.filesystem import FileSystem
from seglog.verification.damage import disorder_finding, record_findings, with_damage
from seglog.verification.findings import Finding
from seglog.verification.readable_files import Source

if TYPE_CHECKING:
    from seglog_ask.table.values.typed import TypedColumn
    from seglog_ask.values.forms import Column, TopicDecoder, Values

# Excel, LibreOffice and Google Sheets start a formula with these, also after splitting at a line end (OWASP).
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
CSV_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")


class ExportFormat(Enum):
    """The output format; the value is its file name extension."""

    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """The options of `export`.

    `base64` writes all keys, values and header values of text formats in base64. `values` decodes keys and values, as
    JSON text in CSV, and in Parquet to columns with types for the sides that are in `typed`, else to text. `csv_safe`
    puts an apostrophe before CSV cells that spreadsheets would run as formulas. `limit` bounds the records written.
    """

    format: ExportFormat
    selection: Selection = EVERYTHING
    base64: bool = False
    values: Values | None = None
    csv_safe: bool = False
    limit: int | None = None
    typed: Mapping[Side, TypedColumn] | None = None


class Sink(Protocol):
    """The destination of the bytes."""

    def write(self, data: bytes | bytearray | memoryview) -> object: ...


class RecordWriter(Protocol):
    """Writes the records of one chunk after the other."""

    def take(self, key: TopicPartition, records: Records, decoder: TopicDecoder | None) -> None: ...


class FileSink(AbstractContextManager["FileSink"]):
    """Writes a file that appears under its name if the `with` block succeeds, and not at all otherwise.

    Raises RefusedError if the file exists, unless `replace` is set, and if it is not a regular file. The directory must
    exist.
    """

    def __init__(self, fs: FileSystem, path: Path, replace: bool = False) -> None:
        self._new = NewFile(fs, path, replace=replace)
        self.position = 0

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Appends bytes."""
        self._new.file.write_at(self.position, data)
        self.position += len(data)
        return len(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._new.keep()
        finally:
            self._new.discard()


def export(
    partitions: Iterable[tuple[TopicPartition, Iterable[Source]]],
    sink: Sink,
    options: ExportOptions,
    on_damage: Callable[[Finding], None],
    on_remark: Callable[[str], None] | None = None,
) -> int:
    """Writes the selected records of each partition's logs (in order, see `sources`); returns their number.

    `on_damage` receives the damage that is skipped, `on_remark` a sentence on timestamps that Parquet's column does not
    show as they are. Each offset is written once, in the order of the files. Raises
    OSError, UnsupportedError for text that is not UTF-8, ModuleNotFoundError for Parquet without pyarrow.
    """
    count = 0
    with _writing(sink, options, on_remark) as writer:
        for key, logs in partitions:
            reader = _Reader(options.selection, on_damage)
            decoder = None if options.values is None else options.values.of_topic(key.topic)
            for records in (records for source in logs for records in reader.records(source)):
                if options.limit is not None and count + len(records) > options.limit:
                    records = replace(records, rows=records.rows[: options.limit - count])
                writer.take(key, records, decoder)
                count += len(records)
                if count == options.limit:
                    return count
    return count


@contextmanager
def _writing(sink: Sink, options: ExportOptions, on_remark: Callable[[str], None] | None) -> Iterator[RecordWriter]:
    """Yields the writer of a format; if the `with` block fails, the end of the output stays unwritten."""
    if options.format is not ExportFormat.PARQUET:
        yield _JsonLines(sink, options.base64) if options.format is ExportFormat.JSONL else _Csv(sink, options)
        return
    from seglog_ask.table.engines.parquet import ParquetWriter

    writer = ParquetWriter(sink, options.values, options.typed)
    try:
        yield _Parquet(writer.take)
        writer.close()
        if on_remark is not None and writer.distant is not None:
            from seglog_ask.table.read.source import Distant  # which takes as long as a small export

            on_remark(str(Distant(writer.distant)))
    except BaseException:
        writer.abandon()
        raise


class _Reader:
    """Reads the selected records of a partition's logs, in the order of the files, each offset once."""

    def __init__(self, selection: Selection, on_damage: Callable[[Finding], None]) -> None:
        self._selection, self._on_damage = selection, on_damage
        self._seen = SeenOffsets(0, self._earlier)
        self._sources: list[Source] = []  # up to the current one

    def records(self, source: Source) -> Iterator[Records]:
        """Yields the records of one log; call it for each log in order."""
        self._sources.append(source)
        path = source.path
        for step in with_damage(source.walk(), path, source.first_offset(0), growing=source.growing):
            if isinstance(step, Finding):
                self._on_damage(step)
            else:
                yield from self._of_piece(step, source)
        if path in self._seen.disorders:
            self._on_damage(disorder_finding(self._seen.disorders[path]))

    def _of_piece(self, step: WalkedEntries, source: Source) -> Iterator[Records]:
        path = source.path
        good = _wanted(step, source)
        shown = ~control_batches(good) & source.committed(good)
        news = self._seen.take(good, step.records, path)
        if news is not None:
            shown &= news.shown
        numbers = np.flatnonzero(shown)
        for records in step.records(good[shown]):
            for found in record_findings(records, np.ones(len(records.batches), dtype=bool), path):
                self._on_damage(found)
            rows = self._selection.of(records, True).rows
            rows = rows if news is None else news.of(rows, numbers[records.first_batch :])
            if len(rows):
                yield replace(records, rows=rows)

    def _earlier(self, position: int) -> Ranges:
        """Yields the offsets of all good batches before byte `position` of the current log."""
        for source in self._sources:
            end = position if source is self._sources[-1] else None
            for step in LogWalk(source.fs, source.path, 0, end):
                if not isinstance(step, Gap):
                    yield claimed_ranges(_wanted(step, source), step.records)


def _wanted(piece: WalkedEntries, source: Source) -> np.ndarray:
    """Returns the good batches of a piece, without those already read from a file that this one has replaced."""
    good = piece.batches[piece.valid]
    wanted: np.ndarray = good[good["last_offset"] >= source.least_offset]
    return wanted


class _JsonLines:
    def __init__(self, sink: Sink, as_base64: bool) -> None:
        self._sink, self._base64 = sink, as_base64

    def take(self, key: TopicPartition, records: Records, decoder: TopicDecoder | None) -> None:
        for block in render_records(records, str(key), as_json=True, base64=self._base64, decoder=decoder):
            self._sink.write(block)


class _Csv:
    def __init__(self, sink: Sink, options: ExportOptions) -> None:
        self._sink, self._base64, self._safe = sink, options.base64, options.csv_safe
        self._told = () if options.values is None else options.values.forms.told
        added = [f"{side}_{what}" for side in self._told for what in ("schema", "error")]
        sink.write((",".join([*CSV_COLUMNS, *added]) + "\r\n").encode())

    def take(self, key: TopicPartition, records: Records, decoder: TopicDecoder | None) -> None:
        head = f"{self._cell(_utf8(key.topic))},{key.partition}"
        decoded = {} if decoder is None else decoder.columns(records)
        lines = []
        for i in range(len(records)):
            row = records.rows[i]
            offset, timestamp = int(row["offset"]), int(row["timestamp"])
            time = "" if timestamp == NO_TIMESTAMP else str(timestamp)
            fields = f"{self._cell_of(records.key(i), decoded.get('key'), i, offset)},"
            fields += self._cell_of(records.value(i), decoded.get("value"), i, offset)
            headers = self._headers(records, i) if row["header_count"] else ""
            told = "".join(self._told_of(decoded.get(side), i) for side in self._told)
            lines.append(f"{head},{offset},{time},{fields},{headers}{told}\r\n")
        self._sink.write("".join(lines).encode())

    def _headers(self, records: Records, i: int) -> str:
        # A header's key cannot be base64, so one that is not UTF-8 is written escaped.
        pairs = [[_utf8(header.key), _json_value(header.value, self._base64)] for header in records.headers(i)]
        return self._cell(json.dumps(pairs, ensure_ascii=False, separators=(",", ":")))

    def _cell_of(self, data: bytes | None, column: Column | None, place: int, offset: int) -> str:
        if column is None or data is None:
            return self._field(data, offset)
        text = column.texts[place]
        if text is not None:
            return self._cell(plain_text(text))
        return self._cell(base64.b64encode(data).decode()) if place in column.errors else self._field(data, offset)

    def _told_of(self, column: Column | None, place: int) -> str:
        """Returns the cells of a schema and an error."""
        if column is None:
            return ",,"
        number, error = column.schemas[place], column.errors.get(place)
        return f",{'' if number is None else number},{self._cell(error) if error else ''}"

    def _field(self, data: bytes | None, offset: int) -> str:
        if data is None:
            return ""
        if self._base64:
            return self._cell(base64.b64encode(data).decode())
        try:
            return self._cell(data.decode())
        except UnicodeDecodeError as error:
            message = f"the record at offset {offset} holds bytes that are not UTF-8: export with --bytes base64"
            raise UnsupportedError(message) from error

    def _cell(self, text: str) -> str:
        return csv_cell("'" + text if self._safe and text.startswith(_FORMULA_STARTS) else text)


class _Parquet:
    def __init__(self, write: Callable[[TopicPartition, Records], None]) -> None:
        self._write = write

    def take(self, key: TopicPartition, records: Records, _decoder: TopicDecoder | None) -> None:
        self._write(key, records)  # its columns decode


def _utf8(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _json_value(data: bytes | None, as_base64: bool) -> str | None:
    """Returns a header value as text; base64 if it is not UTF-8, although no column says so."""
    if data is None:
        return None
    if not as_base64:
        with suppress(UnicodeDecodeError):
            return data.decode()
    return base64.b64encode(data).decode()


def csv_cell(text: str) -> str:
    """Quotes a field if necessary, and if it is empty: an unquoted empty field is null."""
    if text and not any(c in text for c in ',"\r\n'):
        return text
    return '"' + text.replace('"', '""') + '"'
