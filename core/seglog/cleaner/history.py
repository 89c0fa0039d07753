"""What cleaning did before: the figures of past rounds, kept under `$XDG_STATE_HOME/seglog`, never in a log directory.

One file a log directory, `cleaning/<digest of its path>.jsonl`, a JSON object a round, the newest last; only the newest
`MOST_ROUNDS` are kept. Only the process that holds the directory's lock writes it. A line that cannot be read is passed
over: history is a convenience, and never in the way of cleaning.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from seglog.cleaner.stats import CleaningResult
from seglog.storage import links
from seglog.storage.atomic import write_atomically
from seglog.storage.filesystem import FileSystem

MOST_ROUNDS = 500

# What readers of the history rely on.
_FIGURES = (
    *("time", "first_dirty_offset", "end_offset", "bytes_read", "bytes_written", "records_read", "records_written"),
    *("buffer_utilization", "index_passes", "index_seconds", "clean_seconds"),
)

Round = dict[str, Any]


def state_directory(environment: Mapping[str, str]) -> Path:
    """Where seglog keeps what it knows of its own doing: `$XDG_STATE_HOME/seglog`, or below `~/.local/state`."""
    home = environment.get("XDG_STATE_HOME") or str(Path(environment.get("HOME") or "/") / ".local" / "state")
    return Path(home) / "seglog"


class CleaningHistory:
    """The rounds of the partitions of `log_directory`, in the file `path`."""

    def __init__(self, fs: FileSystem, state: Path, log_directory: Path) -> None:
        self._fs, self.log_directory = fs, links.resolve(log_directory)
        digest = hashlib.sha256(str(self.log_directory).encode("utf-8", "surrogateescape")).hexdigest()[:16]
        self.path = state / "cleaning" / f"{digest}.jsonl"

    def rounds(self, partition: str | None = None) -> list[Round]:
        """The rounds that are kept, oldest first; of one partition, or of all."""
        if self._fs.status(self.path) is None:
            return []
        found = [_parsed(line) for line in self._fs.read_bytes(self.path).splitlines()]
        rounds = [round_ for round_ in found if round_ is not None]
        return [round_ for round_ in rounds if partition is None or round_.get("partition") == partition]

    def add(self, results: Iterable[CleaningResult], now_ms: int) -> None:
        """Keeps rounds that ended at `now_ms` (epoch milliseconds). OSError when the file cannot be written."""
        new = [_entry(result, now_ms, self.log_directory) for result in results]
        if not new:
            return
        kept = [*self.rounds(), *new][-MOST_ROUNDS:]
        self._fs.make_directory(self.path.parent, parents=True)
        lines = (json.dumps(round_, separators=(",", ":")) + "\n" for round_ in kept)
        write_atomically(self._fs, self.path, "".join(lines).encode())


def _entry(result: CleaningResult, now_ms: int, log_directory: Path) -> Round:
    facts = result.to_json()
    for name in ("segments_before", "segments_after"):
        facts[name] = {"count": len(facts[name]), "size": sum(segment["size"] for segment in facts[name])}
    return {"time": now_ms, "directory": str(log_directory), **facts}


def _parsed(line: bytes) -> Round | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not isinstance(found.get("partition"), str):
        return None
    return found if all(_is_count(found.get(name)) for name in _FIGURES) else None


def _is_count(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value < 2**63
