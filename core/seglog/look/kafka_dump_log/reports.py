"""Collects the mismatches that kafka-dump-log prints after all files (Kafka: DumpLogSegments, TimeIndexDumpErrors)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_MOST_LINES = 100_000  # per kind and file; more are only counted


@dataclass(frozen=True, slots=True)
class Report:
    """Lines for stderr, without the last line feed; `wrong` if they report a defect."""

    text: str
    wrong: bool = True


class Reports:
    """Collects mismatches during the dump and reports them grouped by kind and file, as Kafka's tool does."""

    def __init__(self) -> None:
        self._found: dict[str, dict[Path, list[str]]] = {
            "Mismatches in :{}": {},
            "Found timestamp mismatch in :{}": {},
            "Found out of order timestamp in :{}": {},
            "The following indexed offsets are not found in :{}": {},
            "Non-consecutive offsets in {}": {},
        }
        self._omitted: Counter[tuple[str, Path]] = Counter()

    def index_mismatch(self, path: Path, index_offset: int, log_offset: int) -> None:
        """Notes an offset entry that differs from the last offset of the batch at its position."""
        self._add("Mismatches in :{}", path, f"  Index offset: {index_offset}, log offset: {log_offset}")

    def timestamp_mismatch(self, path: Path, index_timestamp: int, log_timestamp: int) -> None:
        """Notes a time entry that differs from the largest timestamp of its batch."""
        line = f"  Index timestamp: {index_timestamp}, log timestamp: {log_timestamp}"
        self._add("Found timestamp mismatch in :{}", path, line)

    def timestamp_out_of_order(self, path: Path, timestamp: int, before: int) -> None:
        """Notes a time entry that is not later than the previous one."""
        line = f"  Index timestamp: {timestamp}, Previously indexed timestamp: {before}"
        self._add("Found out of order timestamp in :{}", path, line)

    def offset_not_found(self, path: Path, index_offset: int, log_offset: int) -> None:
        """Notes a time entry whose offset is not the last offset of a batch."""
        line = f"Indexed offset: {index_offset}, found log offset: {log_offset}"
        self._add("The following indexed offsets are not found in :{}", path, line)

    def non_consecutive(self, path: Path, before: int, offset: int) -> None:
        """Notes two consecutive records whose offsets are not consecutive."""
        self._add("Non-consecutive offsets in {}", path, f"  {before} is followed by {offset}")

    def all(self) -> Iterator[Report]:
        """Yields a report per kind and file; mismatches of offset indexes come last entry first, as in Kafka's tool."""
        for title, by_path in self._found.items():
            for path, lines in by_path.items():
                ordered = lines[::-1] if title.startswith("Mismatches") else list(lines)
                if self._omitted[title, path]:
                    ordered.append(f"  and {self._omitted[title, path]} more")
                wrong = not title.startswith("Non-consecutive")
                yield Report("\n".join((title.format(path.absolute()), *ordered)), wrong)

    def _add(self, title: str, path: Path, line: str) -> None:
        lines = self._found[title].setdefault(path, [])
        if len(lines) < _MOST_LINES:
            lines.append(line)
        else:
            self._omitted[title, path] += 1
