"""The journal of a run that changes files: JSON lines, each on stable storage before the step that it describes.

    {"step":"start", …}           the log directory, the time, the command
    {"step":"prepared", …}        every change with the facts before and after, and the partitions' other files; all new
                                  contents are staged and synced
    {"step":"change","index":0}   about to make the changes from this index on
    {"step":"applied"}            all changes are made
    {"step":"finished"}           the result is verified
    {"step":"undoing", …}         about to take everything back, and to remove these files that came later; from now on
                                  the run only goes backwards
    {"step":"undone"}             everything is taken back

A journal is trusted only if it and its folder belong to this user (or root) and nobody else can write to them. Its
paths must be names in the log directory and in the run's folder. Otherwise the owner of the log directory could make
root move files anywhere.

The last step decides how to go on after a crash: before `prepared` nothing was changed, after it the run can be
finished, after `undoing` it must be undone. A torn last line was never acted on.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Literal, get_args

from seglog.errors import CorruptionError, UnsupportedError
from seglog.format.filenames import FileKind, FileState, parse_file_name
from seglog.scan.listing import SEGMENT_KINDS
from seglog.storage.filesystem import PRIVATE, FileSystem
from seglog.storage.trust import read_trusted, require_trust

JOURNAL_FILE = "journal.jsonl"
OLD, NEW = "old", "new"
VERSION = 2
_VERSIONS = (1, VERSION)

ChangeKind = Literal["replace", "cut", "remove", "move", "keep", "entries"]
_CHANGE_KINDS = get_args(ChangeKind)
Entries = Mapping[str, Sequence[int | None]]
Standing = Mapping[str, Mapping[str, Sequence[int]]]


class RunState(Enum):
    """How far a run has got."""

    STARTED = "started"
    PREPARED = "prepared"
    APPLIED = "applied"
    FINISHED = "finished"
    UNDOING = "undoing"
    UNDONE = "undone"


_LATEST_MS = 253_402_300_799_999  # the end of year 9999, the last moment that can be shown
_START: Mapping[str, Callable[[Any], bool]] = {
    "run": lambda value: isinstance(value, str),
    "command": lambda value: isinstance(value, str),
    "log_directory": lambda value: is_absolute(value),
    "started_ms": lambda value: type(value) is int and 0 <= value <= _LATEST_MS,
    "partitions": lambda value: isinstance(value, list) and all(map(_is_name, value)),
}

_STATES = {
    "start": RunState.STARTED,
    "prepared": RunState.PREPARED,
    "change": RunState.PREPARED,
    "applied": RunState.APPLIED,
    "finished": RunState.FINISHED,
    "undoing": RunState.UNDOING,
    "undone": RunState.UNDONE,
}


@dataclass(frozen=True, slots=True)
class FileFacts:
    """A file's state before or after a change: `size` in bytes, `crc` (CRC-32C of the contents), and `stat` fields."""

    size: int
    crc: int
    modified_ns: int
    mode: int
    owner: int
    group: int

    @property
    def are_numbers(self) -> bool:
        """True unless a journal that was changed by hand has something else in place of a number."""
        numbers = (self.size, self.crc, self.modified_ns, self.mode, self.owner, self.group)
        return all(type(number) is int for number in numbers)


@dataclass(frozen=True, slots=True)
class Change:
    """One file's change. `path` and `source` are relative to the log directory, `staged` and `saved` to the run's
    folder.

    `replace`: `staged` replaces `path`, whose old file moves to `saved`. `cut`: `path` is cut to `after.size` bytes,
    and `saved` keeps the tail. `remove`: `path` moves to `saved`. `move`: `source` becomes `path`. `keep`: `path`
    stays, and `saved` is a copy, because a broker changes that file later. `entries`: `staged`, if there is one,
    replaces a checkpoint that all partitions share; `entries` has the offsets before and after of the run's own
    partitions, by directory name. `before` (`after`) of None means that there was (will be) no file. `group` is the
    base offset of the segment whose files are replaced together, -1 for other files.
    """

    kind: ChangeKind
    path: str
    before: FileFacts | None
    after: FileFacts | None
    staged: str = ""
    saved: str = ""
    source: str = ""
    group: int = -1
    reason: str = ""
    entries: Entries = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        kind: ChangeKind,
        path: str,
        before: FileFacts | None,
        after: FileFacts | None,
        *,
        source: str = "",
        group: int = -1,
        reason: str = "",
        entries: Entries | None = None,
    ) -> Change:
        """Returns a change with its files' places in the run's folder filled in."""
        return cls(kind, path, before, after, *_places(kind, path, before), source, group, reason, entries or {})

    @property
    def is_change(self) -> bool:
        """True if the run leaves another file than it found."""
        return self.before != self.after

    def require_sense(self) -> None:
        """Raises ValueError unless the change stays within the log directory and the run's folder."""
        facts = [facts for facts in (self.before, self.after) if facts is not None]
        makes_sense = (
            self.kind in _CHANGE_KINDS
            and _is_name_below(self.path)
            and (self.staged, self.saved) == _places(self.kind, self.path, self.before)
            and (_is_name_below(self.source) if self.kind == "move" else self.source == "")
            and (self.kind != "cut" or len(facts) == 2)
            and type(self.group) is int
            and all(each.are_numbers and each.size >= 0 for each in facts)
            and (self.kind == "entries" or not self.entries)
            and all(_is_name_below(name) and _are_offsets(pair) for name, pair in self.entries.items())
        )
        if not makes_sense:
            raise ValueError(f"an impossible change: {self.kind!r} of {self.path!r}")


class Journal:
    """Appends steps to a run's journal; each is durable on return."""

    def __init__(self, fs: FileSystem, folder: Path) -> None:
        self.path = folder / JOURNAL_FILE
        self._fs = fs
        status = fs.status(self.path)
        # appending overwrites a torn last line
        self._position = 0 if status is None else fs.read_bytes(self.path).rfind(b"\n") + 1

    def append(self, step: str, **fields: Any) -> None:
        """Appends a step."""
        line = json.dumps({"step": step, **fields}, separators=(",", ":")).encode() + b"\n"
        known = self._fs.status(self.path) is not None
        with self._fs.open(self.path, "r+" if known else "create_new") as file:
            if not known:
                file.give(PRIVATE)
            file.truncate(self._position)
            file.write_at(self._position, line)
            file.sync()
        if not known:
            self._fs.sync_directory(self.path.parent)
        self._position += len(line)

    def prepared(self, changes: list[Change], standing: Standing) -> None:
        """Appends the step from which on the run can be finished. Raises ValueError for an impossible change."""
        for change in changes:
            change.require_sense()
        self.append("prepared", changes=[asdict(change) for change in changes], standing=standing)


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run as its journal describes it. `start` has the fields of the first line, those of `_START` among them.

    `standing` has, by partition directory, the names of all files before the run; for a log that the run left alone its
    size and time (ns). `surplus` are the files (relative to the log directory) that an undo removes because they came
    after the run.
    """

    folder: Path
    state: RunState
    start: Mapping[str, Any]
    changes: tuple[Change, ...] = ()
    standing: Standing = field(default_factory=dict)
    surplus: tuple[str, ...] = ()

    def __repr__(self) -> str:
        files = f"{len(self.changed)} {'file' if len(self.changed) == 1 else 'files'}"
        return f"<RunRecord {self.name}: {self.command}, {self.state.value}, {files}>"

    @property
    def name(self) -> str:
        """The run's name, as `undo` takes it."""
        return self.folder.name

    @property
    def log_directory(self) -> Path:
        return Path(self.start["log_directory"])

    @property
    def command(self) -> str:
        """The command that made the run, such as `repair`."""
        return str(self.start["command"])

    @property
    def started_ms(self) -> int:
        return int(self.start["started_ms"])

    @property
    def partitions(self) -> tuple[str, ...]:
        """The names of the partition directories that the run concerns."""
        return tuple(self.start["partitions"])

    @property
    def changed(self) -> tuple[Change, ...]:
        """The changes without the copies of files that stayed."""
        return tuple(change for change in self.changes if change.is_change)

    @property
    def keeps_whole_partitions(self) -> bool:
        """True if the run can restore what changed later with its partitions' data, False for an early version's."""
        return bool(self.start["version"] >= 2)


def read_journal(fs: FileSystem, folder: Path) -> RunRecord:
    """Reads the journal of the run in `folder`.

    Raises CorruptionError if it is unreadable or names files that a run may not change, UnsupportedError for a later
    version, RefusedError if anybody but this user and root can have written it.
    """
    path = folder / JOURNAL_FILE
    found = fs.status(folder, follow=False)
    if found is not None:
        require_trust(folder, found)
    data = read_trusted(fs, path)
    if data is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    state, changes = None, []
    start: Mapping[str, Any] = {}
    standing: Standing = {}
    surplus: tuple[str, ...] = ()
    try:
        for line in data.splitlines(keepends=True):
            if not line.endswith(b"\n"):
                break
            record = json.loads(line)
            state = _STATES[record["step"]]
            if record["step"] == "start":
                if record["version"] not in _VERSIONS:
                    raise UnsupportedError(f"{path}: a journal of version {record['version']}, not {VERSION}")
                start = _start(record)
            elif record["step"] == "prepared":
                changes = [_change(fields) for fields in record["changes"]]
                standing = _standing(record.get("standing", {}))
            elif record["step"] == "undoing":
                surplus = _surplus(record.get("surplus", ()))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptionError(path, f"the journal cannot be read ({error})") from error
    if state is None or not start:
        raise CorruptionError(path, "the journal has no beginning")
    return RunRecord(folder, state, start, tuple(changes), standing, surplus)


def is_absolute(path: object) -> bool:
    """True if `path` is the text of an absolute path without `..`."""
    return isinstance(path, str) and "\0" not in path and Path(path).is_absolute() and ".." not in Path(path).parts


def _start(record: Mapping[str, Any]) -> Mapping[str, Any]:
    for name, is_right in _START.items():
        if name not in record:
            raise ValueError(f"its first line has no {name!r}")
        if not is_right(record[name]):
            raise ValueError(f"{record[name]!r} is not a value of {name!r}")
    return record


def _standing(standing: Standing) -> Standing:
    for directory, files in standing.items():
        if not _is_name(directory) or not all(map(_is_name, files)):
            raise ValueError("it names files outside the log directory")
        if not all(len(facts) in (0, 2) and all(type(n) is int for n in facts) for facts in files.values()):
            raise ValueError("a file's size or time is not a number")
    return standing


def _surplus(paths: Sequence[str]) -> tuple[str, ...]:
    if not all(map(_is_name_below, paths)):
        raise ValueError("it removes files outside the log directory")
    return tuple(paths)


def _are_offsets(pair: object) -> bool:
    return isinstance(pair, list | tuple) and len(pair) == 2 and all(n is None or type(n) is int for n in pair)


def _change(fields: dict[str, Any]) -> Change:
    facts = {name: FileFacts(**fields[name]) if fields[name] is not None else None for name in ("before", "after")}
    change = Change(**{**fields, **facts})
    change.require_sense()
    return change


def _places(kind: ChangeKind, path: str, before: FileFacts | None) -> tuple[str, str]:
    """Returns (`staged`, `saved`) of a change."""
    return f"{NEW}/{path}" if kind in ("replace", "entries") else "", f"{OLD}/{path}" if before is not None else ""


def group_of(name: str) -> int:
    """Returns the group of a partition's file: the base offset of its segment, -1 if it belongs to none."""
    parsed = parse_file_name(name)
    if parsed is None or parsed.state is not FileState.LIVE or parsed.kind not in (*SEGMENT_KINDS, FileKind.LOG_07):
        return -1
    return parsed.offset


def _is_name_below(path: object) -> bool:
    """True if `path` names a file in a log directory or in one of its partitions."""
    if not isinstance(path, str):
        return False
    return path.count("/") <= 1 and all(map(_is_name, path.split("/")))


def _is_name(name: object) -> bool:
    """True if `name` can be a file's name, without a directory."""
    return isinstance(name, str) and not {"/", "\0"} & set(name) and name not in ("", ".", "..")
