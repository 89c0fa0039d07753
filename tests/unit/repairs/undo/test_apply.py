"""A run's changes, one kind each: made, made again, taken back; and what is refused when files are others by then."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from seglog.errors import RefusedError
from seglog.format.filenames import CLEAN_SHUTDOWN_FILE
from seglog.repairs.undo.apply import (
    apply_run,
    check_result,
    finish_run,
    settle_pending,
    take_back_after,
    undo_run,
)
from seglog.repairs.undo.journal import Change, ChangeKind, FileFacts, Journal, RunRecord, RunState, read_journal
from seglog.repairs.undo.prepare import prepare_run
from seglog.repairs.undo.quarantine import BARRIER, crc_of, facts_of, mark_pending, pending_run
from seglog.repairs.undo.since import ChangedSinceError
from seglog.storage.files import copy_bytes
from seglog.storage.filesystem import FileSystem, PassingFileSystem
from seglog.storage.local import LocalFileSystem
from tests.support.log_files import FS, files_of
from tests.support.manual_clock import ManualClock
from tests.support.open_logs import START_MS

CUT, REPLACED, REMOVED, NEW, SWAP, MOVED = (
    f"t-0/{name}"
    for name in (
        "00000000000000000000.log",
        "00000000000000000010.log",
        "00000000000000000020.log",
        "00000000000000000010.index",
        "00000000000000000030.log.swap",
        "00000000000000000030.log",
    )
)
BEFORE = {CUT: b"front and tail", REPLACED: b"old", REMOVED: b"goes", SWAP: b"moves", CLEAN_SHUTDOWN_FILE: b""}
AFTER = {CUT: b"front", REPLACED: b"new contents", NEW: b"made", MOVED: b"moves", CLEAN_SHUTDOWN_FILE: b""}


@dataclass
class Prepared:
    """A run of one change of each kind over a log directory, prepared."""

    logs: Path
    run: RunRecord
    journal: Journal

    def apply(self, fs: FileSystem = FS) -> RunRecord:
        apply_run(fs, self.run, self.journal)
        return read_journal(FS, self.run.folder)

    def finish(self) -> RunRecord:
        finish_run(FS, self.apply(), self.journal)
        return read_journal(FS, self.run.folder)

    def contents(self) -> dict[str, bytes]:
        """The log directory's own files, without what the run keeps beside them."""
        return {name: (self.logs / name).read_bytes() for name in {*BEFORE, *AFTER} if (self.logs / name).exists()}


def facts(path: Path) -> FileFacts:
    found = facts_of(FS, path)
    assert found is not None
    return found


def change(logs: Path, folder: Path, kind: ChangeKind, path: str, source: str = "", group: int = -1) -> Change:
    live = logs / path
    before = facts_of(FS, live)
    made = Change.of(kind, path, before, None, source=source, group=group)
    if kind == "cut":
        kept = len(AFTER[path])
        return replace(made, after=replace(facts(live), size=kept, crc=crc_of(FS, live, 0, kept)))
    if kind == "move":
        return replace(made, after=facts(logs / source))
    if kind == "replace":
        staged = folder / made.staged
        staged.parent.mkdir(parents=True, exist_ok=True)
        staged.write_bytes(AFTER[path])
        return replace(made, after=facts(staged))
    return made


@pytest.fixture
def prepared(tmp_path: Path) -> Prepared:
    logs = tmp_path / "logs"
    (logs / "t-0").mkdir(parents=True)
    for name, data in BEFORE.items():
        (logs / name).write_bytes(data)
        os.utime(logs / name, (1000, 1000))

    def stage(folder: Path) -> list[Change]:
        return [
            change(logs, folder, "remove", REMOVED, group=20),
            change(logs, folder, "cut", CUT, group=0),
            change(logs, folder, "replace", REPLACED, group=10),
            change(logs, folder, "replace", NEW, group=10),
            change(logs, folder, "move", MOVED, source=SWAP, group=30),
        ]

    run, journal = prepare_run(
        FS, ManualClock(START_MS), logs, stage, command="test", partitions=["t-0"], bytes_needed=0
    )
    return Prepared(logs, run, journal)


class FailingAfter(PassingFileSystem):
    """Every rename fails from the first one in the partition on."""

    failed = False

    def rename(self, source: Path, target: Path) -> None:
        self.failed |= target.parent.name == "t-0"
        if self.failed:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(target))
        super().rename(source, target)


def test_where_taking_back_fails_as_well_the_error_says_both_and_what_is_left(prepared: Prepared) -> None:
    fs = FailingAfter(FS)
    with pytest.raises(OSError, match=r"could not be taken back either .* does, and until then no broker") as raised:
        try:
            prepared.apply(fs)
        except OSError as first:
            take_back_after(first, fs, prepared.run, prepared.journal)
    assert (raised.value.errno, Path(raised.value.filename).parent.name) == (errno.EIO, "t-0")
    settle_pending(FS, prepared.logs)
    assert prepared.contents() == BEFORE


def test_an_undo_that_fails_in_the_middle_says_what_goes_on_with_it(prepared: Prepared) -> None:
    run = prepared.finish()
    with pytest.raises(OSError, match=f"{run.name} is taken back in part: the next seglog command"):
        undo_run(FailingAfter(FS), run)
    settle_pending(FS, prepared.logs)
    assert prepared.contents() == BEFORE


def test_what_a_run_left_that_was_killed_before_it_was_marked_goes_with_the_next_command(tmp_path: Path) -> None:
    (tmp_path / ".seglog-run.tmp").write_bytes(b"")
    assert settle_pending(FS, tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_every_kind_of_change_is_made_and_what_it_takes_away_is_kept(prepared: Prepared) -> None:
    run = prepared.apply()
    assert run.state is RunState.APPLIED
    assert {**prepared.contents(), CLEAN_SHUTDOWN_FILE: b""} == AFTER
    kept = {
        str(path.relative_to(run.folder / "old")): path.read_bytes() for path in (run.folder / "old").rglob("*.log")
    }
    assert kept == {CUT: b" and tail", REPLACED: b"old", REMOVED: b"goes"}
    assert (prepared.logs / CUT).stat().st_mtime == 1000


def test_a_broker_that_starts_in_the_middle_finds_no_marker(prepared: Prepared) -> None:
    run = prepared.apply()
    assert not (prepared.logs / CLEAN_SHUTDOWN_FILE).exists()
    assert pending_run(FS, prepared.logs) == run.folder
    finish_run(FS, run, prepared.journal)
    assert (prepared.logs / CLEAN_SHUTDOWN_FILE).exists()
    assert pending_run(FS, prepared.logs) is None
    assert read_journal(FS, run.folder).state is RunState.FINISHED


def test_an_applied_run_can_be_applied_again_and_finished(prepared: Prepared) -> None:
    prepared.apply()
    assert prepared.finish().state is RunState.FINISHED
    assert prepared.contents() == AFTER


def test_an_undo_gives_every_file_back_with_its_time(prepared: Prepared) -> None:
    undo_run(FS, prepared.finish())
    assert prepared.contents() == BEFORE
    assert {(prepared.logs / name).stat().st_mtime for name in BEFORE} == {1000}
    run = read_journal(FS, prepared.run.folder)
    assert run.state is RunState.UNDONE
    with pytest.raises(RefusedError, match="was undone before"):
        undo_run(FS, run)


def test_a_run_that_only_prepared_its_journal_has_nothing_to_undo(prepared: Prepared) -> None:
    with pytest.raises(RefusedError, match="changed nothing"):
        undo_run(FS, replace(prepared.run, state=RunState.STARTED))


@pytest.mark.parametrize("name", [CUT, REPLACED, REMOVED])
def test_a_file_that_changed_since_it_was_looked_at_is_left(name: str, prepared: Prepared) -> None:
    (prepared.logs / name).write_bytes(b"somebody else's")
    with pytest.raises(RefusedError, match="was changed while"):
        prepared.apply()
    assert (prepared.logs / name).read_bytes() == b"somebody else's"


def test_what_does_not_become_what_the_journal_says_is_refused(prepared: Prepared) -> None:
    (prepared.run.folder / "new" / REPLACED).write_bytes(b"New contents")
    with pytest.raises(RefusedError, match="is not what the run"):
        prepared.apply()
    assert read_journal(FS, prepared.run.folder).state is RunState.PREPARED


def test_the_result_is_read_again(prepared: Prepared) -> None:
    run = prepared.apply()
    check_result(FS, run)
    (prepared.logs / MOVED).write_bytes(b"MOVES")
    with pytest.raises(RefusedError, match=r"0030\.log is not what the run"):
        check_result(FS, run)


@pytest.mark.parametrize("name", [CUT, REPLACED, MOVED])
def test_an_undo_would_not_lose_what_came_since(name: str, prepared: Prepared) -> None:
    run = prepared.finish()
    with (prepared.logs / name).open("ab") as file:
        file.write(b" and more")
    before = files_of(prepared.logs)
    with pytest.raises(ChangedSinceError, match="undoing would lose the change"):
        undo_run(FS, run)
    assert files_of(prepared.logs) == before


@pytest.mark.parametrize("name", [CUT, REPLACED, REMOVED])
def test_an_undo_gives_back_only_what_the_run_has_kept(name: str, prepared: Prepared) -> None:
    run = prepared.finish()
    kept = run.folder / "old" / name
    kept.write_bytes(kept.read_bytes().swapcase())
    before = prepared.contents()
    with pytest.raises(RefusedError, match=r"is not what .* put there"):
        undo_run(FS, run)
    assert prepared.contents() == before


class WithoutLinks(LocalFileSystem):
    """A file system that gives no file a second name, and says so in its own way."""

    def __init__(self, number: int) -> None:
        self.number = number

    def link(self, source: Path, target: Path) -> None:
        raise OSError(self.number, os.strerror(self.number), str(source))


@pytest.mark.parametrize("number", [errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP])
def test_without_hard_links_files_are_moved(number: int, prepared: Prepared) -> None:
    prepared.apply(WithoutLinks(number))
    assert {**prepared.contents(), CLEAN_SHUTDOWN_FILE: b""} == AFTER
    assert (prepared.run.folder / "old" / REPLACED).read_bytes() == b"old"


def test_another_error_of_a_link_is_none_of_that(prepared: Prepared) -> None:
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        prepared.apply(WithoutLinks(errno.EIO))
    assert (prepared.logs / REPLACED).read_bytes() == b"old"


def left_prepared(prepared: Prepared) -> None:
    mark_pending(FS, prepared.logs, prepared.run.folder)


def left_undoing(prepared: Prepared) -> None:
    prepared.apply()
    prepared.journal.append("undoing")


def left_finished(prepared: Prepared) -> None:
    prepared.finish()
    mark_pending(FS, prepared.logs, prepared.run.folder)


@pytest.mark.parametrize(
    ("left", "state", "expected"),
    [
        (left_prepared, RunState.FINISHED, AFTER),
        (left_undoing, RunState.UNDONE, BEFORE),
        (left_finished, RunState.FINISHED, AFTER),
    ],
)
def test_a_run_that_was_cut_short_goes_the_way_it_went(
    left: Callable[[Prepared], None], state: RunState, expected: dict[str, bytes], prepared: Prepared
) -> None:
    left(prepared)
    run = settle_pending(FS, prepared.logs)
    assert run is not None and run.state is state
    assert prepared.contents() == expected
    assert settle_pending(FS, prepared.logs) is None


def test_a_file_in_place_of_the_barrier_does_not_keep_a_run_unfinished(prepared: Prepared) -> None:
    left_finished(prepared)
    (prepared.logs / BARRIER).rmdir()
    (prepared.logs / BARRIER).write_bytes(b"")
    run = settle_pending(FS, prepared.logs)
    assert run is not None and run.state is RunState.FINISHED
    assert (pending_run(FS, prepared.logs), (prepared.logs / BARRIER).is_file()) == (None, True)


def test_a_run_taken_back_before_its_move_keeps_a_foreign_file_of_the_new_name(prepared: Prepared) -> None:
    left_prepared(prepared)
    prepared.journal.append("undoing")
    (prepared.logs / MOVED).write_bytes(b"somebody else's")
    with pytest.raises(RefusedError, match=r"0030\.log could not be restored as it was"):
        settle_pending(FS, prepared.logs)
    assert (prepared.logs / MOVED).read_bytes() == b"somebody else's"


@pytest.mark.parametrize(("end", "data"), [(3, b"bcd"), (12, b"bcd" + bytes(6) + b"efg")])
def test_a_part_of_a_file_is_copied(end: int, data: bytes, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"abcd" + bytes(6) + b"efg")
    copy_bytes(FS, source, target, 1, 1 + end)
    assert target.read_bytes() == data


def test_a_file_that_is_shorter_than_it_was_is_not_copied(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"abcd")
    with pytest.raises(RefusedError, match="is shorter than it was"):
        copy_bytes(FS, tmp_path / "source", tmp_path / "target", 1, 9)
