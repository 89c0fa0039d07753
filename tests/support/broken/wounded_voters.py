"""The states of a dynamic quorum: who has a vote, by the records that name the voters and by `meta.properties`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.support.broken.wounded_starts import (
    DYNAMIC,
    LOGS,
    METADATA,
    Change,
    State,
    filled,
    half,
    replaced,
    snapshot_name,
    sound,
    wounded,
)


def of_voters() -> Iterator[State]:
    """Identities that are those of a voter, or not, and what names the voters."""
    meta, snapshot = "meta.properties", f"{METADATA}/{snapshot_name(0, 0)}"
    yield sound("dynamic")
    yield wounded("dynamic", LOGS, meta, "another directory.id", _with_directory_id("AAAAAAAAAAAAAAAAAAAAfw"), DYNAMIC)
    yield wounded("dynamic", LOGS, meta, "no directory.id", _with_directory_id(""), DYNAMIC)
    yield wounded(
        "dynamic", LOGS, meta, "another node.id", replaced("node.id=1", "node.id=7"), {**DYNAMIC, "node.id": "7"}
    )
    yield wounded("dynamic", LOGS, snapshot, "empty", filled(b""), DYNAMIC)
    yield wounded("dynamic", LOGS, snapshot, "half", half, DYNAMIC)
    yield wounded("clean", LOGS, meta, "a directory.id of nobody", _with_directory_id("AAAAAAAAAAAAAAAAAAAAfw"))


def _with_directory_id(directory_id: str) -> Change:
    def change(path: Path) -> None:
        lines = [line for line in path.read_text().splitlines() if not line.startswith("directory.id=")]
        path.write_text("\n".join([*lines, *([f"directory.id={directory_id}"] if directory_id else []), ""]))

    return change
