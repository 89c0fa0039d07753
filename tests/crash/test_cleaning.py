"""A cleaning round whose power is cut at every change of the file system: the old records or the new, none lost."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from seglog.model import Record
from seglog.storage.filesystem import FileSystem
from tests.support.cleaning import append, clean, compacted_log, contents, hold_no_batch
from tests.support.crash_filesystem import CrashFileSystem, PowerCut
from tests.support.open_logs import START_MS
from tests.support.reference_cleaner import survivors


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    chance = random.Random(5)
    log = compacted_log(tmp_path, segment_bytes=900)
    append(log, [Record(b"v%d" % i, b"k%d" % chance.randrange(9), START_MS + i) for i in range(90)], 6)
    log.roll()
    log.close()
    return tmp_path


def winners(folder: Path, fs: FileSystem) -> dict[bytes, bytes | None]:
    """Key → last value, as a consumer that reads everything sees it; opened as after a crash."""
    log = compacted_log(folder, fs=fs, clean=False, segment_bytes=900)
    found = {key: value for _, key, value in contents(log) if key is not None}
    assert log.log_end_offset == 90
    log.close()
    return found


@pytest.mark.parametrize("held", [True, False])
def test_a_cut_anywhere_loses_no_surviving_record(folder: Path, held: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not held:
        hold_no_batch(monkeypatch)
    expected = winners(folder, CrashFileSystem.of(folder))
    total = None
    for cut in range(10_000):
        fs = CrashFileSystem.of(folder)
        log = compacted_log(folder, fs=fs, segment_bytes=900)
        fs.cut_at(cut)
        try:
            clean(log)
        except PowerCut:
            for seed in range(2):
                assert winners(folder, fs.survivor(seed)) == expected, fs.trace[-5:]
            continue
        total = cut
        break
    assert total is not None and total > 20


def test_what_was_cleaned_before_a_cut_is_cleaned(folder: Path) -> None:
    fs = CrashFileSystem.of(folder)
    log = compacted_log(folder, fs=fs, segment_bytes=900)
    expected = survivors(list(log.records()))
    clean(log)
    survivor = compacted_log(folder, fs=fs.survivor(1), clean=False, segment_bytes=900)
    assert contents(survivor) == expected
