"""Gauges as a text file for Prometheus (node_exporter's textfile collector), replaced as a whole at each writing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from seglog.storage import links
from seglog.storage.filesystem import FileSystem, write_atomically

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclass(frozen=True, slots=True)
class Gauge:
    """A gauge: its name, what it means, and its values, each with labels."""

    name: str
    help: str
    samples: Sequence[tuple[Mapping[str, str], float]]


def gauges_text(gauges: Iterable[Gauge]) -> str:
    """Returns the gauges in Prometheus' text format 0.0.4."""
    lines: list[str] = []
    for gauge in gauges:
        lines += [f"# HELP {gauge.name} {gauge.help}", f"# TYPE {gauge.name} gauge"]
        for labels, value in gauge.samples:
            written = ",".join(f'{name}="{text.translate(_ESCAPES)}"' for name, text in labels.items())
            lines.append(f"{gauge.name}{{{written}}} {int(value) if value == int(value) else round(value, 6)!r}")
    return "\n".join(lines) + "\n"


def is_gauges_file(fs: FileSystem, path: Path, first: str) -> bool:
    """True if a file is missing or empty, or has gauges of which the first is named `first`. Raises OSError."""
    status = fs.status(path)
    if status is None or status.no_file:
        return status is None
    start = f"# HELP {first} ".encode()
    with fs.open(path, "r") as file:
        return file.read_at(0, len(start)) in (b"", start)


def write_gauges(fs: FileSystem, path: Path, gauges: Iterable[Gauge]) -> None:
    """Replaces the text file at `path`, or the one that a link there names. Raises OSError if it cannot be written."""
    write_atomically(fs, links.resolve(path), gauges_text(gauges).encode("utf-8", "replace"))
