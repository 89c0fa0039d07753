"""A file system in memory whose power can be cut at every call, and which then forgets what was not synced.

The model is stricter than ext4 and as strict as POSIX allows:

- Contents: what `sync` returned for survives. Of the writes and truncations since, a prefix survives; the first
  lost write may survive in part, or as zeros (the size reached the disk, the data did not).
- Names: creations, renames and removals in a directory survive up to its last `sync_directory`, and a prefix of
  those since. Syncing a file does not save its name. A rename is all or nothing, also between directories.

`mutations` counts the calls that change something. `cut_at(n)` lets the n-th of them raise `PowerCut` before it
happens (a write: after part of it), and every call after it too. `survivor(seed)` is a file system as the next
boot finds it; `write_to` puts it on the real disk, for Kafka to look at.
"""

from __future__ import annotations

import errno
import os
import random
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from seglog.errors import RefusedError
from seglog.storage.filesystem import READ_BYTES_LIMIT, Access, FileStatus, OpenMode
from tests.support.crash_model import Directory, Node, Step, commit, directories_of, names_after_crash, set_name


class PowerCut(BaseException):
    """The machine is off. Not an Exception: nothing in the engine may catch it and go on."""


class MemoryFile:
    """An open file of `CrashFileSystem`."""

    def __init__(self, owner: CrashFileSystem, path: Path, node: Node, writable: bool) -> None:
        self.path, self._owner, self._node, self._writable = path, owner, node, writable

    def size(self) -> int:
        self._owner.check_power()
        return len(self._node.content)

    def status(self) -> FileStatus:
        found = self._owner.status(self.path)
        assert found is not None
        return found

    def read_at(self, position: int, size: int) -> bytes:
        self._owner.check_power()
        return bytes(self._node.content[position : position + size])

    def read_into(self, position: int, buffer: Any) -> int:
        self._owner.check_power()
        view = memoryview(buffer).cast("B")
        data = self._node.content[position : position + len(view)]
        view[: len(data)] = data
        return len(data)

    def write_at(self, position: int, data: Any) -> None:
        self._require_writable()
        raw = bytes(memoryview(data).cast("B")) if memoryview(data).nbytes else b""
        room = self._owner.take_space(max(0, position + len(raw) - len(self._node.content)), len(raw))
        kept = self._owner.mutate(f"write {self.path.name} {position}+{len(raw)}", len(raw))
        self._node.change(position, raw[: min(kept, room)])
        if kept < len(raw):
            raise PowerCut(f"in the middle of a write to {self.path.name}")
        if room < len(raw):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))

    def truncate(self, size: int) -> None:
        self._require_writable()
        self._owner.mutate(f"truncate {self.path.name} to {size}")
        self._node.change(size, None)

    def give(self, access: Access) -> None:
        self._owner.check_power()
        self._node.mode = access.mode & 0o666

    def sync(self) -> None:
        self._owner.mutate(f"sync {self.path.name}")
        self._node.sync()

    def lend(self, position: int, size: int) -> memoryview | None:
        self._owner.check_power()
        return None

    def next_data(self, position: int) -> int:
        self._owner.check_power()
        return position

    def advise_wanted(self, position: int, size: int, *, side_by_side: bool = False, again: bool = False) -> None:
        self._owner.check_power()

    def advise_dropped(self, position: int, size: int) -> None:
        self._owner.check_power()

    def start_writing(self, position: int, size: int) -> None:
        self._owner.check_power()

    def fileno(self) -> int:
        raise OSError(errno.ENOTSUP, "a file in memory has no descriptor", str(self.path))

    def close(self) -> None:
        """Closing saves nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _require_writable(self) -> None:
        if not self._writable:
            raise OSError(errno.EBADF, "the file is open for reading", str(self.path))


class CrashFileSystem:
    """See the module. Paths are absolute; the root directory exists."""

    def __init__(self) -> None:
        self._root = Directory()
        self._inodes = 0
        self.mutations = 0
        self.trace: list[str] = []  # one line a mutation, for messages of failing tests
        self._cut_at: int | None = None
        self._cut_fraction = 0.0
        self._off = False
        self._space: int | None = None

    # --- what tests do ------------------------------------------------------------------------------------------

    @classmethod
    def of(cls, *folders: Path) -> CrashFileSystem:
        """A file system that holds these real directories, at their own paths and on stable storage."""
        fs = cls()
        for folder in folders:
            fs._directory_of(folder / "x", create=True)
            for path in sorted(folder.rglob("*")):
                parent = fs._directory_of(path, create=True)
                if path.is_dir():
                    parent.entries[path.name] = Directory()
                else:
                    node = fs._new_node(path.read_bytes())
                    node.modified_ms = path.stat().st_mtime_ns // 1_000_000
                    parent.entries[path.name] = node
        fs.sync_all()
        return fs

    def cut_at(self, mutation: int, fraction: float = 0.0) -> None:
        """Cuts the power at the `mutation`-th change from now (0: the next); a write keeps `fraction` of it."""
        self._cut_at, self._cut_fraction = self.mutations + mutation, fraction

    def fill_disk_after(self, size: int) -> None:
        """Lets writes that need more than `size` further bytes fail with ENOSPC, half written."""
        self._space = size

    def survivor(self, seed: int) -> CrashFileSystem:
        """The file system as a boot after a power cut finds it; the seed chooses what was lucky."""
        chance = random.Random(seed)
        fs = CrashFileSystem()
        nodes: dict[int, Node] = {}
        names = names_after_crash(self._root, chance)
        fs._root = fs._copied(self._root, names, nodes, chance)
        fs.sync_all()
        return fs

    def sync_all(self) -> None:
        """Makes everything durable."""
        for directory in directories_of(self._root):
            directory.durable, directory.pending = dict(directory.entries), []
            for entry in directory.entries.values():
                if isinstance(entry, Node):
                    entry.sync()

    def write_to(self, target: Path, folder: Path) -> None:
        """Copies `folder` of this file system to the real directory `target`."""
        directory = self._find(folder)
        assert isinstance(directory, Directory)
        target.mkdir(parents=True, exist_ok=True)
        for name, entry in directory.entries.items():
            if isinstance(entry, Directory):
                self.write_to(target / name, folder / name)
            else:
                (target / name).write_bytes(entry.content)
                os.utime(target / name, ns=(entry.modified_ms * 1_000_000,) * 2)

    def contents(self, folder: Path) -> dict[str, bytes]:
        """Path below `folder` → bytes, of every file."""
        found = {}
        for name, entry in self._directory(folder).entries.items():
            if isinstance(entry, Directory):
                found |= {f"{name}/{below}": data for below, data in self.contents(folder / name).items()}
            else:
                found[name] = bytes(entry.content)
        return found

    # --- power and space ----------------------------------------------------------------------------------------

    def check_power(self) -> None:
        if self._off:
            raise PowerCut("the power is off")

    def mutate(self, what: str, size: int = 0) -> int:
        """Counts a change; returns how many of `size` bytes happen. Raises at the moment of the cut."""
        self.check_power()
        self.trace.append(what)
        number = self.mutations
        self.mutations += 1
        if self._cut_at is not None and number >= self._cut_at:
            self._off = True
            if size and self._cut_fraction > 0:
                return int(size * self._cut_fraction) if self._cut_fraction < 1 else size - 1
            raise PowerCut(what)
        return size

    def take_space(self, growth: int, size: int) -> int:
        """How many of a write's `size` bytes the disk takes when the file grows by `growth`."""
        if self._space is None or growth <= self._space:
            if self._space is not None:
                self._space -= growth
            return size
        room = size - (growth - self._space)
        self._space = 0
        return max(0, room)

    # --- FileSystem -----------------------------------------------------------------------------------------------

    def open(self, path: Path, mode: OpenMode) -> MemoryFile:
        self.check_power()
        entry = self._find(path)
        if isinstance(entry, Directory):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if entry is None:
            if mode in ("r", "r+"):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            directory = self._directory_of(path)
            self.mutate(f"create {path.name}")
            entry = self._new_node()
            self._step((directory, path.name, entry))
        elif mode == "create_new":
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        elif mode == "create":
            self.remove(path)
            return self.open(path, "create_new")
        return MemoryFile(self, path, entry, mode != "r")

    def status(self, path: Path, follow: bool = True) -> FileStatus | None:
        self.check_power()
        entry = self._find(path)
        if entry is None:
            return None
        is_directory = isinstance(entry, Directory)
        size = 0 if isinstance(entry, Directory) else len(entry.content)
        inode = id(entry) if isinstance(entry, Directory) else entry.inode
        kind = (stat.S_IFDIR | 0o755) if isinstance(entry, Directory) else (stat.S_IFREG | entry.mode)
        at = entry.modified_ms
        return FileStatus(size, at, at * 1_000_000, inode, 1, kind, os.getuid(), os.getgid(), size, is_directory)

    def list(self, directory: Path) -> list[str]:
        self.check_power()
        return sorted(self._directory(directory).entries)

    def entries(self, directory: Path) -> Sequence[tuple[str, FileStatus]]:
        return [(name, found) for name in self.list(directory) if (found := self.status(directory / name)) is not None]

    def rename(self, source: Path, target: Path) -> None:
        self.check_power()
        origin, goal = self._directory_of(source), self._directory_of(target)
        entry = origin.entries.get(source.name)
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(source))
        self.mutate(f"rename {source.name} to {target.name}")
        if source != target:
            self._step((origin, source.name, None), (goal, target.name, entry))

    def remove(self, path: Path) -> None:
        self.check_power()
        directory = self._directory_of(path)
        if not isinstance(directory.entries.get(path.name), Node):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        self.mutate(f"remove {path.name}")
        self._step((directory, path.name, None))

    def make_directory(self, path: Path, parents: bool = False, access: Access | None = None) -> None:
        self.check_power()
        if parents:
            if isinstance(self._find(path), Directory):
                return
            self.make_directory(path.parent, parents=True, access=access)
        directory = self._directory_of(path)
        if path.name in directory.entries:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        self.mutate(f"make directory {path.name}")
        self._step((directory, path.name, Directory()))

    def remove_directory(self, path: Path) -> None:
        self.check_power()
        if self._directory(path).entries:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(path))
        directory = self._directory_of(path)
        self.mutate(f"remove directory {path.name}")
        self._step((directory, path.name, None))

    def sync_directory(self, path: Path) -> None:
        self.check_power()
        directory = self._directory(path)
        self.mutate(f"sync directory {path.name}")
        commit(directory, len(directory.pending))

    def set_modified(self, path: Path, modified_ms: int) -> None:
        self.check_power()
        self.mutate(f"set time of {path.name}")
        self._existing(path).modified_ms = modified_ms

    def copy_attributes(self, source: Path, target: Path) -> None:
        self.check_power()
        self.mutate(f"copy attributes to {target.name}")
        origin, goal = self._existing(source), self._existing(target)
        goal.modified_ms = origin.modified_ms
        if isinstance(origin, Node) and isinstance(goal, Node):
            goal.mode = origin.mode

    def reads_at_once(self, path: Path) -> int:
        self.check_power()
        return 1

    def free_bytes(self, path: Path) -> int:
        self.check_power()
        return 1 << 40 if self._space is None else self._space

    def read_bytes(self, path: Path, limit: int = READ_BYTES_LIMIT) -> bytes:
        with self.open(path, "r") as file:
            if file.size() > limit:
                raise RefusedError(f"{path}: {file.size()} bytes are more than the {limit} that are read at once")
            return file.read_at(0, file.size())

    def read_each(self, directory: Path, names: Iterable[str], limit: int = READ_BYTES_LIMIT) -> Sequence[bytes]:
        return [self.read_bytes(directory / name, limit) for name in names]

    def link(self, source: Path, target: Path) -> None:
        self.check_power()
        entry, directory = self._existing(source), self._directory_of(target)
        if target.name in directory.entries:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
        self.mutate(f"link {source.name} as {target.name}")
        self._step((directory, target.name, entry))

    # --- inside -----------------------------------------------------------------------------------------------------

    def _new_node(self, content: bytes = b"") -> Node:
        self._inodes += 1
        return Node(self._inodes, bytearray(content))

    def _step(self, *changes: tuple[Directory, str, Node | Directory | None]) -> None:
        step = Step(list(changes))
        for owner in {id(change[0]): change[0] for change in changes}.values():
            owner.pending.append(step)
        for owner, name, entry in changes:
            set_name(owner.entries, name, entry)

    def _find(self, path: Path) -> Node | Directory | None:
        entry: Node | Directory | None = self._root
        for part in path.parts[1:]:
            if not isinstance(entry, Directory):
                return None
            entry = entry.entries.get(part)
        return entry

    def _existing(self, path: Path) -> Node | Directory:
        entry = self._find(path)
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return entry

    def _directory(self, path: Path) -> Directory:
        entry = self._existing(path)
        if not isinstance(entry, Directory):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
        return entry

    def _directory_of(self, path: Path, create: bool = False) -> Directory:
        directory = self._root
        for part in path.parts[1:-1]:
            entry = directory.entries.get(part)
            if entry is None and create:
                entry = directory.entries[part] = Directory()
            if not isinstance(entry, Directory):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path.parent))
            directory = entry
        return directory

    def _copied(
        self,
        source: Directory,
        names: dict[int, dict[str, Node | Directory]],
        nodes: dict[int, Node],
        chance: random.Random,
    ) -> Directory:
        copy = Directory(modified_ms=source.modified_ms)
        for name, entry in sorted(names[id(source)].items()):
            if isinstance(entry, Directory):
                copy.entries[name] = self._copied(entry, names, nodes, chance)
            else:
                if id(entry) not in nodes:
                    node = self._new_node(entry.after_crash(chance))
                    node.modified_ms, node.mode = entry.modified_ms, entry.mode
                    nodes[id(entry)] = node
                copy.entries[name] = nodes[id(entry)]
        return copy
