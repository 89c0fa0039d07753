"""Dry runs beside a broker that deletes a partition meanwhile, or makes it anew."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import pytest

import seglog
from seglog.clock import FixedClock
from seglog.operations.clean import Skipped
from seglog.operations.retain import Retained
from seglog.storage.filesystem import FileStatus, OpenMode
from seglog.storage.local import LocalFile, LocalFileSystem
from tests.support.fixtures import fixture_copy
from tests.support.log_files import batch, write_segment

SOON_MS = 1_795_305_600_000  # 2026-11-22: before the fixture's min.compaction.lag.ms of 30 days has passed
MEANWHILE = pytest.mark.parametrize("anew", [False, True], ids=["deleted", "made anew"])


class DeletingAtACall(LocalFileSystem):
    """A partition is gone, or waits to be deleted, before the `number`-th call. `calls` are those so far."""

    def __init__(self, partition: Path, number: int, *, renamed: bool) -> None:
        self._partition, self._number, self._renamed, self.calls = partition, number, renamed, 0

    def _called(self) -> None:
        self.calls += 1
        if self.calls == self._number and self._renamed:
            self._partition.rename(self._partition.with_name(f"{self._partition.name}.{'0a' * 16}-delete"))
        elif self.calls == self._number:
            shutil.rmtree(self._partition)

    def open(self, path: Path, mode: OpenMode) -> LocalFile:
        self._called()
        return super().open(path, mode)

    def status(self, path: Path, follow: bool = True) -> FileStatus | None:
        self._called()
        return super().status(path, follow)

    def list(self, directory: Path) -> list[str]:
        self._called()
        return super().list(directory)

    def entries(self, directory: Path) -> Sequence[tuple[str, FileStatus]]:
        self._called()
        return super().entries(directory)


LOOKS: dict[str, Callable[..., Iterable[object]]] = {
    "clean": seglog.plan_clean,
    "doctor": seglog.doctor,
    "retain": partial(seglog.plan_retain, retention_ms=1),
    "stats": seglog.stats,
    "stats with sizing": partial(seglog.stats, sizing=True),
    "verify": seglog.verify,
}


@pytest.mark.parametrize("renamed", [False, True], ids=["deleted", "renamed"])
@pytest.mark.parametrize("look", LOOKS)
def test_a_look_ends_well_wherever_in_it_a_broker_deletes_a_partition(look: str, renamed: bool, tmp_path: Path) -> None:
    calls = number = 1
    while number <= calls:
        logs = tmp_path / str(number)
        for name in ("t-0", "t-1", "t-2"):
            write_segment(logs / name, 0, batch(0, 3))
            write_segment(logs / name, 3, batch(3, 3))
        (logs / ".kafka_cleanshutdown").touch()
        fs = DeletingAtACall(logs / "t-1", number, renamed=renamed)
        list(LOOKS[look](logs, fs=fs))
        calls, number = fs.calls, number + 1
    assert number > 20


class Deleting(LocalFileSystem):
    """A partition is gone when it is listed for the `number`-th time, and with `anew` there again after that."""

    def __init__(self, partition: Path, number: int, *, anew: bool) -> None:
        self._partition, self.left, self._anew = partition, number, anew

    def list(self, directory: Path) -> list[str]:
        self._listed(directory)
        return super().list(directory)

    def entries(self, directory: Path) -> Sequence[tuple[str, FileStatus]]:
        self._listed(directory)
        return super().entries(directory)

    def _listed(self, directory: Path) -> None:
        if directory == self._partition:
            self.left -= 1
            if self.left == 0 and self._anew:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(directory))
            if self.left == 0:
                shutil.rmtree(directory)


@MEANWHILE
@pytest.mark.parametrize("number", range(1, 6))
def test_a_partition_that_a_broker_deletes_meanwhile_is_left_out_by_retain(
    tmp_path: Path, number: int, anew: bool
) -> None:
    data = fixture_copy("4.3.0/clean", tmp_path)
    fs = Deleting(data / "orders-none-0", number, anew=anew)
    outcomes = seglog.plan_retain(data, fs=fs)
    assert fs.left <= 0
    retained = [outcome for outcome in outcomes if isinstance(outcome, Retained)]
    assert retained == outcomes
    assert {"orders-lz4-0", "customers-0"} <= {str(outcome.plan.topic_partition) for outcome in retained}


@MEANWHILE
@pytest.mark.parametrize(
    ("name", "number"),
    [*(("customers-0", number) for number in (1, 2)), *(("customers-uncleaned-0", number) for number in (1, 2, 3))],
)  # the names of the first tell that nothing is due: it is listed once
def test_a_partition_that_a_broker_deletes_meanwhile_is_left_out_by_clean(
    tmp_path: Path, name: str, number: int, anew: bool
) -> None:
    data = fixture_copy("4.3.0/clean", tmp_path)
    fs = Deleting(data / name, number, anew=anew)
    outcomes = seglog.plan_clean(data, fs=fs, clock=FixedClock(SOON_MS))
    assert fs.left <= 0
    skipped = [outcome for outcome in outcomes if isinstance(outcome, Skipped)]
    assert skipped == outcomes
    assert "customers-1" in {outcome.directory.name for outcome in skipped}
