"""Collects the mismatches that kafka-dump-log prints after all files (Kafka: DumpLogSegments, TimeIndexDumpErrors)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

_MOST_LINES = 100_000  # per kind and file; more are only counted


@dataclass(frozen=True, slots=True)
class Report:
    """Lines for stderr, without the last line feed; `wrong` if they report a defect."""

    text: str
    wrong: bool = True


class Mismatch(Enum):
    """A kind of mismatch: Kafka's title for those of a file, and the line for two offsets or timestamps, in this order.

    INDEX: an offset entry, and the last offset of the batch at its position. TIMESTAMP: a time entry, and the largest
    timestamp of its batch. ORDER: a time entry that is not later than the one before. NOT_FOUND: a time entry whose
    offset is not the last one of a batch, and the offset that is found. GAP: two records whose offsets are not
    consecutive.
    """

    INDEX = "Mismatches in :{}", "  Index offset: {}, log offset: {}"
    TIMESTAMP = "Found timestamp mismatch in :{}", "  Index timestamp: {}, log timestamp: {}"
    ORDER = "Found out of order timestamp in :{}", "  Index timestamp: {}, Previously indexed timestamp: {}"
    NOT_FOUND = (
        "The following indexed offsets are not found in :{}",
        "Indexed offset: {}, found log offset: {}",
    )
    GAP = "Non-consecutive offsets in {}", "  {} is followed by {}"


class Reports:
    """Collects mismatches during the dump and reports them grouped by kind and file, as Kafka's tool does."""

    def __init__(self) -> None:
        self._found: dict[Mismatch, dict[Path, list[str]]] = {kind: {} for kind in Mismatch}
        self._omitted: Counter[tuple[Mismatch, Path]] = Counter()

    def note(self, kind: Mismatch, path: Path, one: int, other: int) -> None:
        """Notes a mismatch in a file."""
        lines = self._found[kind].setdefault(path, [])
        if len(lines) < _MOST_LINES:
            lines.append(kind.value[1].format(one, other))
        else:
            self._omitted[kind, path] += 1

    def all(self) -> Iterator[Report]:
        """Yields a report per kind and file; mismatches of offset indexes come last entry first, as in Kafka's tool."""
        for kind, by_path in self._found.items():
            for path, lines in by_path.items():
                ordered = lines[::-1] if kind is Mismatch.INDEX else list(lines)
                if self._omitted[kind, path]:
                    ordered.append(f"  and {self._omitted[kind, path]} more")
                title = kind.value[0].format(path.absolute())
                yield Report("\n".join((title, *ordered)), wrong=kind is not Mismatch.GAP)
