"""Gauges as a text file for Prometheus (node_exporter's textfile collector), replaced as a whole at each writing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from seglog.storage import links
from seglog.storage.filesystem import FileSystem, write_atomically


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
            written = ",".join(f'{name}="{_label(text)}"' for name, text in labels.items())
            lines.append(f"{gauge.name}{{{written}}} {_number(float(value))}")
    return "\n".join(lines) + "\n"


def is_gauges_file(fs: FileSystem, path: Path, first: str) -> bool:
    """True if `write_gauges` would replace nothing but gauges of which the first is named `first`: no file, an empty
    one, or one that begins so. Raises OSError if the file cannot be read.
    """
    status = fs.status(path)
    if status is None:
        return True
    if status.no_file:
        return False
    start = f"# HELP {first} ".encode()
    with fs.open(path, "r") as file:
        return file.read_at(0, len(start)) in (b"", start)


def write_gauges(fs: FileSystem, path: Path, gauges: Iterable[Gauge]) -> None:
    """Replaces the text file at `path`, or the one that a link there names. Raises OSError if it cannot be written."""
    write_atomically(fs, links.resolve(path), gauges_text(gauges).encode("utf-8", "replace"))


def _label(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(round(value, 6))
