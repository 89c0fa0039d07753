"""What kafka-dump-log prints to stderr after all files (Kafka: DumpLogSegments, TimeIndexDumpErrors)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_MOST_LINES = 100_000  # of one kind and file; the rest is counted


@dataclass(frozen=True, slots=True)
class Report:
    """Lines for stderr, without the last line feed. `wrong` is whether they say that something is."""

    text: str
    wrong: bool = True


class Reports:
    """Collects mismatches while files are dumped, and tells them grouped by file as Kafka's tool does."""

    def __init__(self) -> None:
        self._found: dict[str, dict[Path, list[str]]] = {
            "Mismatches in :{}": {},
            "Found timestamp mismatch in :{}": {},
            "Found out of order timestamp in :{}": {},
            "The following indexed offsets are not found in :{}": {},
            "Non-consecutive offsets in {}": {},
        }

    def index_mismatch(self, path: Path, index_offset: int, log_offset: int) -> None:
        """An offset entry that does not equal the last offset of the batch at its position."""
        self._add("Mismatches in :{}", path, f"  Index offset: {index_offset}, log offset: {log_offset}")

    def timestamp_mismatch(self, path: Path, index_timestamp: int, log_timestamp: int) -> None:
        """A time entry that does not equal the largest timestamp of its batch."""
        line = f"  Index timestamp: {index_timestamp}, log timestamp: {log_timestamp}"
        self._add("Found timestamp mismatch in :{}", path, line)

    def timestamp_out_of_order(self, path: Path, timestamp: int, before: int) -> None:
        """A time entry that is not above the one before."""
        line = f"  Index timestamp: {timestamp}, Previously indexed timestamp: {before}"
        self._add("Found out of order timestamp in :{}", path, line)

    def offset_not_found(self, path: Path, index_offset: int, log_offset: int) -> None:
        """A time entry whose offset ends no batch."""
        line = f"Indexed offset: {index_offset}, found log offset: {log_offset}"
        self._add("The following indexed offsets are not found in :{}", path, line)

    def non_consecutive(self, path: Path, before: int, offset: int) -> None:
        """Two records that follow each other, but not in their offsets."""
        self._add("Non-consecutive offsets in {}", path, f"  {before} is followed by {offset}")

    def all(self) -> Iterator[Report]:
        """A report for each kind and file; mismatches of offset indexes last entry first, as Kafka's are."""
        for title, by_path in self._found.items():
            for path, lines in by_path.items():
                ordered = lines[::-1] if title.startswith("Mismatches") else lines
                wrong = not title.startswith("Non-consecutive")
                yield Report("\n".join((title.format(path.absolute()), *ordered)), wrong)

    def _add(self, title: str, path: Path, line: str) -> None:
        lines = self._found[title].setdefault(path, [])
        if len(lines) < _MOST_LINES:
            lines.append(line)
