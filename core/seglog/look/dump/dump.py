"""Dumps logs as lines of text or JSON: batches and records of every magic, past damage, at the speed of a pipe.

Steps for each `.log`:

1. Walk it past any damage (`log_walk`); findings appear between the lines, at the place of the damage.
2. Decode the records and drop those that the filters exclude.
3. Render a whole chunk in one kernel call (`kernels.render`), in threads, in log order.

`dump.files` handles other files. Records of a batch with a wrong checksum appear only on request, marked.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from seglog import layout
from seglog.escaping import json_text
from seglog.format.columns import Records
from seglog.format.filenames import parse_file_name, parse_partition_directory
from seglog.kernels import render
from seglog.look.dump.file_lines import dump_file, is_log, rendered_rows, text_line
from seglog.look.dump.large_records import large_line
from seglog.look.dump.render_records import record_prefix
from seglog.look.dump.rendering import SMALL_FILE_BYTES, Block, LogRenderer, Rendered
from seglog.ordered_pool import Account
from seglog.scan.listing import Target
from seglog.scan.log_walk import WalkedEntries
from seglog.scan.selection import EVERYTHING, SelectedRecords, Selection
from seglog.storage.filesystem import FileSystem
from seglog.storage.links import name_of
from seglog.verification.damage import record_findings, with_damage
from seglog.verification.findings import Finding
from seglog.verification.messages_07 import Messages07, is_07
from seglog.verification.readable_files import Source, sources, unreadable
from seglog.verification.unsettled import Unsettled

if TYPE_CHECKING:
    from seglog_ask.values.forms import Values


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """The options of `dump`.

    `json` selects JSON lines instead of text. `records` adds records to batches, `untrusted` also those of batches with
    a wrong checksum. `base64` renders all keys and values in base64; `values` decodes them. `every_file` includes the
    indexes, snapshots and checkpoints of directories. `limit` bounds the records shown, or the batches without
    `records`. `jobs` is the number of threads.
    """

    json: bool = False
    records: bool = False
    untrusted: bool = False
    base64: bool = False
    values: Values | None = None
    every_file: bool = False
    selection: Selection = EVERYTHING
    limit: int | None = None
    jobs: int = 2


def dump(fs: FileSystem, targets: Sequence[Target], options: DumpOptions) -> Iterator[Block | Finding]:
    """Yields rendered lines in blocks (valid until the next step) and findings, in the order of the files.

    An unreadable file becomes a finding, and the dump continues. While a broker runs, each partition is dumped as it is
    when its turn comes.
    """
    remaining = options.limit
    limited, beside = options.limit is not None, dict[Path, Unsettled]()
    for target in targets:
        for source in sources(
            fs, target, options.every_file, selection=options.selection, limited=limited, known_unsettled=beside
        ):
            if remaining is not None and remaining <= 0:
                return
            if isinstance(source, Finding):
                yield source
                continue
            try:
                dumped: _LogDump | Messages07
                if is_07(source.path):
                    chosen = options.selection.starting_at(source.least_offset)
                    dumped = Messages07(
                        source.fs,
                        source.path,
                        records=options.records,
                        base64_values=options.base64,
                        first_offset=chosen.first_offset or 0,
                        end_offset=chosen.end_offset,
                        limit=remaining if chosen.takes_bare_messages else 0,
                    )
                    yield from rendered_rows(source.fs, source.path, dumped.rows(), options.json)
                elif not is_log(source.path):
                    yield from dump_file(source.fs, source.path, options.json)
                    continue
                else:
                    dumped = _LogDump(source, options, remaining)
                    yield from dumped.blocks()
            except OSError as error:
                yield unreadable(source.path.parent, error)
                continue
            if remaining is not None:
                remaining -= dumped.shown


class _LogDump(LogRenderer):
    """Renders one `.log` file, a leftover of one, or a KRaft snapshot."""

    def __init__(self, source: Source, options: DumpOptions, limit: int | None) -> None:
        name = parse_file_name(source.path.name)
        self.fs, self.path, self.options, self.limit = source.fs, source.path, options, limit
        self._source, self._committed = source, source.committed
        self._growing, self._selection = source.growing, options.selection.starting_at(source.least_offset)
        self.base_offset = 0 if name is None else name.offset
        self.shown = 0
        super().__init__(options.jobs)
        self.records = options.records or self._selection.by_record
        self._style = render.JSON if options.json else render.TEXT
        partition = name_of(self.path.parent)
        prefix = b"batch position="
        if options.json:
            names = json_text({"type": "batch", "partition": partition, "file": self.path.name})
            prefix = f'{names[:-1]},"position":'.encode()
        self._prefix = np.frombuffer(prefix, dtype=np.uint8)
        self._record_prefix = record_prefix(partition, options.json)
        directory = parse_partition_directory(partition)
        topic = partition if directory is None else directory.topic_partition.topic
        self._decoder = options.values.of_topic(topic) if options.values is not None and self.records else None

    def blocks(self) -> Iterator[Rendered]:
        """Yields the file's lines; uses threads unless the file is small or `limit` is set."""
        status = self.fs.status(self.path)
        size = 0 if status is None else status.size
        if not self.options.json:
            yield memoryview(text_line("file", {"path": str(self.path), "size": size}))
        walk, first = self._source.walk(fresh=True), self._source.first_offset(self.base_offset)
        steps = with_damage(walk, self.path, first, growing=self._growing)
        if self.limit is not None or self.options.jobs < 2 or size <= SMALL_FILE_BYTES:
            yield from self.in_sequence(steps)
        else:
            yield from self.under_threads(steps)

    def enough(self) -> bool:
        return self.limit is not None and self.shown >= self.limit

    def rendered(
        self, piece: WalkedEntries, first: int, stop: int, account: Account | None = None
    ) -> Generator[Rendered, None, None]:
        batches, valid = piece.batches[first:stop], piece.valid[first:stop]
        named, has_line = batches, False
        for records in self._decoded(piece, batches, account):
            begin = records.first_batch
            trusted = valid[begin : begin + len(records.batches)]
            chosen = self._selection.of(records, self.records)
            if self._selection.is_committed:
                seen = chosen.batches_shown & self._committed(records.batches)
                chosen = SelectedRecords(chosen.rows[seen[chosen.rows["batch"]]], seen)
            if not records.rows_before:
                named = _with_inner_offsets(records)
            elif has_line:  # the batch's line came with an earlier part
                chosen = SelectedRecords(chosen.rows, np.zeros(1, dtype=bool))
            chosen = self._limited(chosen, trusted)
            has_line = bool(chosen.batches_shown.any()) or (has_line and records.rows_before > 0)
            rows = chosen.rows if self.records else chosen.rows[:0]
            flags = self._flags(chosen.batches_shown, trusted)
            shown = replace(records, rows=rows)
            lines = partial(self._lines, batches=named, flags=flags)
            if self._decoder is None:
                yield from lines(shown)
            else:
                from seglog.look.dump.shown_values import with_values

                yield from with_values(
                    shown, self._decoder, as_json=self.options.json, base64=self.options.base64, lines=lines
                )
            yield from record_findings(records, trusted, self.path)

    def _decoded(self, piece: WalkedEntries, batches: np.ndarray, account: Account | None) -> Iterator[Records]:
        wrappers = (batches["magic"] < 2) & ((batches["attributes"] & layout.CODEC_MASK) != 0)
        if self.records or wrappers.any():
            return piece.records(batches, account)
        return iter((Records.without_rows(batches),))

    def _limited(self, chosen: SelectedRecords, trusted: np.ndarray) -> SelectedRecords:
        """Returns the part of `chosen` that the limit still allows, and counts it as shown."""
        shown = chosen.batches_shown
        if self.records:
            rows = chosen.rows
            if not self.options.untrusted and not trusted.all():
                rows = rows[trusted[rows["batch"]]]
            if self.limit is not None:
                rows = rows[: self.limit - self.shown]
                last = int(rows["batch"][-1]) if len(rows) == self.limit - self.shown and len(rows) else len(shown)
                shown = shown & (np.arange(len(shown)) <= last)
            self.shown += len(rows)
            return SelectedRecords(rows, shown)
        if self.limit is not None:
            shown = shown & (np.cumsum(shown) <= self.limit - self.shown)
        self.shown += int(np.count_nonzero(shown))
        return SelectedRecords(chosen.rows, shown)

    def _flags(self, shown: np.ndarray, valid: np.ndarray) -> np.ndarray:
        flags = np.where(shown, render.SHOW_BATCH, 0) | np.where(valid, render.VALID, 0)
        if self.records:
            flags |= np.where(valid | self.options.untrusted, render.SHOW_RECORDS, 0)
        return flags.astype(np.uint8)

    def _lines(self, records: Records, batches: np.ndarray, flags: np.ndarray) -> Iterator[Block]:
        line = (self._style, self.options.base64, self._prefix, self._record_prefix)
        arguments = (*line, records.arena, batches, flags, records.rows)
        return self.lines(len(batches), partial(render.render, *arguments), partial(large_line, *arguments))


def _with_inner_offsets(records: Records) -> np.ndarray:
    """Returns the batches; legacy wrappers get the first offset and the count of their contents."""
    batches = records.batches
    if len(batches) == 0 or batches["magic"].min() > 1 or len(records.rows) == 0:
        return batches
    batches = batches.copy()
    numbers, first, counts = np.unique(records.rows["batch"], return_index=True, return_counts=True)
    counts[-1:] += records.rows_after
    legacy = (batches["magic"][numbers] < 2) & (records.status[numbers] == 0)
    batches["base_offset"][numbers[legacy]] = records.rows["offset"][first[legacy]]
    batches["count"][numbers[legacy]] = counts[legacy]
    return batches
