"""What a power cut leaves of files and of names: the model behind `CrashFileSystem`, which describes it.

A file remembers the changes since its last sync, a directory the steps since its own. A step that touches two
directories (a rename between them) stands in the journals of both, and survives in both or in neither.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

NOW_MS = 1_700_000_000_000


@dataclass(eq=False)
class Node:
    """A file: contents now, contents on stable storage, and the changes between them."""

    inode: int
    content: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)  # (position, data) or (size, None)
    modified_ms: int = NOW_MS
    mode: int = 0o644

    def change(self, position: int, data: bytes | None) -> None:
        self.pending.append((position, data))
        _apply(self.content, position, data)
        self.modified_ms = NOW_MS

    def sync(self) -> None:
        self.durable, self.pending = bytes(self.content), []

    def after_crash(self, chance: random.Random) -> bytes:
        content = bytearray(self.durable)
        kept = chance.randint(0, len(self.pending))
        for position, data in self.pending[:kept]:
            _apply(content, position, data)
        if kept < len(self.pending):
            position, data = self.pending[kept]
            outcome = chance.randrange(3)
            if data is not None and outcome == 1:
                _apply(content, position, data[: chance.randint(0, len(data))])
            elif data is not None and outcome == 2:
                _apply(content, position, bytes(len(data)))
        return bytes(content)


def _apply(content: bytearray, position: int, data: bytes | None) -> None:
    if data is None:
        del content[position:]
        content.extend(bytes(max(0, position - len(content))))
    else:
        content.extend(bytes(max(0, position - len(content))))
        content[position : position + len(data)] = data


@dataclass(eq=False)
class Directory:
    """Names now, names on stable storage, and the changes between them: (name, entry or None), grouped in steps."""

    entries: dict[str, Node | Directory] = field(default_factory=dict)
    durable: dict[str, Node | Directory] = field(default_factory=dict)
    pending: list[Step] = field(default_factory=list)
    modified_ms: int = NOW_MS


@dataclass(eq=False)
class Step:
    """Changes of names that happen together, in one directory or (a rename) in two."""

    changes: list[tuple[Directory, str, Node | Directory | None]]


def set_name(names: dict[str, Node | Directory], name: str, entry: Node | Directory | None) -> None:
    if entry is None:
        names.pop(name, None)
    else:
        names[name] = entry


def directories_of(root: Directory) -> Iterator[Directory]:
    """Every directory that a crash may leave reachable."""
    seen: dict[int, Directory] = {}
    waiting = [root]
    while waiting:
        directory = waiting.pop()
        if id(directory) in seen:
            continue
        seen[id(directory)] = directory
        yield directory
        passing = [entry for step in directory.pending for _, _, entry in step.changes]
        for entry in (*directory.entries.values(), *directory.durable.values(), *passing):
            if isinstance(entry, Directory):
                waiting.append(entry)


def names_after_crash(root: Directory, chance: random.Random) -> dict[int, dict[str, Node | Directory]]:
    """Directory → names after the crash: what was durable, and a prefix of the steps of each directory since."""
    directories = list(directories_of(root))
    kept = {id(directory): directory.pending[:] for directory in directories}
    for steps in kept.values():
        del steps[chance.randint(0, len(steps)) :]
    while any(_cut_halves(steps, kept) for steps in kept.values()):
        pass
    names = {id(directory): dict(directory.durable) for directory in directories}
    for directory in directories:
        for step in kept[id(directory)]:
            _apply_names(step, directory, names[id(directory)])
    return names


def _cut_halves(steps: list[Step], kept: dict[int, list[Step]]) -> bool:
    """Ends `steps` before the first that the other directory of a rename lost; whether there was one."""
    for place, step in enumerate(steps):
        if any(step not in kept.get(id(owner), [step]) for owner, _, _ in step.changes):
            del steps[place:]
            return True
    return False


def commit(directory: Directory, count: int) -> None:
    """Makes the first `count` steps durable; a rename takes along what came before it in its other directory."""
    steps, directory.pending = directory.pending[:count], directory.pending[count:]
    for step in steps:
        _apply_names(step, directory, directory.durable)
        for owner, _, _ in step.changes:
            if step in owner.pending:
                commit(owner, owner.pending.index(step) + 1)


def _apply_names(step: Step, directory: Directory, names: dict[str, Node | Directory]) -> None:
    for owner, name, entry in step.changes:
        if owner is directory:
            set_name(names, name, entry)
