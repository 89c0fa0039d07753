"""Dumps files with kafka-dump-log's options and text, but without its defects (Kafka: DumpLogSegments 4.3).

Where Kafka's tool works, stdout is the same byte for byte. The deviations:

- Records of a batch with a wrong checksum are not printed as if they were genuine (`--untrusted` prints them).
- Damage does not end the dump: good data after it and the remaining files are printed. "Found … invalid bytes at the
  end" appears only if nothing good follows.
- A batch that cannot be decompressed or decoded is reported; its readable records are printed.
- "Non-consecutive offsets" are reported only between records, not before a segment's first one.
- Nothing is created: a `.timeindex` without its `.index` is printed. Positions outside the log are mismatches.
- Checkpoints, `partition.metadata` and leftovers (`.deleted`, …) are printed instead of ignored.
- DefaultDecoder shows bytes in base64, not the identity of a Java object.
- Every defect is a `Report` or a `Finding`, so that the command can exit with 1. Gaps in offsets, which every
  compacted log has, and files that are not logs are not defects.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from seglog.errors import NotALogError
from seglog.format.columns import Records
from seglog.format.decoder import control_batches
from seglog.format.filenames import BOOTSTRAP_CHECKPOINT, FileKind, FileState, parse_file_name
from seglog.kernels import render, render_dump_log
from seglog.layout import INT32_MAX
from seglog.look.dump.file_lines import dump_file, is_log
from seglog.look.dump.rendering import SMALL_FILE_BYTES, Block, LogRenderer, Rendered
from seglog.look.kafka_dump_log.decoders import PartDecoders, control_text
from seglog.look.kafka_dump_log.indexes import IndexDump
from seglog.look.kafka_dump_log.large_lines import large_dump_log_line
from seglog.look.kafka_dump_log.reports import Mismatch, Report, Reports
from seglog.ordered_pool import Account
from seglog.scan.log_walk import LogWalk, WalkedEntries
from seglog.storage.filesystem import FileSystem
from seglog.verification.damage import record_findings, with_damage
from seglog.verification.file_rows import is_known
from seglog.verification.findings import Finding

if TYPE_CHECKING:
    from seglog_ask.values.internal_topics import Decoder


@dataclass(frozen=True, slots=True)
class DumpLogOptions:
    """The options of kafka-dump-log; `decoder` replaces its five decoder options and two decoder classes.

    A decoder implies `print_data_log`, which implies `deep_iteration`. `untrusted` and `jobs` are seglog's own.
    """

    deep_iteration: bool = False
    print_data_log: bool = False
    skip_record_metadata: bool = False
    verify_index_only: bool = False
    index_sanity_check: bool = False
    max_bytes: int = INT32_MAX
    decoder: Decoder | None = None
    untrusted: bool = False
    jobs: int = 2

    @property
    def prints_data(self) -> bool:
        return self.print_data_log or self.decoder is not None

    @property
    def is_deep(self) -> bool:
        return self.deep_iteration or self.prints_data


def dump_log(fs: FileSystem, files: Sequence[Path], options: DumpLogOptions) -> Iterator[Block | Finding | Report]:
    """Dumps `files` in order: yields blocks for stdout (valid until the next step), findings, and the reports last.

    Raises NotALogError if a file is missing, OSError if one cannot be read.
    """
    reports = Reports()
    for path in files:
        yield _text(f"Dumping {path}\n")
        if (is_log(path) or is_known(path)) and fs.status(path) is None:
            raise NotALogError(path, "no such file or directory")
        name = parse_file_name(path.name)
        kind = name.kind if name is not None and name.state is FileState.LIVE else None
        if is_log(path):
            yield from _LogText(fs, path, options, reports).blocks()
        elif kind is not None and kind is not FileKind.LOG_07:
            index = IndexDump(fs, path, kind, options.verify_index_only, options.index_sanity_check, reports)
            yield from index.blocks()
        elif is_known(path):
            yield from dump_file(fs, path, as_json=False)
        else:
            yield Report(f"Ignoring unknown file {path}", wrong=False)
    yield from reports.all()


def _text(text: str) -> Block:
    """Encodes text so that a file name in it keeps its bytes."""
    return memoryview(text.encode("utf-8", "surrogateescape"))


class _LogText(LogRenderer):
    """Renders a `.log` or KRaft `.checkpoint` in kafka-dump-log's text."""

    def __init__(self, fs: FileSystem, path: Path, options: DumpLogOptions, reports: Reports) -> None:
        super().__init__(options.jobs)
        self.fs, self.path, self.options, self.reports = fs, path, options, reports
        self._last_offset: int | None = None

    def blocks(self) -> Iterator[Rendered]:
        """Yields the whole file's lines."""
        yield _text(self._title())
        status = self.fs.status(self.path)
        size = 0 if status is None else status.size
        end = min(size, self.options.max_bytes)
        name = parse_file_name(self.path.name)
        base = 0 if name is None or name.kind is not FileKind.LOG else name.offset
        steps = with_damage(LogWalk(self.fs, self.path, 0, end, fresh=True), self.path, base, preallocated="damage")
        small = size <= SMALL_FILE_BYTES or self.options.jobs < 2
        # Offsets are compared in the log's order, which threads do not keep.
        steps = self._noting_gaps(steps) if self.options.is_deep else steps
        for block in self.in_sequence(steps) if small else self.under_threads(steps):
            tail = isinstance(block, Finding) and self._ends_with(block, end)
            if tail and end < size:
                continue  # `max_bytes` cut this batch
            yield block
            if isinstance(block, Finding) and tail and self.options.max_bytes == INT32_MAX:
                yield _text(f"Found {block.length} invalid bytes at the end of {self.path.name}\n")

    def _ends_with(self, found: Finding, end: int) -> bool:
        codes = ("TORN_TAIL", "ZERO_BYTES", "UNREADABLE_BYTES")
        return found.code in codes and (found.position or 0) + (found.length or 0) == end

    def _title(self) -> str:
        name = parse_file_name(self.path.name)
        if self.path.name == BOOTSTRAP_CHECKPOINT:
            return "KRaft bootstrap snapshot\n"
        if name is not None and name.kind is FileKind.METADATA_SNAPSHOT:
            return f"Snapshot end offset: {name.offset}, epoch: {name.epoch}\n"
        number = re.match(r"([+-]?[0-9]+)\.", self.path.name)  # Kafka requires no more of a name that ends in .log
        return "" if number is None else f"Log starting offset: {int(number[1])}\n"

    def _noting_gaps(self, steps: Iterator[WalkedEntries | Finding]) -> Iterator[WalkedEntries | Finding]:
        """Yields the steps and reports offsets that are not consecutive."""
        for step in steps:
            if isinstance(step, WalkedEntries):
                self._note_gaps(step)
            yield step

    def _note_gaps(self, piece: WalkedEntries) -> None:
        """Compares the offsets of headers and, only if these show a gap, those of the records."""
        good = piece.batches[piece.valid & (piece.batches["count"] != 0)]
        if len(good) == 0:
            return
        width = good["last_offset"] - good["base_offset"] + 1
        before = self._before(good["base_offset"], good["last_offset"])
        suspect = (good["magic"] < 2) | (width != good["count"]) | (good["base_offset"] != before + 1)
        if suspect.any():
            for records in piece.records(good):
                self._compare(records.rows["offset"])
        else:
            self._last_offset = int(good["last_offset"][-1])

    def _before(self, firsts: np.ndarray, lasts: np.ndarray) -> np.ndarray:
        """Returns the offset before each first one; for the log's very first, one less (wrapping as columns do)."""
        start = firsts[:1] - 1 if self._last_offset is None else np.array([self._last_offset], dtype=np.int64)
        return np.concatenate((start, lasts[:-1]))

    def _compare(self, offsets: np.ndarray) -> None:
        if len(offsets) == 0:
            return
        before = self._before(offsets, offsets)
        for i in np.flatnonzero(offsets != before + 1).tolist():
            self.reports.note(Mismatch.GAP, self.path, int(before[i]), int(offsets[i]))
        self._last_offset = int(offsets[-1])

    def rendered(
        self, piece: WalkedEntries, first: int, stop: int, account: Account | None = None
    ) -> Generator[Rendered, None, None]:
        batches, valid = piece.batches[first:stop], piece.valid[first:stop]
        if not self.options.is_deep:
            yield from self._lines(Records.without_rows(batches), valid)
            return
        for records in piece.records(batches, account):
            trusted = valid[records.first_batch : records.first_batch + len(records.batches)]
            yield from self._lines(records, trusted)
            yield from record_findings(records, trusted, self.path)

    def _lines(self, records: Records, valid: np.ndarray) -> Iterator[Block]:
        flags = np.where(valid, render.VALID | render.SHOW_RECORDS, 0)
        if not records.rows_before:
            flags |= render.SHOW_BATCH
        if self.options.untrusted:
            flags |= render.SHOW_RECORDS
        run = render_dump_log.SKIP_METADATA if self.options.skip_record_metadata else 0
        run |= render_dump_log.PRINT_DATA if self.options.prints_data else 0
        endings, bounds, has_ending = self._endings(records)
        shown = (records.batches, flags.astype(np.uint8), records.rows)
        arguments = (run, records.arena, *shown, endings, bounds, has_ending)
        write, large = partial(render_dump_log.render_dump_log, *arguments), partial(large_dump_log_line, *arguments)
        return self.lines(len(records.batches), write, large)

    def _endings(self, records: Records) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns the texts of control records, or of all records with a decoder: (bytes, bounds, rows with a text)."""
        count = len(records.rows)
        bounds, has_ending = np.zeros(count + 1, dtype=np.int64), np.zeros(count, dtype=np.uint8)
        control = control_batches(records.batches)[records.rows["batch"]]
        if self.options.decoder in (None, PartDecoders()):
            has_ending[control] = 1
        else:
            has_ending[:] = 1
        texts = []
        for i in np.flatnonzero(has_ending).tolist():
            text = self._ending(records, i, bool(control[i]))
            texts.append(text)
            bounds[i + 1] = len(text)
        np.cumsum(bounds, out=bounds)
        return np.frombuffer(b"".join(texts), dtype=np.uint8), bounds, has_ending

    def _ending(self, records: Records, i: int, is_control: bool) -> bytes:
        skip = self.options.skip_record_metadata
        if is_control:
            return b"" if skip else control_text(records.key(i), records.value(i)).encode("utf-8", "replace")
        assert self.options.decoder is not None
        key, payload = self.options.decoder(records.key(i), records.value(i), int(records.rows[i]["offset"]))
        parts = [f"{name}: {text}" for name, text in (("key", key), ("payload", payload)) if text is not None]
        lead = "| " if skip else " "
        return (lead + " ".join(parts)).encode("utf-8", "replace") if parts else b""
