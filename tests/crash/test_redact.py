"""An erasure whose power is cut at every change: each segment is the old one or the new one, and no other file has the
old bytes; the same request again ends it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from seglog.log.log import Log
from seglog.model import Record
from seglog.redaction.applying import apply_found
from seglog.redaction.finding import FoundRecords, SearchOrder, find_records
from seglog.redaction.rewriting import Erasure
from seglog.scan.key_set import KeySet
from seglog.scan.selection import Selection
from seglog.storage.filesystem import FileSystem
from tests.support.crash_filesystem import CrashFileSystem, PowerCut
from tests.support.open_logs import START_MS, opened_log

pytestmark = pytest.mark.slow  # the power is cut at every change

SECRET = b"what the customer wants forgotten"
SELECTION = Selection(keys=KeySet([b"k3"]))


def opened(folder: Path, fs: FileSystem | None, *, clean: bool = True) -> Log:
    return opened_log(folder / "t-0", fs=fs, clean=clean, segment_bytes=900, index_interval_bytes=100)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with opened(tmp_path, None) as log:
        for i in range(30):
            value = SECRET if i % 7 == 3 else b"other %d" % i
            log.append([Record(value, b"k3" if i % 7 == 3 else b"k%d" % (10 + i), START_MS + i)])
    return tmp_path


def found_in(log: Log) -> FoundRecords:
    return find_records(log.fs, SearchOrder.of(log, SELECTION, Erasure()), lambda records, mask: None)


def erase(log: Log) -> None:
    apply_found(log, found_in(log), Erasure())


def values(folder: Path, fs: FileSystem) -> list[bytes | None]:
    """As a starting broker would serve them after a crash."""
    log = opened(folder, fs, clean=False)
    found = [record.value for record in log.records()]
    log.close()
    return found


def files_with_secret(fs: CrashFileSystem, folder: Path) -> list[str]:
    return [name for name, data in fs.contents(folder / "t-0").items() if SECRET in data]


def test_a_cut_anywhere_leaves_old_or_new_segments_and_no_third_file(folder: Path) -> None:
    old = values(folder, CrashFileSystem.of(folder))
    new = [None if value == SECRET else value for value in old]
    live = {path.name for path in (folder / "t-0").glob("*.log")}
    seen = set()
    for cut in range(10_000):
        fs = CrashFileSystem.of(folder)
        log = opened(folder, fs)
        fs.cut_at(cut, fraction=0.5)
        try:
            erase(log)
        except PowerCut:
            for seed in range(2):
                survivor = fs.survivor(seed)
                assert {Path(name).name for name in files_with_secret(survivor, folder)} <= live, fs.trace[-5:]
                found = values(folder, survivor)
                assert all(each in (before, after) for each, before, after in zip(found, old, new, strict=True))
                seen.add(found.count(None))
                again = opened(folder, survivor, clean=False)
                erase(again)
                again.close()
                assert values(folder, survivor) == new
                assert files_with_secret(survivor, folder) == []
            continue
        break
    assert cut > 20
    assert {0, new.count(None)} <= seen


def test_an_erasure_that_fails_leaves_no_file_behind(folder: Path) -> None:
    """A disk that is full in the middle: the segments that were not replaced are as they were."""
    before = {path.name for path in (folder / "t-0").iterdir()}
    fs = CrashFileSystem.of(folder)
    log = opened(folder, fs)
    found = found_in(log)
    fs.fill_disk_after(300)
    fs.free_bytes = lambda path: 1 << 30  # type: ignore[method-assign]
    with pytest.raises(OSError, match="No space"):
        apply_found(log, found, Erasure())
    fs.fill_disk_after(1 << 30)
    assert {Path(name).name for name in fs.contents(folder / "t-0")} == before
    assert np.array_equal(values(folder, fs), values(folder, CrashFileSystem.of(folder)))
