"""Notes of repairs: a file in the partition that records the offsets lost with damage at the end of a segment.

    .seglog-repaired-<run>      {"version":1,"run":"20261123T124512Z-9f3a","gaps":[[20,29]]}

Such a gap looks like that of a lost segment. Because the note lies in the partition, it is found wherever the
quarantine is, after that is purged, and in a copy of the partition. Brokers ignore the file. Like a checkpoint, it is
evidence that is never obeyed: anybody who can write it can write the log, too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from seglog.errors import CorruptionError
from seglog.format.filenames import REPAIR_NOTE_PREFIX
from seglog.layout import INT64_MAX

NOTE_BYTES_LIMIT = 4 << 20
_VERSION = 1

Gap = tuple[int, int]  # first and last offset


def note_name(run: str) -> str:
    """Returns the file name of a run's note."""
    return f"{REPAIR_NOTE_PREFIX}{run}"


def encode_note(run: str, gaps: Sequence[Gap]) -> bytes:
    """Returns a note's bytes."""
    note = {"version": _VERSION, "run": run, "gaps": [list(gap) for gap in gaps]}
    return json.dumps(note, separators=(",", ":")).encode() + b"\n"


def parse_note(data: bytes, path: Path) -> tuple[Gap, ...]:
    """Returns the gaps in a note. Raises CorruptionError if it is not a valid note."""
    try:
        note = json.loads(data)
        version, gaps = note["version"], tuple((first, last) for first, last in note["gaps"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptionError(path, f"the note of a repair cannot be read ({error})") from error
    if version != _VERSION or not all(_is_gap(*gap) for gap in gaps):
        raise CorruptionError(path, "the note of a repair has another version, or invalid ranges of offsets")
    return gaps


def _is_gap(first: object, last: object) -> bool:
    return type(first) is int and type(last) is int and 0 <= first <= last <= INT64_MAX
