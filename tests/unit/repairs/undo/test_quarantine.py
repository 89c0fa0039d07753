"""Quarantines, journals and markers: private, and obeyed only when nobody else can have written them."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from seglog.clock import FixedClock
from seglog.errors import CorruptionError, RefusedError, UntrustedLinkError
from seglog.format.filenames import QUARANTINE, QUARANTINE_WITHIN
from seglog.repairs.plan import RepairOptions
from seglog.repairs.repair import RepairOutcome, examination, repair
from seglog.repairs.undo.apply import apply_run, settle_pending, undo_run
from seglog.repairs.undo.journal import JOURNAL_FILE, Change, Journal, RunRecord, RunState, read_journal
from seglog.repairs.undo.quarantine import (
    BARRIER,
    PENDING_FILE,
    mark_pending,
    new_run,
    pending_run,
    purge_run,
    quarantine_of,
    runs_in,
    saved_bytes,
)
from seglog.repairs.undo.restore import restore_run
from seglog.scan.listing import list_log_directory
from seglog.storage.filesystem import File, FileStatus, FileSystem, OpenMode, PassingFile, PassingFileSystem
from seglog.storage.local import LocalFileSystem
from tests.support.command_line import run
from tests.support.fixtures import fixture_copy, fixture_now_ms
from tests.support.other_users import ANOTHER, OTHER, given_to, needs_root, planted_link

FS = LocalFileSystem()
NAME = "4.3.0/clean"
CLOCK = FixedClock(fixture_now_ms(NAME))
ORDERS = "orders-lz4-0"
LOG = "00000000000000000000.log"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log directory with one damaged batch, in a directory of its own."""
    logs = fixture_copy(NAME, tmp_path / "kafka")
    break_batch(logs)
    return logs


def break_batch(data: Path) -> None:
    path = data / ORDERS / LOG
    contents = bytearray(path.read_bytes())
    contents[5000:5003] = b"\0\0\0"
    path.write_bytes(contents)


def mended(data: Path, fs: FileSystem = FS, **options: Any) -> RepairOutcome:
    directories = [data / ORDERS]
    return repair(
        fs, CLOCK, data, directories, examination(fs, CLOCK, data, directories).findings, RepairOptions(**options)
    )


def run_of(data: Path, **options: Any) -> RunRecord:
    outcome = mended(data, **options)
    assert outcome.run is not None
    return outcome.run


def files(directory: Path) -> dict[str, bytes]:
    found = (path for path in directory.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(directory)): path.read_bytes() for path in found}


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    directory = tmp_path / "precious"
    directory.mkdir()
    (directory / "file").write_bytes(b"precious")
    return directory


# --- whose word counts ---------------------------------------------------------------------------------------


def thieving_run(folder: Path, log_directory: str, source: Path, target: Path) -> None:
    """A journal that moves `source` to `target`, as if a run had been cut short."""
    folder.mkdir()
    facts = {"size": 8, "crc": 1, "modified_ns": 0, "mode": 0o600, "owner": 0, "group": 0}
    change = {"kind": "move", "path": str(target).lstrip("/"), "source": str(source).lstrip("/"), "before": None}
    start = {"step": "start", "version": 1, "run": folder.name, "log_directory": log_directory}
    steps = [start, {"step": "prepared", "changes": [{**change, "after": facts}]}]
    (folder / JOURNAL_FILE).write_text("".join(json.dumps(step) + "\n" for step in steps))


@needs_root
@pytest.mark.parametrize("command", ["append", "recover", "truncate", "clean", "retain", "reindex", "repair", "undo"])
def test_a_planted_marker_and_journal_are_not_obeyed(data: Path, precious: Path, command: str) -> None:
    folder = data.parent / "run"
    thieving_run(folder, "/", precious / "file", data / "stolen")
    (data / PENDING_FILE).write_text(f"{folder}\n")
    given_to(data.parent)
    before = files(data)
    arguments = {
        "append": ["append", data / ORDERS],
        "truncate": ["truncate", data / ORDERS, "--to-offset", "10"],
        "clean": ["clean", data / "customers-0", "--roll"],
        "retain": ["retain", data / ORDERS, "--policy", "delete", "--retention-ms", "1"],
        "repair": ["verify", "--repair", data / ORDERS],
        "undo": ["undo", folder],
    }.get(command, [command, data / ORDERS])
    done = run(*arguments, input_text="v\n")
    assert done.exit_code == 12, done.stderr
    assert "belongs to nobody (uid 65534)" in done.stderr
    assert files(precious) == {"file": b"precious"}
    assert files(data) == before


@needs_root
@pytest.mark.parametrize("which", ["folder", "journal", "marker"])
@pytest.mark.parametrize("doubt", ["owner", "writable", "second name", "link"])
def test_a_run_is_not_finished_when_others_can_have_written_any_part_of_it(
    data: Path, which: str, doubt: str, tmp_path: Path
) -> None:
    if (which, doubt) == ("folder", "second name"):
        return
    run, before = cut_short(data), files(data)
    path = {"folder": run.folder, "journal": run.folder / JOURNAL_FILE, "marker": data / PENDING_FILE}[which]
    if doubt == "owner":
        os.chown(path, OTHER, OTHER)
    elif doubt == "writable":
        path.chmod(0o770)
    elif doubt == "second name":
        os.link(path, tmp_path / "second")
    else:
        path.rename(path.with_name("aside"))
        planted_link(path, path.with_name("aside"))
    with pytest.raises((RefusedError, CorruptionError)):
        settle_pending(FS, data)
    assert files(data) | {PENDING_FILE: b""} == before | {PENDING_FILE: b""} | added(which, doubt, before)


def added(which: str, doubt: str, before: dict[str, bytes]) -> dict[str, bytes]:
    """A marker that was replaced by a link lies aside."""
    return {"aside": before[PENDING_FILE]} if (which, doubt) == ("marker", "link") else {}


def cut_short(data: Path) -> RunRecord:
    """A run that was killed when it had named itself in the log directory, before its first change."""

    class Killed(BaseException):
        pass

    class Mortal(LocalFileSystem):
        def link(self, source: Path, target: Path) -> None:
            raise Killed

    with pytest.raises(Killed):
        mended(data, Mortal())
    folder = pending_run(FS, data)
    assert folder is not None
    return read_journal(FS, folder)


def test_a_run_that_was_cut_short_is_finished_whatever_the_umask(data: Path) -> None:
    before = os.umask(0)
    try:
        run = cut_short(data)
    finally:
        os.umask(before)
    settled = settle_pending(FS, data)
    assert settled is not None
    assert (settled.name, settled.state) == (run.name, RunState.FINISHED)
    assert not (data / PENDING_FILE).exists()


def test_a_marker_that_names_the_run_of_another_log_directory_is_not_obeyed(data: Path, tmp_path: Path) -> None:
    """Who owns two log directories can move the marker of one into the other."""
    other = fixture_copy(NAME, tmp_path / "other")
    run = cut_short(data)
    (data / PENDING_FILE).rename(other / PENDING_FILE)
    before = files(other)
    with pytest.raises(RefusedError, match=f"a run in {data}"):
        settle_pending(FS, other)
    assert files(other) == before
    renamed = run.folder.rename(run.folder.with_name("20990101T000000Z-beef"))
    mark_pending(FS, data, renamed)
    with pytest.raises(RefusedError, match=f"remove it and {BARRIER} to continue without it"):
        settle_pending(FS, data)


@pytest.mark.parametrize("text", [b"", b"relative/run", b"/a/../b", b"/a\0b", b"\xff" * 9000])
def test_a_marker_that_names_no_folder_is_refused(data: Path, text: bytes) -> None:
    (data / PENDING_FILE).write_bytes(text)
    (data / PENDING_FILE).chmod(0o600)
    with pytest.raises(RefusedError, match=str(data / PENDING_FILE)):
        settle_pending(FS, data)


# --- paths of a journal --------------------------------------------------------------------------------------

ESCAPES = ("../file", "/etc/file", "..", "a/../../file", "a/b/file", "./file", "a//file", "", "a\0b", "orders-lz4-0/..")


def tampered(run: RunRecord, **fields: object) -> None:
    """Writes the run's journal anew, with other fields in its first change."""
    path = run.folder / JOURNAL_FILE
    steps = [json.loads(line) for line in path.read_text().splitlines()]
    prepared = next(step for step in steps if step["step"] == "prepared")
    prepared["changes"][0] |= fields
    path.write_text("".join(json.dumps(step) + "\n" for step in steps))


def uses(run: RunRecord, target: Path) -> Iterator[Any]:
    yield lambda: undo_run(FS, read_journal(FS, run.folder))
    yield lambda: list(restore_run(FS, read_journal(FS, run.folder), target))
    yield lambda: purge_run(FS, read_journal(FS, run.folder))
    yield lambda: settle_pending(FS, run.log_directory)


@pytest.mark.parametrize("kind", ["replace", "cut", "remove", "move"])
@pytest.mark.parametrize("field", ["path", "saved", "staged", "source"])
def test_paths_that_leave_the_log_directory_or_the_run_are_no_journals(
    data: Path, tmp_path: Path, kind: str, field: str
) -> None:
    run = run_of(data)
    mark_pending(FS, data, run.folder)
    first = run.changes[0]
    before = files(tmp_path)
    for escape in ESCAPES:
        own = {"path": first.path, "saved": f"old/{first.path}", "staged": "", "source": ""}
        if kind == "replace":
            own["staged"] = f"new/{first.path}"
        if kind == "move":
            own["source"] = f"{first.path}.swap"
        if own[field] == escape:
            continue
        tampered(run, **(own | {"kind": kind, field: escape}))
        for use in uses(run, tmp_path / "restored"):
            with pytest.raises(CorruptionError, match="an impossible change"):
                use()
    journal = run.folder / JOURNAL_FILE
    journal.write_bytes(before[str(journal.relative_to(tmp_path))])
    assert files(tmp_path) == before


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "copy"},
        {"kind": ["move"]},
        {"path": 7},
        {"before": {"size": -1}},
        {"before": {"mode": "0777"}},
        {"group": "1"},
        {"kind": "cut", "staged": "", "after": None},
    ],
)
def test_changes_that_make_no_sense_are_no_journals(data: Path, fields: dict[str, Any]) -> None:
    run = run_of(data)
    first = json.loads((run.folder / JOURNAL_FILE).read_text().splitlines()[1])["changes"][0]
    whole = {name: first[name] | value if isinstance(value, dict) else value for name, value in fields.items()}
    tampered(run, **whole)
    with pytest.raises(CorruptionError, match="the journal cannot be read"):
        read_journal(FS, run.folder)


@pytest.mark.parametrize("path", ["logs", "/a/../b", "/a\0b", 5, None])
def test_a_journal_names_its_log_directory_by_an_absolute_path(data: Path, path: object) -> None:
    run = run_of(data)
    lines = (run.folder / JOURNAL_FILE).read_text().splitlines(keepends=True)
    start = json.loads(lines[0]) | {"log_directory": path}
    (run.folder / JOURNAL_FILE).write_text("".join([json.dumps(start) + "\n", *lines[1:]]))
    with pytest.raises(CorruptionError, match="not a value of 'log_directory'"):
        read_journal(FS, run.folder)


def test_a_run_is_not_prepared_with_changes_that_it_could_not_read_again(data: Path) -> None:
    run = run_of(data)
    with pytest.raises(ValueError, match="an impossible change"):
        Journal(FS, run.folder).prepared([replace(run.changes[0], path="../x")], {})
    assert Change is type(run.changes[0])


# --- purging -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("owner", [None, OTHER])
@pytest.mark.parametrize("place", ["old", "old/orders-lz4-0", "new"])
def test_purging_removes_links_not_what_they_lead_to(data: Path, precious: Path, place: str, owner: int | None) -> None:
    if owner is not None and os.geteuid() != 0:
        pytest.skip("only root can make files of other users")
    run = run_of(data)
    (run.folder / place).mkdir(exist_ok=True)
    link = run.folder / place / "zz"
    link.symlink_to(precious)
    (run.folder / place / "zzz").symlink_to(precious / "file")
    if owner is not None:
        given_to(link, owner)
    assert saved_bytes(FS, run.folder) < 10_000_000
    assert purge_run(FS, run) > 0
    assert not run.folder.exists()
    assert files(precious) == {"file": b"precious"}


def test_the_end_of_a_repair_removes_what_was_staged_and_follows_no_link(data: Path, precious: Path) -> None:
    run = run_of(data)
    (run.folder / "new").symlink_to(precious)
    mark_pending(FS, data, run.folder)
    undo_run(FS, run)
    assert files(precious) == {"file": b"precious"}


# --- where quarantines are, and who may see them ---------------------------------------------------------------


def test_nobody_else_can_look_into_a_quarantine(data: Path) -> None:
    data.chmod(0o700)
    before = os.umask(0)
    try:
        run = run_of(data)
    finally:
        os.umask(before)
    for directory in (run.folder, run.folder.parent):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    marker = data / PENDING_FILE
    mark_pending(FS, data, run.folder)
    assert stat.S_IMODE(marker.stat().st_mode) == 0o600


def test_runs_are_private_in_a_quarantine_that_is_not(data: Path, tmp_path: Path) -> None:
    (tmp_path / "quarantine").mkdir(mode=0o755)
    run = run_of(data, quarantine=tmp_path / "quarantine")
    assert stat.S_IMODE(run.folder.stat().st_mode) == 0o700


@needs_root
def test_a_planted_quarantine_is_refused_by_name(data: Path, precious: Path) -> None:
    before = files(data)
    place = data.parent / QUARANTINE
    planted_link(place, precious)
    with pytest.raises(UntrustedLinkError):
        mended(data)
    place.unlink()
    place.mkdir()
    os.chown(place, ANOTHER, ANOTHER)
    with pytest.raises(RefusedError, match=r"belongs to the user with uid 65533, who could remove"):
        mended(data)
    os.chown(place, 0, 0)
    place.chmod(0o777)
    with pytest.raises(RefusedError, match="may be written by other users, who could remove"):
        mended(data)
    assert files(data) == before
    assert files(precious) == {"file": b"precious"}
    place.chmod(0o1777)
    assert mended(data).complete


@needs_root
def test_the_quarantine_of_the_owner_of_the_log_directory_holds_runs_of_root_too(data: Path) -> None:
    given_to(data.parent)
    place = data.parent / QUARANTINE
    place.mkdir(mode=0o700)
    given_to(place)
    run = run_of(data)
    assert (run.folder.parent, run.folder.stat().st_uid, place.stat().st_uid) == (place, 0, OTHER)
    undo_run(FS, run)


@needs_root
def test_runs_of_other_users_and_planted_links_are_listed_as_errors(data: Path, precious: Path) -> None:
    run = run_of(data)
    thieving_run(run.folder.parent / "19990101T000000Z-dead", "/", precious / "file", data / "stolen")
    given_to(run.folder.parent / "19990101T000000Z-dead")
    planted_link(run.folder.parent / "20000101T000000Z-dead", precious)
    first, second, third = runs_in(FS, run.folder.parent)
    assert isinstance(first, RefusedError)
    assert isinstance(second, UntrustedLinkError)
    assert third == run


@needs_root
def test_what_a_repair_makes_belongs_to_the_owner_of_the_log(data: Path) -> None:
    (data / ORDERS / "00000000000000000000.timeindex").unlink()
    (data / ORDERS / "leader-epoch-checkpoint").unlink()
    given_to(data.parent)
    run = run_of(data)
    assert {path.stat().st_uid for path in data.rglob("*") if path.name != PENDING_FILE} == {OTHER}
    undo_run(FS, run)
    assert {path.stat().st_uid for path in data.rglob("*")} == {OTHER}


# --- mount points ----------------------------------------------------------------------------------------------


class MountedFile(PassingFile):
    def status(self) -> FileStatus:
        return super().status()._replace(device=-1)


class Mounted(PassingFileSystem):
    """A directory is a mount point: nothing is moved or linked across its border. Devices may tell, or not."""

    def __init__(self, mounted: Path, tells: bool) -> None:
        super().__init__(FS)
        self._mounted, self._tells = mounted, tells

    def _is_inside(self, path: Path) -> bool:
        return path == self._mounted or self._mounted in path.parents

    def _require_same(self, source: Path, target: Path) -> None:
        if self._is_inside(source) != self._is_inside(target):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(source))

    def status(self, path: Path, follow: bool = True) -> FileStatus | None:
        found = super().status(path, follow)
        return found._replace(device=-1) if found and self._tells and self._is_inside(path) else found

    def open(self, path: Path, mode: OpenMode) -> File:
        file = super().open(path, mode)
        return MountedFile(file) if self._tells and self._is_inside(path) else file

    def rename(self, source: Path, target: Path) -> None:
        self._require_same(source, target)
        super().rename(source, target)

    def link(self, source: Path, target: Path) -> None:
        self._require_same(source, target)
        super().link(source, target)


@pytest.mark.parametrize("tells", [True, False], ids=["another device", "another mount of the device"])
def test_a_log_directory_that_is_a_mount_point_is_repaired_and_undone(data: Path, tells: bool) -> None:
    before, fs = files(data), Mounted(data, tells)
    outcome = mended(data, fs)
    assert outcome.run is not None
    assert (outcome.complete, outcome.run.folder.parent) == (True, data / QUARANTINE_WITHIN)
    assert list((data.parent / QUARANTINE).iterdir()) == [] if (data.parent / QUARANTINE).exists() else tells
    listing = list_log_directory(FS, data)
    assert listing.strangers == ()
    assert QUARANTINE_WITHIN not in [found.path.name for found in listing.partitions]
    undo_run(fs, outcome.run)
    assert purge_run(fs, read_journal(fs, outcome.run.folder)) > 0
    (data / QUARANTINE_WITHIN).rmdir()
    assert files(data) == before


@pytest.mark.parametrize("tells", [True, False], ids=["another device", "another mount of the device"])
def test_a_chosen_place_on_another_file_system_is_refused_with_one_that_would_do(
    data: Path, tmp_path: Path, tells: bool
) -> None:
    before, fs = files(data), Mounted(data, tells)
    with pytest.raises(RefusedError, match=f"is not on the file system of {data}.*{QUARANTINE_WITHIN}"):
        mended(data, fs, quarantine=tmp_path / "elsewhere")
    assert files(data) == before
    assert mended(data, fs, quarantine=data / QUARANTINE_WITHIN).complete


def test_a_partition_that_is_mounted_into_its_log_directory_is_refused_by_name(data: Path) -> None:
    before = files(data)
    with pytest.raises(RefusedError, match=f"{data / ORDERS} is on another file system than {data}"):
        mended(data, Mounted(data / ORDERS, tells=True))
    assert files(data) == before


def test_the_quarantine_is_inside_the_log_directory_where_it_cannot_be_beside_it(data: Path) -> None:
    class ReadOnlyAround(LocalFileSystem):
        def make_directory(self, path: Path, parents: bool = False, access: Any = None) -> None:
            if data not in path.parents:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            super().make_directory(path, parents, access)

    outcome = mended(data, ReadOnlyAround())
    assert outcome.run is not None
    assert outcome.run.folder.parent == data / QUARANTINE_WITHIN


def test_the_place_is_chosen_by_the_journals_own_rules(data: Path) -> None:
    folder = new_run(FS, CLOCK, data)
    assert folder.parent == quarantine_of(FS, data)
    assert folder.name.startswith(datetime.fromtimestamp(CLOCK.now_ms() // 1000, UTC).strftime("%Y%m%dT%H%M%SZ-"))
    journal = Journal(FS, folder)
    start = {"command": "repair", "started_ms": CLOCK.now_ms(), "partitions": [], "log_directory": str(data)}
    journal.append("start", version=1, run=folder.name, **start)
    journal.prepared([], {})
    apply_run(FS, read_journal(FS, folder), journal)
    assert not (data / f"{PENDING_FILE}.tmp").exists()
    settled = settle_pending(FS, data)
    assert settled is not None
    assert settled.state is RunState.FINISHED
