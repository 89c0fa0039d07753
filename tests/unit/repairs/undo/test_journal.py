"""A run's journal: steps that are durable, a last line that was cut short, states in the order in which they come."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seglog.errors import CorruptionError, UnsupportedError
from seglog.repairs.undo.journal import (
    JOURNAL_FILE,
    VERSION,
    Change,
    FileFacts,
    Journal,
    RunState,
    group_of,
    read_journal,
)
from tests.support.log_files import FS

FACTS = FileFacts(10, 1, 2, 0o640, 0, 0)
CHANGES = [
    Change.of("replace", "t-0/a.log", FACTS, FACTS, group=5, reason="r"),
    Change.of("remove", "t-0/b.log", FACTS, None),
    Change.of("move", "t-0/c.log", None, FACTS, source="t-1/c.log"),
]
START = {"run": "run", "log_directory": "/logs", "command": "repair", "started_ms": 5, "partitions": ["t-0"]}
STEPS = ("start", "prepared", "change", "applied", "finished", "undoing", "undone")
STATES = (
    RunState.STARTED,
    RunState.PREPARED,
    RunState.PREPARED,
    RunState.APPLIED,
    RunState.FINISHED,
    RunState.UNDOING,
    RunState.UNDONE,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run's folder, as private as one is."""
    run = tmp_path / "run"
    run.mkdir(mode=0o700)
    return run


def write_steps(folder: Path, steps: tuple[str, ...] = STEPS) -> None:
    """Each step by a journal that is opened anew, as after a crash."""
    for step in steps:
        journal = Journal(FS, folder)
        if step == "start":
            journal.append(step, version=VERSION, **START)
        elif step == "prepared":
            journal.prepared(CHANGES, {})
        else:
            journal.append(step)


@pytest.mark.parametrize("count", range(1, len(STEPS) + 1))
def test_the_last_step_says_how_far_a_run_came(folder: Path, count: int) -> None:
    write_steps(folder, STEPS[:count])
    run = read_journal(FS, folder)
    assert (run.state, run.log_directory, run.start["command"]) == (STATES[count - 1], Path("/logs"), "repair")
    assert list(run.changes) == (CHANGES if count > 1 else [])


def test_a_line_that_was_cut_short_was_never_acted_on(folder: Path) -> None:
    write_steps(folder, STEPS[:2])
    path, started = folder / JOURNAL_FILE, len((folder / JOURNAL_FILE).read_bytes().splitlines(keepends=True)[0])
    whole = path.read_bytes()
    for size in range(1, len(whole)):
        path.write_bytes(whole[:size])
        if size < started:
            with pytest.raises(CorruptionError, match="no beginning"):
                read_journal(FS, folder)
            continue
        run = read_journal(FS, folder)
        assert (run.state, run.changes) == (RunState.STARTED, ())
        Journal(FS, folder).append("undone")
        assert read_journal(FS, folder).state is RunState.UNDONE, "what is left of the line has gone"
        assert path.read_bytes() == whole[:started] + b'{"step":"undone"}\n'


def test_a_journal_is_its_users_alone(folder: Path) -> None:
    write_steps(folder, STEPS[:1])
    assert (folder / JOURNAL_FILE).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "line", [b"{}\n", b'{"step":"other"}\n', b"[]\n", b"5\n", b"\n", b"\xff\n", b'{"step":"prepared"}\n']
)
def test_a_line_that_is_no_step_is_damage(folder: Path, line: bytes) -> None:
    write_steps(folder, STEPS[:1])
    path = folder / JOURNAL_FILE
    path.write_bytes(path.read_bytes() + line)
    with pytest.raises(CorruptionError, match="the journal cannot be read"):
        read_journal(FS, folder)


@pytest.mark.parametrize("value", [None, [], {}, "..", "a/b", -1, 1 << 62, 0.5, ["../x"], [5], True])
@pytest.mark.parametrize("name", START)
def test_a_first_line_that_lacks_a_field_or_has_a_wrong_one_is_damage(folder: Path, name: str, value: object) -> None:
    write_steps(folder, STEPS[:1])
    path = folder / JOURNAL_FILE
    start = json.loads(path.read_bytes())
    path.write_text(json.dumps({key: kept for key, kept in start.items() if key != name}) + "\n")
    with pytest.raises(CorruptionError, match=f"its first line has no '{name}'"):
        read_journal(FS, folder)
    if not (value == [] and name == "partitions") and not (isinstance(value, str) and name in ("run", "command")):
        path.write_text(json.dumps({**start, name: value}) + "\n")
        with pytest.raises(CorruptionError, match=f"not a value of '{name}'"):
            read_journal(FS, folder)


@pytest.mark.parametrize(
    "standing", [5, [], {"../x": {}}, {"t-0": []}, {"t-0": {"a/b": []}}, {"t-0": {"a": [1]}}, {"t-0": {"a": [1, "2"]}}]
)
def test_files_that_stood_beside_a_run_are_names_with_sizes_and_times(folder: Path, standing: object) -> None:
    write_steps(folder, STEPS[:1])
    line = json.dumps({"step": "prepared", "changes": [], "standing": standing}).encode() + b"\n"
    path = folder / JOURNAL_FILE
    path.write_bytes(path.read_bytes() + line)
    with pytest.raises(CorruptionError, match="the journal cannot be read"):
        read_journal(FS, folder)


def test_a_journal_of_a_later_version_is_not_obeyed(folder: Path) -> None:
    start = {"step": "start", "version": VERSION + 1, "log_directory": "/logs"}
    (folder / JOURNAL_FILE).write_bytes(json.dumps(start).encode() + b"\n")
    with pytest.raises(UnsupportedError, match=f"version {VERSION + 1}, not {VERSION}"):
        read_journal(FS, folder)


def test_a_folder_without_a_journal_is_no_run(folder: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_journal(FS, folder)


@pytest.mark.parametrize(
    ("name", "group"),
    [
        (f"{7:020d}.log", 7),
        (f"{7:020d}.timeindex", 7),
        (f"{7:020d}.kafka", 7),
        (f"{7:020d}.log.swap", -1),
        (f"{7:020d}.snapshot", -1),
        ("leader-epoch-checkpoint", -1),
    ],
)
def test_the_files_of_a_segment_are_a_group(name: str, group: int) -> None:
    assert group_of(name) == group
