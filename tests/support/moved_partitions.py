"""Partitions with several directories, as cut-short moves between log directories, deletions and strays leave them.

The controller's log of the fixture `4.3.0/clean` records the first directory, `a`, for every partition; `b` is a second
one of the same broker. Each state uses a partition of its own, so that one start of a broker shows the fate of all.
`FATES` is what a 4.3.0 broker did: `tests/interop/test_moved_partitions.py` asks one again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.support.fixtures import fixture_copy

_UNIQUE = "0123456789abcdef0123456789abcdef"
_SECOND_ID = "bIppSnnOtj9TkVH3xtavWg"


@dataclass(frozen=True)
class Fate:
    """The log's end before; the end of what the broker served (exclusive), and from which directory; doctor's codes."""

    end: int
    served_end: int
    directory: str
    codes: frozenset[str]


FATES = {
    "orders-none-0": Fate(790, 0, "a", frozenset({"FUTURE_PROMOTED"})),
    "orders-gzip-0": Fate(790, 790, "a", frozenset()),
    "orders-lz4-0": Fate(790, 0, "b", frozenset({"FUTURE_CUT"})),
    "orders-snappy-0": Fate(790, 0, "b", frozenset({"FUTURE_CUT", "LOG_END_MISSING"})),
    "orders-zstd-0": Fate(790, 0, "a", frozenset({"DELETED_HOLDS_RECORDS"})),
    "both-0": Fate(2400, 2400, "b", frozenset()),
    "customers-0": Fate(1196, 0, "a", frozenset({"DELETED_HOLDS_RECORDS", "LOG_END_MISSING"})),
    "payments-0": Fate(400, 400, "a", frozenset()),
    "customers-1": Fate(1204, 0, "a", frozenset({"STRAY_HOLDS_RECORDS"})),
}


def moved_partitions(root: Path) -> tuple[Path, Path]:
    """Makes the directories a and b with a state for each partition in `FATES`."""
    a, b = fixture_copy("4.3.0/clean", root), root / "b"
    a = a.rename(root / "a")
    b.mkdir()
    for name in ("meta.properties", "bootstrap.checkpoint", ".kafka_cleanshutdown"):
        if (a / name).exists():
            shutil.copy2(a / name, b / name)
    lines = (a / "meta.properties").read_text().splitlines()
    own = next(line for line in lines if line.startswith("directory.id="))
    (b / "meta.properties").write_text((a / "meta.properties").read_text().replace(own, f"directory.id={_SECOND_ID}"))
    for name, make in _STATES.items():
        make(a / name, b / name)
    return a, b


def beside_its_future(partition: Path) -> Path:
    """Puts an empty future copy beside a partition; returns it."""
    return emptied(partition, _named(partition, "future"))


def emptied(partition: Path, copy: Path | None = None) -> Path:
    """Makes an empty copy of a partition, or without `copy` empties the partition itself."""
    to = partition if copy is None else copy
    to.mkdir(exist_ok=True)
    if to != partition:
        shutil.copy2(partition / "partition.metadata", to)
    for path in to.glob("0*"):
        path.unlink()
    for suffix in (".log", ".index", ".timeindex"):
        (to / f"{0:020d}{suffix}").touch()
    (to / "leader-epoch-checkpoint").write_text("0\n0\n")
    return to


def _named(partition: Path, state: str) -> Path:
    return partition.with_name(f"{partition.name}.{_UNIQUE}-{state}")


def _moved_with_an_empty_future(a: Path, b: Path) -> None:
    a.rename(b)
    emptied(b, _named(a, "future"))


def _only_a_future(a: Path, _b: Path) -> None:
    a.rename(_named(a, "future"))


def _only_a_future_elsewhere(a: Path, b: Path) -> None:
    a.rename(_named(b, "future"))


def _emptied_with_a_future_elsewhere(a: Path, b: Path) -> None:
    shutil.copytree(a, _named(b, "future"))
    emptied(a)


def _only_a_deleted_one(a: Path, _b: Path) -> None:
    a.rename(_named(a, "delete"))


def _move_under_way(a: Path, b: Path) -> None:
    emptied(a, _named(b, "future"))


def _emptied_with_a_deleted_one(a: Path, b: Path) -> None:
    shutil.copytree(a, _named(b, "delete"))
    emptied(a)


def _moved_with_a_whole_future(a: Path, b: Path) -> None:
    shutil.copytree(a, b)
    a.rename(_named(a, "future"))


def _stray_with_an_empty_future(a: Path, b: Path) -> None:
    a.rename(_named(b, "stray"))
    emptied(_named(b, "stray"), _named(a, "future"))


_STATES: dict[str, Callable[[Path, Path], None]] = {
    "orders-none-0": _moved_with_an_empty_future,
    "orders-gzip-0": _only_a_future,
    "orders-lz4-0": _only_a_future_elsewhere,
    "orders-snappy-0": _emptied_with_a_future_elsewhere,
    "orders-zstd-0": _only_a_deleted_one,
    "both-0": _move_under_way,
    "customers-0": _emptied_with_a_deleted_one,
    "payments-0": _moved_with_a_whole_future,
    "customers-1": _stray_with_an_empty_future,
}
