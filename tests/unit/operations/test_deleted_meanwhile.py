"""Dry runs beside a broker that deletes a partition meanwhile, or makes it anew."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

import seglog
from seglog.operations.clean import Skipped
from seglog.operations.retain import Retained
from seglog.storage.filesystem import FileStatus
from seglog.storage.local import LocalFileSystem
from tests.support.fixtures import fixture_copy

MEANWHILE = pytest.mark.parametrize("anew", [False, True], ids=["deleted", "made anew"])


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
@pytest.mark.parametrize("number", range(1, 4))
def test_a_partition_that_a_broker_deletes_meanwhile_is_left_out_by_clean(
    tmp_path: Path, number: int, anew: bool
) -> None:
    data = fixture_copy("4.3.0/clean", tmp_path)
    fs = Deleting(data / "customers-0", number, anew=anew)
    outcomes = seglog.plan_clean(data, fs=fs)
    assert fs.left <= 0
    skipped = [outcome for outcome in outcomes if isinstance(outcome, Skipped)]
    assert skipped == outcomes
    assert "customers-1" in {outcome.directory.name for outcome in skipped}
