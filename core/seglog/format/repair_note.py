"""What a repair leaves in a partition beside its log: which offsets went with damage at the end of a segment.

    .seglog-repaired-<run>      {"version":1,"run":"20261123T124512Z-9f3a","gaps":[[20,29]]}

Such a gap looks like one that a lost segment leaves. The note lies where the gap is, so that it is known wherever the
quarantine is, when that is purged, and in a copy of the partition. Brokers pass over the file. It is evidence, as a
checkpoint is, and never obeyed: whoever can write it can write the log, too.
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
    """The note's file name, of a run's own name."""
    return f"{REPAIR_NOTE_PREFIX}{run}"


def encode_note(run: str, gaps: Sequence[Gap]) -> bytes:
    """A note's bytes."""
    note = {"version": _VERSION, "run": run, "gaps": [list(gap) for gap in gaps]}
    return json.dumps(note, separators=(",", ":")).encode() + b"\n"


def parse_note(data: bytes, path: Path) -> tuple[Gap, ...]:
    """The gaps that a note tells of. CorruptionError where it is none of ours."""
    try:
        note = json.loads(data)
        version, gaps = note["version"], tuple((first, last) for first, last in note["gaps"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptionError(path, f"the note of a repair cannot be read ({error})") from error
    if version != _VERSION or not all(_is_gap(*gap) for gap in gaps):
        raise CorruptionError(path, "the note of a repair is of another version, or holds no ranges of offsets")
    return gaps


def _is_gap(first: object, last: object) -> bool:
    return type(first) is int and type(last) is int and 0 <= first <= last <= INT64_MAX
