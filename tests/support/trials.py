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
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from seglog_cli.exit_codes import ExitCode
from tests.support.command_line import run
from tests.support.mutated_directories import mutate
from tests.support.open_logs import START_MS
from tests.support.varied_directory import base_directory, copy_tree

CPU_SECONDS = 10.0
WAITING_SECONDS = 300.0  # so that what waits for ever, for the writer of a pipe, is found, and a busy machine is not
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
_PROCESS = Path("/proc/self")


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

    def __str__(self) -> str:
        command = " ".join(self.command)
        return "\n  ".join([f"seed {self.seed}: {self.mutations}", f"{command!r} -> {self.exit_code}", *self.problems])


# --- commands -------------------------------------------------------------------------------------------------


def _looks(root: Path, partition: Path, file: Path, other: Path, out: Path, chance: random.Random) -> list[list[str]]:
    """Commands that must not change anything."""
    place = str(chance.choice([root, partition, partition, file]))
    offset = str(chance.choice([0, 0, 1, 7, 20, 39, 2**31, 2**63 - 1]))
    return [
        ["ls", place],
        ["read", str(partition), "--offset", offset, *chance.choice([[], ["--isolation", "read_committed"]])],
        ["read", str(partition), "--timestamp", str(START_MS + 10)],
        ["dump", place],
        ["dump", "--records", place, *chance.choice([[], ["--untrusted"], ["-j", "2"]])],
        ["dump-log", "--files", str(file), *chance.choice([[], ["--print-data-log"], ["--deep-iteration"]])],
        ["dump-log", "--verify-index-only", "--files", str(file)],
        ["verify", place, "--level", chance.choice(["header", "crc", "record", "index", "semantic"])],
        ["verify", "--repair", "--dry-run", str(chance.choice([root, partition]))],
        ["recover", "--dry-run", str(chance.choice([root, partition]))],
        ["reindex", "--dry-run", str(partition)],
        ["truncate", "--dry-run", "--to-offset", offset, str(partition)],
        ["truncate", "--dry-run", "--at-damage", str(partition)],
        ["retain", "--dry-run", "--retention-ms", "1", str(chance.choice([root, partition]))],
        ["retain", "--dry-run", "--free", "+1MB", str(root)],
        ["clean", "--dry-run", "--policy", "compact", "--override-policy", str(partition)],
        ["clean", "--dry-run", "--policy", "compact", "--override-policy", "--roll", str(partition)],
        ["clean", "--dry-run", str(root)],
        ["stats", place, *chance.choice([[], ["--sizing"]])],
        ["explain", "--advise", str(partition)],
        ["txn", str(partition)],
        ["doctor", str(root)],
        ["diff", str(partition), str(other)],
        ["config", "show", str(chance.choice([root, partition]))],
        ["export", str(partition), "-o", str(out / "export.jsonl")],
        ["export", str(partition), "--format", "csv", "-o", str(out / "export.csv")],
    ]


def _changes(root: Path, partition: Path, file: Path, out: Path, chance: random.Random) -> list[list[str]]:
    """Commands that change the directory, or make another one."""
    place = str(chance.choice([root, partition]))
    codec = chance.choice(["none", "gzip", "snappy", "lz4", "zstd"])
    policy = chance.choice(["smallest-loss", "truncate", "excise"])
    return [
        ["verify", "--repair", "--policy", policy, place],
        ["verify", "--repair", place],
        ["recover", place],
        ["reindex", str(partition)],
        ["truncate", "--to-offset", str(chance.choice([0, 1, 7, 20, 39, 2**31])), str(partition)],
        ["truncate", "--to-time", str(START_MS + 10), str(partition)],
        ["truncate", "--at-damage", str(partition)],
        ["retain", "--retention-ms", "1", *chance.choice([[], ["--delay", "0"]]), place],
        ["retain", "--retention-bytes", "1", place],
        ["retain", "--free", "+1kB", str(root)],
        ["clean", "--policy", "compact", "--override-policy", str(partition)],
        ["clean", "--policy", "compact", "--override-policy", "--roll", "--expire", str(partition)],
        ["clean", str(root)],
        ["cleaner", "--once", "--set", "cleanup.policy=compact", "--override-policy", str(root)],
        ["append", str(partition)],
        ["salvage", str(partition), "-o", str(out / "salvaged-0")],
        ["salvage", "--carve", str(chance.choice([partition, file])), "-o", str(out / "carved-9")],
        ["salvage", "--carve", "--into-one", str(partition), "-o", str(out / "carved-9")],
        ["convert", str(partition), "-o", str(out / "converted-0"), "--codec", codec],
        ["convert", str(partition), "-o", str(out / "converted-0"), "--magic", chance.choice("012")],
        ["convert", str(partition), "-o", str(out / "converted-0")],
    ]


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

    def _trial(self, trial: Trial, mutated: Path, chance: random.Random) -> Trial:
        copy = self.work / "copy"
        _remove(copy)
        copy_tree(mutated, copy)
        root, out = copy / "logs", copy / "out"
        out.mkdir()
        partitions = [path for path in sorted(root.iterdir()) if path.is_dir() and not path.is_symlink()] or [root]
        wrong = [path for path in partitions if self._differs(path)] or partitions
        partition, other = chance.choice(wrong if chance.random() < 0.8 else partitions), chance.choice(partitions)
        files = sorted(path for path in partition.iterdir() if not path.is_dir()) or [partition / "none"]
        looks = chance.random() < 0.5
        if looks:
            commands = _looks(root, partition, chance.choice(files), other, out, chance)
        else:
            commands = _changes(root, partition, chance.choice(files), out, chance)
        trial.command = [*chance.choice(commands), "--now", NOW, *(["--json"] if chance.random() < 0.4 else [])]
        before = _contents(root)
        known = self._findings(partition) if trial.command[0] in ("clean", "salvage", "convert") else set()
        self._run(trial, [copy, self.work / "home"])
        if looks and _contents(root) != before:
            trial.problems.append("a command that only looks has changed something")
        if (copy / "outside" / "file").read_text() != "0\n0\n" or len(list((copy / "outside").iterdir())) != 1:
            trial.problems.append("something outside has changed")
        if not looks and not trial.problems:
            trial.problems += self._afterwards(trial, partition, out, known)
        return trial

    def _differs(self, partition: Path) -> bool:
        """Whether a partition is not as it was before the mutations."""
        before = self._base / partition.name
        names = {path.name: path for path in partition.iterdir()}
        if not before.is_dir() or {path.name for path in before.iterdir()} != names.keys():
            return True
        plain = [path for path in names.values() if path.is_file() and not path.is_symlink()]
        return len(plain) < len(names) or any(p.read_bytes() != (before / p.name).read_bytes() for p in plain)

    def _run(self, trial: Trial, allowed: list[Path]) -> None:
        with _bounded(trial), _confined(trial, allowed):
            done = run(*trial.command, input_text="a line\n" if trial.command[0] == "append" else None)
            trial.exit_code = done.exit_code
            if done.exit_code not in set(ExitCode) - {ExitCode.INTERNAL}:
                trial.problems.append(f"exit code {done.exit_code}: {done.stderr[-300:]}")
            elif done.exit_code and not done.output.strip() and "doctor" not in trial.command:
                trial.problems.append(f"exit code {done.exit_code}, and not a word")

    def _findings(self, place: Path) -> set[str]:
        """The codes of what verify finds, without remarks; what follows from them when the log is written, too."""
        rows = [json.loads(line) for line in run("verify", "--json", place).stdout.splitlines()]
        found = {row["code"] for row in rows if row.get("severity") in ("error", "warning")}
        if "LEADER_EPOCH_DECREASING" in found or not (place / "leader-epoch-checkpoint").is_file():
            found.add("LEADER_EPOCHS_DIFFER")  # a lower epoch takes the higher ones out of the cache, as in Kafka
        return found

    def _afterwards(self, trial: Trial, partition: Path, out: Path, known: set[str]) -> Iterator[str]:
        """What is made holds batches as they were: verify may find odd ones in it that it found before."""
        command, code = trial.command[0], trial.exit_code
        made = [path for path in out.iterdir() if path.is_dir()]
        if command in ("salvage", "convert") and code in (0, 1):
            for path in made:
                new = self._findings(path) - (ODD if "--into-one" in trial.command else known & ODD)
                if new:
                    yield f"verify finds {new} in what {command} made: {run('verify', path).output[-400:]}"
        if command in ("salvage", "convert") and code not in (0, 1) and made:
            yield f"{command} failed, and left something"
        if command == "verify" and code == 4:
            place = next(word for word in trial.command[1:] if word.startswith("/"))
            checked = run("verify", place)
            if checked.exit_code:
                yield f"verify is not clean after a repair of everything: {checked.output[-400:]}"
            again = run(*trial.command)
            if again.exit_code:
                yield f"a second repair ends with {again.exit_code}: {again.output[-300:]}"
        if command == "clean" and code == 0 and not known and self._findings(partition):
            yield f"verify is not clean any more after clean: {run('verify', partition).output[-400:]}"


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
