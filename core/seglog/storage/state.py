"""Where seglog keeps what it remembers of its own doing: never in a log directory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def state_directory(environment: Mapping[str, str]) -> Path:
    """Returns the directory of seglog's own state: `$XDG_STATE_HOME/seglog`, or the same below `~/.local/state`."""
    home = environment.get("XDG_STATE_HOME") or str(Path(environment.get("HOME") or "/") / ".local" / "state")
    return Path(home) / "seglog"
