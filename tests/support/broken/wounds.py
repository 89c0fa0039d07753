"""Damage of every kind that a log directory can suffer, at random: files damaged, cut, lost, left over, misnamed.

Each wound takes a source of chance and the broker's log directories, and says what it did ("" where it could do
nothing). The metadata log is left alone: without it there is no broker to compare with.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

Wound = Callable[[random.Random, Sequence[Path]], str]
CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
)


def partitions(directories: Sequence[Path]) -> list[Path]:
    """The live partitions, without Kafka's own topics."""
    every = (path for one in directories for path in sorted(one.iterdir()) if path.is_dir())
    return [p for p in every if p.name[0] != "_" and not p.name.endswith(("-delete", "-stray", "-future"))]


def _files(chance: random.Random, directories: Sequence[Path], suffix: str, *, filled: bool = True) -> Path | None:
    found = [path for one in partitions(directories) for path in sorted(one.glob(f"*{suffix}"))]
    found = [path for path in found if not filled or path.stat().st_size]
    return chance.choice(found) if found else None


def _said(what: str, path: Path) -> str:
    return f"{what}: {path.parent.name}/{path.name}"


def flip(suffix: str) -> Wound:
    """Some bytes of a file are changed."""

    def wound(chance: random.Random, directories: Sequence[Path]) -> str:
        path = _files(chance, directories, suffix)
        if path is None:
            return ""
        at = chance.randrange(path.stat().st_size)
        with path.open("r+b") as file:
            file.seek(at)
            old = file.read(chance.choice((1, 1, 4, 64)))
            file.seek(at)
            file.write(bytes(byte ^ chance.randrange(1, 256) for byte in old))
        return _said(f"{len(old)} bytes flipped at {at}", path)

    return wound


def cut(suffix: str) -> Wound:
    """The end of a file is lost."""

    def wound(chance: random.Random, directories: Sequence[Path]) -> str:
        path = _files(chance, directories, suffix)
        if path is None:
            return ""
        size = chance.choice((0, chance.randrange(path.stat().st_size)))
        os.truncate(path, size)
        return _said(f"cut to {size}", path)

    return wound


def lose(suffix: str) -> Wound:
    """A file is lost."""

    def wound(chance: random.Random, directories: Sequence[Path]) -> str:
        path = _files(chance, directories, suffix, filled=False)
        if path is None:
            return ""
        path.unlink()
        return _said("lost", path)

    return wound


def blank(suffix: str) -> Wound:
    """A file, or a page of it, is nothing but zeros."""

    def wound(chance: random.Random, directories: Sequence[Path]) -> str:
        path = _files(chance, directories, suffix)
        if path is None:
            return ""
        size = path.stat().st_size
        first = chance.choice((0, chance.randrange(size)))
        length = min(size - first, chance.choice((size, 512)))
        with path.open("r+b") as file:
            file.seek(first)
            file.write(bytes(length))
        return _said(f"{length} zeros at {first}", path)

    return wound


def exchange(suffix: str) -> Wound:
    """Two files of a kind have changed places, within a partition or between two."""

    def wound(chance: random.Random, directories: Sequence[Path]) -> str:
        one, other = (_files(chance, directories, suffix) for _ in range(2))
        if one is not None and chance.random() < 0.7:
            other = chance.choice(sorted(one.parent.glob(f"*{suffix}")))
        if one is None or other is None or one == other:
            return ""
        kept = one.read_bytes()
        one.write_bytes(other.read_bytes())
        other.write_bytes(kept)
        return _said(f"exchanged with {other.parent.name}/{other.name}", one)

    return wound


def give_another_id(chance: random.Random, directories: Sequence[Path]) -> str:
    """A partition's topic id is another topic's, or nobody's."""
    found = [each for one in partitions(directories) if (each := one / "partition.metadata").exists()]
    if not found:
        return ""
    path, other = chance.choice(found), chance.choice(found)
    if chance.random() < 0.5:
        path.write_text("version: 0\ntopic_id: bd1Zvxo7SzqeYWy7nyL-1Q")
        return _said("nobody's topic id", path)
    path.write_bytes(other.read_bytes())
    return _said(f"the topic id of {other.parent.name}", path)


def grow(chance: random.Random, directories: Sequence[Path]) -> str:
    """Something stands after the end of the last segment."""
    partition = chance.choice(partitions(directories))
    logs = sorted(partition.glob("*.log"))
    if not logs:
        return ""
    extra = chance.choice((bytes(10), bytes(300), chance.randbytes(7), chance.randbytes(400)))
    with logs[-1].open("ab") as file:
        file.write(extra)
    return _said(f"{len(extra)} bytes {'of zeros' if not any(extra) else 'of garbage'} after the end", logs[-1])


def lose_segment(chance: random.Random, directories: Sequence[Path]) -> str:
    """All files of a segment are lost, or all logs of a partition."""
    path = _files(chance, directories, ".log", filled=False)
    if path is None:
        return ""
    stems = [path.stem] if chance.random() < 0.7 else [each.stem for each in path.parent.glob("*.log")]
    suffixes = chance.choice((["log"], ["log", "index", "timeindex", "txnindex"], ["*"]))
    for stem in stems:
        for suffix in suffixes:
            for each in path.parent.glob(f"{stem}.{suffix}"):
                each.unlink()
    return f"segments {stems} lost ({suffixes}): {path.parent.name}"


def lose_partition(chance: random.Random, directories: Sequence[Path]) -> str:
    """A partition's directory is lost."""
    path = chance.choice(partitions(directories))
    shutil.rmtree(path)
    return f"partition lost: {path.name}"


def leave_over(chance: random.Random, directories: Sequence[Path]) -> str:
    """Files of a swap, a cleaning or a deletion that was interrupted."""
    path = _files(chance, directories, ".log")
    if path is None:
        return ""
    state = chance.choice((".swap", ".cleaned", ".deleted", ".swap"))
    for each in sorted(path.parent.glob(f"{path.stem}.*")):
        if each.suffix in (".log", ".index", ".timeindex", ".txnindex"):
            shutil.copy2(each, f"{each}{state}")
    return _said(f"{state} files beside", path)


def misname(chance: random.Random, directories: Sequence[Path]) -> str:
    """A name that Kafka never gives."""
    if chance.random() < 0.3:
        name = chance.choice(("lost+found", "foo", "a-b", "plain-9", "nosuch-0", "x y-0", "-0", "keyed-07"))
        path = chance.choice(list(directories)) / name
        if path.exists():
            return ""
        path.mkdir()
        return f"directory {name} in {path.parent.name}"
    path = chance.choice(partitions(directories))
    names = ("x.log", "5.log", "x.index", "x.snapshot", "x.log.swap", "x.cleaned", "x.deleted", ".DS_Store", "n.tmp")
    name = chance.choice((*names, "00000000000000099999.index", "00000000000000099999.timeindex"))
    (path / name).write_bytes(b"" if chance.random() < 0.5 else b"abc")
    return f"file {path.name}/{name}"


def break_small_file(chance: random.Random, directories: Sequence[Path]) -> str:
    """A small text file is empty, cut, of another version, or not text."""
    names = ("leader-epoch-checkpoint", "partition.metadata")
    own = [one / name for one in partitions(directories) for name in names]
    roots = [one / name for one in directories for name in CHECKPOINTS]
    found = [path for path in (*own, *roots, *roots, *roots) if path.exists()]
    path = chance.choice(found)
    data = path.read_bytes()
    kinds: dict[str, bytes | None] = {
        "empty": b"",
        "cut": data[: len(data) // 2],
        "version 7": b"7" + data[1:],
        "garbage": chance.randbytes(30),
        "one line": data.split(b"\n")[0],
        "a word for a number": data.replace(b" 0", b" x", 1),
        "missing": None,
    }
    kind = chance.choice(list(kinds))
    content = kinds[kind]
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    return _said(kind, path)


def promise(chance: random.Random, directories: Sequence[Path]) -> str:
    """A checkpoint has an offset that its log does not."""
    path = chance.choice(list(directories)) / chance.choice(CHECKPOINTS)
    if not path.exists():
        return ""
    lines = path.read_text().splitlines()
    entries = [i for i, line in enumerate(lines[2:], 2) if len(line.split()) == 3 and line[0] != "_"]
    if not entries:
        return ""
    at = chance.choice(entries)
    topic, number, offset = lines[at].split()
    wrong = chance.choice((int(offset) + 1000, 10**9, 0, max(0, int(offset) - 50)))
    lines[at] = f"{topic} {number} {wrong}"
    path.write_text("\n".join(lines) + "\n")
    return _said(f"{topic}-{number} {offset} becomes {wrong}", path)


def duplicate(chance: random.Random, directories: Sequence[Path]) -> str:
    """A partition lies in two log directories, or beside itself under another name."""
    path = chance.choice(partitions(directories))
    others = [one for one in directories if one != path.parent]
    kind = chance.choice(("twin", "future", "future without id", "deleted", "number", "topic"))
    unique = "0123456789abcdef0123456789abcdef"
    names = {
        "twin": path.name,
        "future": f"{path.name}.{unique}-future",
        "future without id": f"{path.name}.{unique}-future",
        "deleted": f"{path.name}.{unique}-delete",
        "number": f"{path.name.rpartition('-')[0]}-17",
        "topic": "another-0",
    }
    target = (others[0] if others and kind in ("twin", "future") else path.parent) / names[kind]
    if target.exists():
        return ""
    shutil.copytree(path, target)
    if kind == "future without id":
        (target / "partition.metadata").unlink(missing_ok=True)
    return f"{kind} of {path.name}: {target.parent.name}/{target.name}"


def break_identity(chance: random.Random, directories: Sequence[Path]) -> str:
    """The second directory's meta.properties is wrong."""
    path = directories[-1] / "meta.properties"
    if len(directories) < 2 or not path.exists():
        return ""
    text = path.read_text()
    node = next(line for line in text.splitlines() if line.startswith("node.id"))
    path.write_text(chance.choice(("", text.replace(node, "node.id=9"), text.replace("version=1", "version=5"))))
    return "meta.properties broken"


def pad(chance: random.Random, directories: Sequence[Path]) -> str:
    """An index has the zeros of preallocation."""
    path = _files(chance, directories, chance.choice((".index", ".timeindex")), filled=False)
    if path is None:
        return ""
    with path.open("ab") as file:
        file.write(bytes(struct.calcsize(">qi") * chance.choice((1, 8, 100))))
    return _said("zeros after the end", path)


def toggle_marker(chance: random.Random, directories: Sequence[Path]) -> str:
    """The clean-shutdown marker goes, or comes where the broker was killed."""
    path = chance.choice(list(directories)) / ".kafka_cleanshutdown"
    if path.exists():
        path.unlink()
        return f"marker gone in {path.parent.name}"
    path.write_text('{"version":0,"brokerEpoch":-1}')
    return f"marker made in {path.parent.name}"


WOUNDS: tuple[Wound, ...] = (
    *(flip(suffix) for suffix in (".log", ".log", ".log", ".index", ".timeindex", ".txnindex", ".snapshot")),
    *(cut(suffix) for suffix in (".log", ".log", ".index", ".timeindex", ".txnindex", ".snapshot")),
    *(blank(suffix) for suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot")),
    *(exchange(suffix) for suffix in (".log", ".index", ".timeindex", ".snapshot")),
    *(lose(suffix) for suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot")),
    grow,
    grow,
    lose_segment,
    lose_segment,
    lose_partition,
    leave_over,
    leave_over,
    misname,
    misname,
    break_small_file,
    break_small_file,
    break_small_file,
    promise,
    promise,
    duplicate,
    duplicate,
    break_identity,
    give_another_id,
    give_another_id,
    pad,
    toggle_marker,
)
