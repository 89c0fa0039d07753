"""Removing runs for good, also when that was cut short."""

from __future__ import annotations

import itertools
from pathlib import Path

from seglog.clock import FixedClock
from seglog.configuration.keys import LogConfig
from seglog.errors import NotALogError
from seglog.operations.keeping import Keeper
from seglog.operations.truncate import cut_log
from seglog.repairs.undo.journal import RunRecord, read_journal
from seglog.repairs.undo.quarantine import purge_left_over, purge_run, runs_in
from seglog.storage.local import LocalFileSystem
from tests.support.faulty_filesystem import Faults, FaultyFileSystem
from tests.support.log_files import batch, write_segment

FS = LocalFileSystem()


def run_of(logs: Path) -> RunRecord:
    """A run that keeps what was cut off a log."""
    partition = logs / "t-0"
    for path in partition.glob("*"):
        path.unlink()
    write_segment(partition, 0, batch(0, 5), batch(5, 5))
    run = cut_log(Keeper(FS, FixedClock(5000), lambda _: LogConfig(), "truncate"), partition, 5, None).run
    assert run is not None
    return run


def test_a_purge_that_failed_at_any_call_is_finished_by_another(tmp_path: Path) -> None:
    left_over = 0
    for at in itertools.count():
        run, faults = run_of(tmp_path / "logs"), Faults(at, "error")
        quarantine = run.folder.parent
        try:
            purge_run(FaultyFileSystem(faults), read_journal(FS, run.folder))
        except OSError:
            (told,) = runs_in(FS, quarantine)
            if isinstance(told, RunRecord):
                purge_run(FS, told)
            else:
                assert isinstance(told, NotALogError)
                assert f"{run.folder}: empty" in str(told) and f"purge {run.name}" in str(told)
                assert purge_left_over(FS, run.name, [quarantine]) == run.folder
                left_over += 1
            assert not run.folder.exists()
            continue
        assert (at > 3, left_over) == (True, 1)
        return


def test_no_folder_but_an_empty_one_of_a_run_is_removed_as_left_over(tmp_path: Path) -> None:
    quarantine = run_of(tmp_path / "logs").folder.parent
    kept = quarantine / "20261121T015349Z-7f3a"
    (quarantine / "mine").mkdir()
    kept.mkdir()
    (kept / "file").write_bytes(b"")
    for name in ("mine", kept.name, ".", "", "..", str(quarantine)):
        assert purge_left_over(FS, name, [quarantine]) is None
    assert (quarantine / "mine").is_dir() and (kept / "file").is_file()
