"""One command on one mutated log directory: what it may do, and what it may not.

It ends with an exit code of the contract and never 70; within bounds of processor time and memory; a command that only
looks changes nothing, and none changes anything outside what it was given. What `salvage`, `verify --repair`, `convert`
and `clean` make is clean to `verify`, and a second repair finds nothing to do.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from seglog.kernels._mode import MODE, NATIVE
from seglog_cli.exit_codes import ExitCode
from tests.support.broken.mutated_directories import mutate
from tests.support.broken.varied_directory import base_directory, copy_tree
from tests.support.command_line import ended, run
from tests.support.odd_options import odd_environment, odd_lines, odd_options, write_odd_files
from tests.support.open_logs import START_MS
from tests.support.tried_commands import changes, looks, others

CPU_SECONDS = 10.0 if MODE.name == NATIVE else 300.0  # others compile kernels at their first use, or interpret them
WAITING_SECONDS = 900.0  # so that what waits for ever, for the writer of a pipe, is found, and a busy machine is not
MOST_MEMORY = 700 << 20
NOW = str(START_MS + 86_400_000 * 30)
# Of batches whose bytes are as they were written: copying them leaves them so.
ODD = {
    "BATCH_TOO_LARGE_TO_DECODE",
    "LEADER_EPOCHS_DIFFER",
    "LEADER_EPOCH_DECREASING",
    "PRODUCER_INVALID",
    "RECORD_TIMESTAMP_ABOVE_MAX",
    "TIMESTAMP_NEGATIVE",
    "TRANSACTION_STATE_INVALID",
}
_FOLLOWS = {"LEADER_EPOCHS_DIFFER"}
# Of an active segment no index is checked, and what is missing in it stays missing when the segment is rolled: Kafka's.
_AS_KAFKA = {"TIME_INDEX_SHORT"}
_MAKERS = ("salvage", "convert", "verify", "restore", "fetch")
# Commands that keep what they take, and the files that are as before when that is given back: of what recovery and
# truncation do, indexes and checkpoints are not given back.
_KEEPERS = {"verify": "", "truncate": ".log", "recover": ".log"}
_CODES = set(ExitCode) - {ExitCode.INTERNAL}
_PROCESS = Path("/proc/self")
_LONGEST_NAME = 255


class EndlessError(BaseException):
    """The command took more time than any may on so small a directory."""


@dataclass(slots=True)
class Trial:
    """What happened: `problems` are sentences, empty if all is well."""

    seed: int
    mutations: list[str]
    command: list[str] = field(default_factory=list)
    exit_code: int = -1
    problems: list[str] = field(default_factory=list)

    @property
    def may_fail_to_open(self) -> bool:
        """Whether a mutation has put something else where a file should be, or no file can have such a name."""
        if any(len(part) > _LONGEST_NAME for word in self.command for part in word.split("/")):
            return True
        return any(one in what for what in self.mutations for one in ("becomes a ", "link ", "a directory "))

    def __str__(self) -> str:
        command = " ".join(self.command)
        return "\n  ".join([f"seed {self.seed}: {self.mutations}", f"{command!r} -> {self.exit_code}", *self.problems])


# --- the trial ------------------------------------------------------------------------------------------------


class Bench:
    """Makes directories below `work` and runs commands on them, one after the other."""

    def __init__(self, work: Path) -> None:
        self.work, self._base = work, base_directory(work / "base")
        (work / "home").mkdir()
        os.environ.update(dict.fromkeys(("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"), str(work / "home")))
        _watch()

    def trials(self, seed: int, commands: int) -> Iterator[Trial]:
        """Runs some commands on a directory that `seed` has mutated, each on a fresh copy."""
        chance = random.Random(seed)
        mutated = self.work / "mutated"
        shutil.rmtree(mutated, ignore_errors=True)
        copy_tree(self._base, mutated / "logs")
        (mutated / "outside").mkdir()
        (mutated / "outside" / "file").write_text("0\n0\n")
        done = mutate(mutated / "logs", chance)
        for _ in range(commands):
            yield self._trial(Trial(seed, done), mutated, random.Random(chance.random()))

    def odd_trials(self, seed: int, commands: int) -> Iterator[Trial]:
        """Runs some commands with odd options, files, environment and input, each on a fresh copy of the directory."""
        chance = random.Random(seed)
        for _ in range(commands):
            yield self._odd_trial(Trial(seed, []), random.Random(chance.random()))

    def _odd_trial(self, trial: Trial, chance: random.Random) -> Trial:
        copy = self._copy_of(self._base, "logs")
        (copy / "cwd").mkdir()
        os.chdir(copy / "cwd")
        write_odd_files(Path(), chance)
        choose = chance.choice([looks, changes, others])
        command = chance.choice(choose(*_places(copy, None, chance), chance))
        environment = odd_environment(chance)
        trial.command = [*command, *odd_options(command[0], chance)]
        trial.mutations = [f"{name}={value}" for name, value in environment.items()]
        if command[0] == "cleaner" and "--once" not in command:
            trial.command.append("--once")
        given = odd_lines(chance) if command[0] == "append" else b""
        if chance.random() < 0.5 and command[0] == "append":
            trial.command += ["--input-format", "jsonl"]
        with _environment(environment):
            self._run(trial, [copy, self.work / "home"], given)
        os.chdir(self.work)
        return trial

    def _copy_of(self, source: Path, name: str = "") -> Path:
        copy = self.work / "copy"
        _remove(copy)
        copy_tree(source, copy / name)
        (copy / "out").mkdir()
        return copy

    def _trial(self, trial: Trial, mutated: Path, chance: random.Random) -> Trial:
        copy = self._copy_of(mutated)
        root, partition, file, other, out = _places(copy, self._differs, chance)
        only_looks = chance.random() < 0.5
        choose = looks if only_looks else changes
        command = chance.choice(choose(root, partition, file, other, out, chance))
        trial.command = [*command, "--now", NOW, *(["--json"] if chance.random() < 0.4 else [])]
        before = _contents(root)
        known = set() if only_looks or command[0] == "verify" else self._known(partition)
        self._run(trial, [copy, self.work / "home"], b"a line\n")
        if only_looks and _contents(root) != before:
            trial.problems.append("a command that only looks has changed something")
        outside = mutated / "outside"
        if (outside / "file").read_text() != "0\n0\n" or len(list(outside.iterdir())) != 1:
            trial.problems.append("something outside has changed")
        if not only_looks and not trial.problems:
            trial.problems += self._afterwards(trial, partition, out, known)
            if command[0] in _KEEPERS and not trial.problems:
                trial.problems += self._undone(root, before, _KEEPERS[command[0]])
        return trial

    def _differs(self, partition: Path) -> bool:
        """Whether a partition is not as it was before the mutations."""
        before = self._base / partition.name
        names = {path.name: path for path in partition.iterdir()}
        if not before.is_dir() or {path.name for path in before.iterdir()} != names.keys():
            return True
        plain = [path for path in names.values() if path.is_file() and not path.is_symlink()]
        return len(plain) < len(names) or any(p.read_bytes() != (before / p.name).read_bytes() for p in plain)

    def _run(self, trial: Trial, allowed: list[Path], given: bytes) -> None:
        with _bounded(trial), _confined(trial, allowed):
            done = ended(*trial.command, input_bytes=given)
            trial.exit_code = done.code
            if done.code not in _CODES or (done.code == ExitCode.IO_ERROR and not trial.may_fail_to_open):
                trial.problems.append(f"exit code {done.code}: {done.stderr[-300:].decode()}")
            elif done.code and not (done.stdout + done.stderr).strip() and "doctor" not in trial.command:
                trial.problems.append(f"exit code {done.code}, and not a word")

    def _findings(self, place: Path) -> set[str]:
        """The codes of what verify finds, without remarks."""
        rows = [json.loads(line) for line in run("verify", "--json", place).stdout.splitlines()]
        return {row["code"] for row in rows if row.get("severity") in ("error", "warning")}

    def _known(self, place: Path) -> set[str]:
        """What verify finds, and what follows from that when the log is written."""
        found = self._findings(place)
        if "LEADER_EPOCH_DECREASING" in found or not (place / "leader-epoch-checkpoint").is_file():
            found |= _FOLLOWS  # a lower epoch takes the higher ones out of the cache, as in Kafka
        return found

    def _afterwards(self, trial: Trial, partition: Path, out: Path, known: set[str]) -> Iterator[str]:
        """What is made holds batches as they were: verify may find odd ones in it that it found before."""
        command, code = trial.command[0], trial.exit_code
        made = [path for path in out.iterdir() if path.is_dir()]
        # A salvage copies what it could read of all files, names a file that it could not, and ends with 3.
        in_part = command == "salvage" and code == ExitCode.INCOMPLETE and trial.may_fail_to_open
        succeeded = code in (0, 1) or in_part
        if command in ("salvage", "convert", "restore") and succeeded:
            for path in made:
                new = self._findings(path) - (ODD if "--into-one" in trial.command else known & ODD)
                if new:
                    yield f"verify finds {new} in what {command} made: {run('verify', path).output[-400:]}"
        if command in ("salvage", "convert") and not succeeded and made:
            yield f"{command} failed, and left something"
        if command == "verify" and code == 4:
            place = next(word for word in trial.command[1:] if word.startswith("/"))
            checked = run("verify", place)
            if checked.exit_code:
                yield f"verify is not clean after a repair of everything: {checked.output[-400:]}"
            again = run(*trial.command)
            if again.exit_code:
                yield f"a second repair ends with {again.exit_code}: {again.output[-300:]}"
        was_clean = command not in _MAKERS and code == 0 and not known - _FOLLOWS
        if was_clean and self._findings(partition) - known - _AS_KAFKA:
            yield f"verify is not clean any more: {run('verify', partition).output[-400:]}"

    def _undone(self, root: Path, before: dict[str, object], suffix: str) -> Iterator[str]:
        """What was done is taken back, the last run first: then all files that end with `suffix` are as before."""
        runs = [json.loads(line) for line in run("quarantine", "ls", "--json", root).stdout.splitlines()]
        for row in sorted(runs, key=lambda row: str(row["run"]), reverse=True):
            done = run("undo", row["folder"])
            if done.exit_code:
                yield f"undo ends with {done.exit_code}: {done.output[-300:]}"
                return
        if not runs:
            return  # nothing was taken; an empty log that a broker would make, too, may have been made
        after = _contents(root)
        differ = sorted(str(path) for path in before.keys() | after.keys() if before.get(path) != after.get(path))
        differ = [path for path in differ if path.endswith(suffix) and not path.endswith("/.lock")]
        # A rebuilt index has taken the place of a link that leads nowhere: nothing is lost with that.
        differ = [path for path in differ if path in after or "/nonexistent" not in str(before[path])]
        if differ:
            yield f"undo leaves {differ}"


def _places(copy: Path, wrong: Callable[[Path], bool] | None, chance: random.Random) -> tuple[Path, ...]:
    """Root, partition, one of its files, another partition, place for output; rather what is `wrong`."""
    root = copy / "logs"
    partitions = [path for path in sorted(root.iterdir()) if path.is_dir() and not path.is_symlink()] or [root]
    preferred = ([path for path in partitions if wrong(path)] if wrong else []) or partitions
    partition = chance.choice(preferred if chance.random() < 0.8 else partitions)
    other = chance.choice(partitions)
    files = sorted(path for path in partition.iterdir() if not path.is_dir()) or [partition / "none"]
    return root, partition, chance.choice(files), other, copy / "out"


@contextlib.contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


# --- bounds ---------------------------------------------------------------------------------------------------


_ALARMS = (
    (signal.SIGVTALRM, signal.ITIMER_VIRTUAL, CPU_SECONDS),
    (signal.SIGALRM, signal.ITIMER_REAL, WAITING_SECONDS),
)


@contextlib.contextmanager
def _bounded(trial: Trial) -> Iterator[None]:
    """Ends the command after CPU_SECONDS; notes memory beyond MOST_MEMORY, and what no command may raise."""
    before = _resident()
    handlers = [signal.signal(number, _endless) for number, _, _ in _ALARMS]
    for _, timer, seconds in _ALARMS:
        signal.setitimer(timer, seconds)
    try:
        yield
    except EndlessError as error:
        trial.problems.append(f"no end: {''.join(traceback.format_tb(error.__traceback__))[-1500:]}")
    except Exception:  # noqa: BLE001 (whatever it is, no command may raise it)
        trial.problems.append(traceback.format_exc()[-1500:])
    finally:
        for (number, timer, _), handler in zip(_ALARMS, handlers, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)
    grown = _peak() - before
    if grown > MOST_MEMORY:
        trial.problems.append(f"{grown >> 20} MiB of memory")


def _endless(_number: int, _frame: FrameType | None) -> None:
    raise EndlessError


def _resident() -> int:
    """Bytes of memory in use; the peak is measured from here on, where the system can."""
    with contextlib.suppress(OSError):
        (_PROCESS / "clear_refs").write_text("5")
    return _status("VmRSS")


def _peak() -> int:
    return _status("VmHWM")


def _status(name: str) -> int:
    try:
        lines = (_PROCESS / "status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith(name + ":")), 0)


_CONFINED: list[tuple[Trial, list[str]]] = []
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
# Where in an event's arguments (path, directory's descriptor) stand; -1: nowhere.
_PATHS: dict[str, tuple[tuple[int, int], ...]] = {
    "os.rename": ((0, 2), (1, 3)),
    "os.link": ((1, 3),),
    "os.symlink": ((1, 2),),
    "os.remove": ((0, 1),),
    "os.mkdir": ((0, 2),),
    "os.rmdir": ((0, 1),),
    "os.chmod": ((0, 2),),
    "os.chown": ((0, 3),),
    "os.utime": ((0, 3),),
    "os.truncate": ((0, -1),),
}
_CACHES = tuple(os.path.realpath(path) + "/" for path in (Path.home() / ".cache", *map(Path, sys.path)))


@contextlib.contextmanager
def _confined(trial: Trial, allowed: list[Path]) -> Iterator[None]:
    """Notes what is opened to write, made, moved or removed outside `allowed`."""
    _CONFINED.append((trial, [os.path.realpath(path) + "/" for path in allowed]))
    try:
        yield
    finally:
        _CONFINED.pop()


def _watch() -> None:
    if not getattr(sys, "_seglog_trials_watched", False):
        sys._seglog_trials_watched = True  # type: ignore[attr-defined]
        sys.addaudithook(_audited)


def _audited(event: str, arguments: tuple[object, ...]) -> None:
    if not _CONFINED:
        return
    touched = [(arguments[path], arguments[at] if at >= 0 else -1) for path, at in _PATHS.get(event, ())]
    if event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITING:
        touched = [(arguments[0], -1)]
    trial, allowed = _CONFINED[-1]
    for path, descriptor in touched:
        if not isinstance(path, (str, bytes, os.PathLike)):
            continue  # a descriptor, which was opened before
        text = os.fsdecode(path)
        if isinstance(descriptor, int) and descriptor >= 0:
            text = os.path.join(os.path.realpath(f"/proc/self/fd/{descriptor}"), text)  # noqa: PTH118
        elif event == "open" and not text.startswith("/"):
            continue  # relative to a descriptor that the event does not tell
        if event in ("open", "os.truncate", "os.chmod", "os.chown", "os.utime"):
            real = os.path.realpath(text)
        else:  # the name itself, whatever it may point to
            real = os.path.join(os.path.realpath(os.path.dirname(text)), os.path.basename(text))  # noqa: PTH118, PTH119, PTH120
        if not real.startswith((*allowed, *_CACHES)) and real != os.devnull:
            trial.problems.append(f"{event} outside: {real}")


# --- contents -------------------------------------------------------------------------------------------------


def _contents(root: Path) -> dict[str, object]:
    """Everything that a command could change: names, kinds, bytes, times."""
    found: dict[str, object] = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        kind = status.st_mode, status.st_mtime_ns, status.st_uid, status.st_gid
        if path.is_symlink():
            found[str(path)] = (kind, str(path.readlink()))
        elif path.is_file():
            found[str(path)] = (kind, path.read_bytes())
        else:
            found[str(path)] = kind[:1] if path.is_dir() else kind
    return found


def _remove(path: Path) -> None:
    if path.exists():
        shutil.rmtree(path)
