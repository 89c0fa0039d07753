"""kafka-dump-log's options and text, without its defects (Kafka: DumpLogSegments 4.3).

Where Kafka's tool works, stdout is the same byte for byte. Where it does not, this deviates:

- Records of a batch whose checksum is wrong are not printed as if they were genuine (`--untrusted` prints them).
- Damage does not end the dump: what follows it, the remaining files too, is printed. "Found … invalid bytes at
  the end" appears only when nothing good follows.
- A batch that cannot be decompressed or decoded is reported; its readable records are printed.
- "Non-consecutive offsets" are reported between records only, not before a segment's first one.
- Nothing is created: a `.timeindex` without its `.index` is printed. Positions outside the log are mismatches.
- Checkpoints, `partition.metadata` and leftovers (`.deleted`, …) are printed instead of ignored.
- DefaultDecoder shows bytes in base64, not the identity of a Java object.
- Whatever is wrong is a `Report` or a `Finding`, so that the command can exit with 1; gaps in offsets, which every
  compacted log has, and files that are no logs are not.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from seglog.dump.files import dump_file, is_log
from seglog.dump.internal_topics import Decoder
from seglog.dump.rendering import SMALL_FILE_BYTES, Block, LogRenderer, Rendered
from seglog.errors import NotALogError
from seglog.evidence.damage import record_findings, with_damage
from seglog.evidence.file_rows import is_known
from seglog.evidence.findings import Finding
from seglog.format.columns import Records
from seglog.format.filenames import BOOTSTRAP_CHECKPOINT, FileKind, FileState, parse_file_name
from seglog.kafka_dump_log.decoders import PartDecoders, control_text
from seglog.kafka_dump_log.indexes import IndexDump
from seglog.kafka_dump_log.reports import Report, Reports
from seglog.kernels import render, render_dump_log
from seglog.layout import CONTROL_MASK, INT32_MAX
from seglog.ordered_pool import Account
from seglog.scan.log_walk import LogWalk, WalkedEntries
from seglog.storage.filesystem import FileSystem


@dataclass(frozen=True, slots=True)
class DumpLogOptions:
    """The options of kafka-dump-log; `decoder` stands for its five decoder options and the two decoder classes.

    `print_data_log` is implied by a decoder, `deep_iteration` by `print_data_log`. `untrusted` and `jobs` are ours.
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
    """Dumps `files` in order: blocks for stdout (valid until the next step), findings, and at the end the reports.

    Raises NotALogError for a file that is not there, OSError where one cannot be read.
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
            yield from IndexDump(
                fs, path, kind, options.verify_index_only, options.index_sanity_check, reports
            ).blocks()
        elif is_known(path):
            yield from dump_file(fs, path, as_json=False)
        else:
            yield Report(f"Ignoring unknown file {path}", wrong=False)
    yield from reports.all()


def _text(text: str) -> Block:
    """`text` with a file's name in it, as the name's own bytes."""
    return memoryview(text.encode("utf-8", "surrogateescape"))


class _LogText(LogRenderer):
    """A `.log` or KRaft `.checkpoint` in kafka-dump-log's text."""

    def __init__(self, fs: FileSystem, path: Path, options: DumpLogOptions, reports: Reports) -> None:
        super().__init__(options.jobs)
        self.fs, self.path, self.options, self.reports = fs, path, options, reports
        self._last_offset: int | None = None

    def blocks(self) -> Iterator[Rendered]:
        """The whole file's lines."""
        yield _text(self._title())
        status = self.fs.status(self.path)
        size = 0 if status is None else status.size
        end = min(size, self.options.max_bytes)
        name = parse_file_name(self.path.name)
        base = 0 if name is None or name.kind is not FileKind.LOG else name.offset
        steps = with_damage(LogWalk(self.fs, self.path, 0, end, fresh=True), self.path, base)
        small = size <= SMALL_FILE_BYTES or self.options.jobs < 2
        # Offsets are compared in the log's order, which threads do not keep.
        steps = self._following(steps) if self.options.is_deep else steps
        for block in self.in_sequence(steps) if small else self.under_threads(steps):
            tail = isinstance(block, Finding) and self._ends_with(block, end)
            if tail and end < size:
                continue  # `max_bytes` cut that batch
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
        number = re.match(r"([+-]?[0-9]+)\.", self.path.name)  # all that Kafka asks of a name that ends in .log
        return "" if number is None else f"Log starting offset: {int(number[1])}\n"

    def _following(self, steps: Iterator[WalkedEntries | Finding]) -> Iterator[WalkedEntries | Finding]:
        """Notes where offsets are not consecutive, by the batches' own offsets and counts."""
        for step in steps:
            if isinstance(step, WalkedEntries):
                self._note_gaps(step)
            yield step

    def _note_gaps(self, piece: WalkedEntries) -> None:
        good = piece.batches[piece.valid & (piece.batches["count"] != 0)]
        if len(good) == 0:
            return
        width = good["last_offset"] - good["base_offset"] + 1
        legacy = good["magic"] < 2
        before = self._before(good["base_offset"], good["last_offset"])
        suspect = legacy | (width != good["count"]) | (good["base_offset"] != before + 1)
        if suspect.any():
            for records in piece.records(good):
                self._compare(records.rows["offset"])
        else:
            self._last_offset = int(good["last_offset"][-1])

    def _before(self, firsts: np.ndarray, lasts: np.ndarray) -> np.ndarray:
        """The offset in front of each first one; of the log's very first, one less (which wraps as columns do)."""
        start = firsts[:1] - 1 if self._last_offset is None else np.array([self._last_offset], dtype=np.int64)
        return np.concatenate((start, lasts[:-1]))

    def _compare(self, offsets: np.ndarray) -> None:
        if len(offsets) == 0:
            return
        before = self._before(offsets, offsets)
        for i in np.flatnonzero(offsets != before + 1).tolist():
            self.reports.non_consecutive(self.path, int(before[i]), int(offsets[i]))
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
        arguments = (run, records.arena, records.batches, flags.astype(np.uint8), records.rows)
        write = partial(render_dump_log.render_dump_log, *arguments, endings, bounds, has_ending)
        return self.lines(len(records.batches), write)

    def _endings(self, records: Records) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Texts of control records, and of all records where a decoder is asked for: (bytes, bounds, rows that have
        one).
        """
        count = len(records.rows)
        bounds, has_ending = np.zeros(count + 1, dtype=np.int64), np.zeros(count, dtype=np.uint8)
        control = (records.batches["attributes"] & CONTROL_MASK != 0) & (records.batches["magic"] >= 2)
        by_object = self.options.decoder not in (None, PartDecoders())
        chosen = control[records.rows["batch"]] if count else np.zeros(0, dtype=bool)
        if by_object:
            has_ending[:] = 1
        else:
            has_ending[chosen] = 1
        texts = []
        for i in np.flatnonzero(has_ending).tolist():
            text = self._ending(records, i, bool(chosen[i]))
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
