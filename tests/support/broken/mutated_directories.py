"""Log directories, mutated with knowledge of what is in them: for trials of every command on what no broker leaves.

A mutation changes one thing: a name, a file as a whole, a number in a text file, bytes of a batch (sealed again with a
right checksum, or not), an index, a snapshot. `mutate` applies a few, by chance, and says which.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

from seglog.format.checksum import crc32c
from tests.support.broken.varied_directory import base_directory, copy_tree
from tests.support.effort import first_seed, tries

INT32 = (-1, 0, 1, 2, -2, 7, 2**31 - 1, -(2**31), 2**30)
INT64 = (-1, 0, 1, 5, 40, 2**31, 2**31 - 1, 2**63 - 1, 2**63 - 2, -(2**63), 2**62)
FILE_NAMES = (
    b"99999999999999999999.log",
    b"18446744073709551616.log",
    b"09223372036854775807.log",
    b"09223372036854775806.log",
    b"-0000000000000000001.log",
    b"+0000000000000000001.log",
    b"0000000000000000000.log",
    b"000000000000000000000.log",
    b"00000000000000000000.LOG",
    b"00000000000000000000.log.swap",
    b"00000000000000000020.log.swap",
    b"00000000000000000000.log.cleaned",
    b"00000000000000000020.log.deleted",
    b"00000000000000000000.index.swap",
    b"00000000000000000000.timeindex.deleted",
    b"00000000000000000007.snapshot",
    b"09223372036854775807.snapshot",
    b"09223372036854775807.index",
    b"00000000000000000003.kafka",
    b"00000000000000000000-0000000000.checkpoint",
    b"\xff\xfe.log",
    b"\x1b[31mred.log",
    b"new\nline.log",
    b" .log",
    b".log",
    b"a.b.c.index",
    b"leader-epoch-checkpoint.tmp",
    b"partition.metadata.tmp",
)
DIRECTORY_NAMES = (
    b"t--1",
    b"t-99999999999",
    b"t-2147483647",
    b"t-00",
    b"t-0.0123456789abcdef0123456789abcdef-delete",
    b"t-0.0123456789abcdef0123456789abcdef-stray",
    b"t-0.0123456789abcdef0123456789abcdef-future",
    b"\xff\xff-0",
    b"\x1b[31m-0",
    b"new\nline-0",
    b"lost+found",
    b"__cluster_metadata-1",
    b"__consumer_offsets-0",
    b"x" * 200 + b"-0",
    b"remote-log-index-cache",
    b"snapshots",
)
CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
)
NUMBERS = (-1, 0, 1, 7, 40, 2**31, 2**63 - 1, 2**63, -(2**63), 10**30)
NAME_PARTS = ("c0", "c1", "p", "x", "old", "", "no-such", "a b", "\u2028", "é", "..", "/", "x" * 300)
GARBAGE = (
    *(b"", b"\0", b"\n", b"0", b"0\n", b"0\n1\n", b"-1\n0\n", b"0\n-1\n", b"0\n2147483647\n", b"\xff\xfe\n"),
    b"0\n1\nx\n",
)
_NOBODY = 65534
_FIELDS = {  # position and format of the fields of a v2 batch
    "base offset": (0, ">q"),
    "size": (8, ">i"),
    "epoch": (12, ">i"),
    "magic": (16, ">b"),
    "attributes": (21, ">h"),
    "last offset delta": (23, ">i"),
    "base timestamp": (27, ">q"),
    "max timestamp": (35, ">q"),
    "producer": (43, ">q"),
    "producer epoch": (51, ">h"),
    "sequence": (53, ">i"),
    "count": (57, ">i"),
}


# --- what is there to change ----------------------------------------------------------------------------------


def _files(root: Path, *suffixes: str) -> list[Path]:
    found = [path for path in sorted(root.rglob("*")) if not path.is_symlink() and path.is_file()]
    return [path for path in found if not suffixes or path.name.endswith(suffixes)]


def _partitions(root: Path) -> list[Path]:
    return [path for path in sorted(root.iterdir()) if path.is_dir() and not path.is_symlink()]


def _named(directory: Path, name: bytes) -> Path:
    return directory / os.fsdecode(name)


def _free(path: Path) -> bool:
    return not path.exists() and not path.is_symlink()


def _plain(path: Path) -> bool:
    """Whether a file of that name can be written: neither a link nor a pipe, whose opening would wait for a reader."""
    return _free(path) or (path.is_file() and not path.is_symlink())


# --- mutations ------------------------------------------------------------------------------------------------


Mutation = Callable[[Path, random.Random], str]


def remove(root: Path, chance: random.Random) -> str:
    path = chance.choice(_files(root))
    path.unlink()
    return f"remove {path.name}"


def empty(root: Path, chance: random.Random) -> str:
    path = chance.choice(_files(root))
    path.write_bytes(b"")
    return f"empty {path.name}"


def cut(root: Path, chance: random.Random) -> str:
    path = chance.choice(_files(root))
    data = path.read_bytes()
    size = chance.randint(0, len(data))
    path.write_bytes(data[:size])
    return f"cut {path.name} to {size}"


def lengthen(root: Path, chance: random.Random) -> str:
    path = chance.choice(_files(root))
    more = chance.choice([b"\0", b"\xff", chance.randbytes(1)]) * chance.choice([1, 7, 12, 61, 100, 4096])
    path.write_bytes(path.read_bytes() + more)
    return f"lengthen {path.name} by {len(more)}"


def rename(root: Path, chance: random.Random) -> str:
    path = chance.choice(_files(root))
    target = _named(path.parent, chance.choice(FILE_NAMES))
    path.rename(target)
    return f"rename {path.name} to {target.name!r}"


def renumber(root: Path, chance: random.Random) -> str:
    """A segment's files under another base offset."""
    path = chance.choice(_files(root, ".log"))
    base = chance.choice([0, 1, 5, 19, 21, 40, 2**31, 2**63 - 1])
    for one in sorted(path.parent.glob(path.name.split(".")[0] + ".*")):
        if _free(path.parent / f"{base:020d}{one.suffix}"):
            one.rename(path.parent / f"{base:020d}{one.suffix}")
    return f"renumber {path.name} to {base}"


def duplicate(root: Path, chance: random.Random) -> str:
    path = chance.choice(_files(root))
    target = _named(chance.choice(_partitions(root)), chance.choice([*FILE_NAMES, os.fsencode(path.name)]))
    if target == path or not _plain(target):
        return ""
    shutil.copy(path, target)
    return f"copy {path.name} to {target.parent.name}/{target.name!r}"


def swap(root: Path, chance: random.Random) -> str:
    one, other = chance.sample(_files(root), 2)
    data = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(data)
    return f"swap {one.parent.name}/{one.name} and {other.parent.name}/{other.name}"


def index_of_another(root: Path, chance: random.Random) -> str:
    indexes = _files(root, ".index", ".timeindex", ".txnindex", ".snapshot")
    if len(indexes) < 2:
        return ""
    one, other = chance.sample(indexes, 2)
    other.write_bytes(one.read_bytes())
    return f"{other.parent.name}/{other.name} has what {one.parent.name}/{one.name} has"


def link(root: Path, chance: random.Random) -> str:
    """A link in place of a file; one that leads outside is another user's, as root's own are followed."""
    path = chance.choice(_files(root))
    elsewhere = root.parent / "outside" / "file"
    targets: list[str | Path] = ["/nonexistent", path.name, "..", chance.choice(_files(root))]
    target = chance.choice([*targets, elsewhere, elsewhere] if os.geteuid() == 0 else targets)
    path.unlink()
    path.symlink_to(target)
    if target == elsewhere or (os.geteuid() == 0 and chance.random() < 0.3):
        os.lchown(path, _NOBODY, _NOBODY)
    return f"link {path.name} to {target}"


def pipe(root: Path, chance: random.Random) -> str:
    path = chance.choice(_files(root))
    path.unlink()
    os.mkfifo(path)
    return f"{path.name} becomes a pipe"


def directory_for_file(root: Path, chance: random.Random) -> str:
    path = chance.choice(_files(root))
    path.unlink()
    path.mkdir()
    if chance.random() < 0.5:
        (path / f"{0:020d}.log").write_bytes(b"")
    return f"{path.name} becomes a directory"


def nested(root: Path, chance: random.Random) -> str:
    target = chance.choice(_partitions(root)) / chance.choice(["sub", "t-0", f"{0:020d}.log.d", "old", "new"])
    if not _free(target):
        return ""
    target.mkdir()
    (target / f"{0:020d}.log").write_bytes(b"")
    return f"a directory {target.name} in {target.parent.name}"


def rename_partition(root: Path, chance: random.Random) -> str:
    path, target = chance.choice(_partitions(root)), _named(root, chance.choice(DIRECTORY_NAMES))
    if not _free(target):
        return ""
    path.rename(target)
    return f"rename {path.name} to {target.name!r}"


def copy_partition(root: Path, chance: random.Random) -> str:
    path, target = chance.choice(_partitions(root)), _named(root, chance.choice(DIRECTORY_NAMES))
    if not _free(target):
        return ""
    copy_tree(path, target)
    return f"copy {path.name} to {target.name!r}"


def checkpoint_number(root: Path, chance: random.Random) -> str:
    path = root / chance.choice(CHECKPOINTS)
    entries = [
        f"{chance.choice(NAME_PARTS)} {chance.choice([0, 0, 0, *NUMBERS])} {chance.choice(NUMBERS)}"
        for _ in range(chance.randint(0, 4))
    ]
    if not _plain(path):
        return ""
    count = len(entries) if chance.random() < 0.8 else chance.choice(NUMBERS)
    path.write_text("\n".join(["0", str(count), *entries, ""]))
    return f"{path.name}: {entries}"


def epoch_number(root: Path, chance: random.Random) -> str:
    path = chance.choice(_partitions(root)) / "leader-epoch-checkpoint"
    entries = [f"{chance.choice(NUMBERS)} {chance.choice(NUMBERS)}" for _ in range(chance.randint(0, 4))]
    if not _plain(path):
        return ""
    path.write_text("\n".join(["0", str(len(entries)), *entries, ""]))
    return f"{path.parent.name}/{path.name}: {entries}"


def text_garbage(root: Path, chance: random.Random) -> str:
    names = (*CHECKPOINTS, "meta.properties", ".kafka_cleanshutdown", ".lock")
    inner = ("leader-epoch-checkpoint", "partition.metadata", "quorum-state")
    of_partition = chance.choice(_partitions(root)) / chance.choice(inner)
    path = root / chance.choice(names) if chance.random() < 0.5 else of_partition
    if not _plain(path):
        return ""
    data = chance.choice([*GARBAGE, chance.randbytes(50)])
    path.write_bytes(data)
    return f"{path.name}: {data[:20]!r}"


def not_closed(root: Path, chance: random.Random) -> str:
    (root / ".kafka_cleanshutdown").unlink(missing_ok=True)
    return "no clean-shutdown marker"


def _batches(data: bytes) -> list[tuple[int, int]]:
    """(position, size) of entries, as their size fields say."""
    found, at = [], 0
    while at + 12 <= len(data):
        size = 12 + struct.unpack_from(">i", data, at + 8)[0]
        if size < 26 or at + size > len(data):
            break
        found.append((at, size))
        at += size
    return found


def _some_log(root: Path, chance: random.Random) -> tuple[Path, bytearray, list[tuple[int, int]]] | None:
    files = [path for path in _files(root, ".log", ".checkpoint", ".swap", ".deleted") if path.stat().st_size]
    if not files:
        return None
    path = chance.choice(files)
    data = bytearray(path.read_bytes())
    return path, data, _batches(data)


def flip(root: Path, chance: random.Random) -> str:
    files = [path for path in _files(root) if path.stat().st_size]
    path = chance.choice(files)
    data = bytearray(path.read_bytes())
    for _ in range(chance.randint(1, 4)):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)
    return f"flip bits of {path.name}"


def _sealed(data: bytearray, at: int, size: int) -> None:
    if size > 61 and data[at + 16] == 2:
        struct.pack_into(">I", data, at + 17, crc32c(memoryview(bytes(data))[at + 21 : at + size]))


def field(root: Path, chance: random.Random) -> str:
    """A field of a batch's header, with a right checksum most of the time."""
    found = _some_log(root, chance)
    if found is None or not found[2]:
        return ""
    path, data, batches = found
    at, size = chance.choice(batches)
    name = chance.choice(list(_FIELDS))
    position, form = _FIELDS[name]
    bits = 8 * struct.calcsize(form)
    value = chance.choice([v for v in (INT64 if bits == 64 else INT32) if -(1 << bits - 1) <= v < 1 << bits - 1])
    if position + struct.calcsize(form) > size:
        return ""
    struct.pack_into(form, data, at + position, value)
    if chance.random() < 0.85:
        _sealed(data, at, size)
    path.write_bytes(data)
    return f"{path.parent.name}/{path.name} at {at}: {name} = {value}"


def records(root: Path, chance: random.Random) -> str:
    """Bytes of the records of a batch, with a right checksum."""
    found = _some_log(root, chance)
    candidates = [] if found is None else [(at, size) for at, size in found[2] if size > 61]
    if found is None or not candidates:
        return ""
    path, data, _ = found
    at, size = chance.choice(candidates)
    for _ in range(chance.randint(1, 5)):
        data[at + chance.randrange(57, size)] = chance.choice([0, 1, 127, 128, 255, chance.randrange(256)])
    _sealed(data, at, size)
    path.write_bytes(data)
    return f"{path.parent.name}/{path.name} at {at}: records"


def shuffle(root: Path, chance: random.Random) -> str:
    """Batches in another order, twice, or not at all."""
    found = _some_log(root, chance)
    if found is None or len(found[2]) < 2:
        return ""
    path, data, batches = found
    pieces = [bytes(data[at : at + size]) for at, size in batches]
    kind = chance.choice(["swapped", "twice", "missing", "reversed", "doubled"])
    i, j = sorted(chance.sample(range(len(pieces)), 2))
    if kind == "swapped":
        pieces[i], pieces[j] = pieces[j], pieces[i]
    elif kind == "twice":
        pieces.insert(j, pieces[i])
    elif kind == "missing":
        del pieces[i]
    elif kind == "reversed":
        pieces.reverse()
    else:
        pieces += pieces
    path.write_bytes(b"".join(pieces))
    return f"{path.parent.name}/{path.name}: batches {kind}"


def index_entry(root: Path, chance: random.Random) -> str:
    sizes = {".index": 8, ".timeindex": 12, ".txnindex": 34}
    files = _files(root, *sizes)
    if not files:
        return ""
    path = chance.choice(files)
    data = bytearray(path.read_bytes())
    entry = sizes[path.suffix]
    kind = chance.choice(["set", "add", "odd"])
    if kind == "set" and len(data) >= entry:
        at = chance.randrange(len(data) // entry) * entry
        data[at : at + entry] = _entry(entry, chance)
    elif kind == "add":
        data += _entry(entry, chance) * chance.randint(1, 3)
    else:
        data += bytes(chance.randint(1, entry))
    path.write_bytes(data)
    return f"{path.parent.name}/{path.name}: entry {kind}"


def _entry(size: int, chance: random.Random) -> bytes:
    form = {8: ">ii", 12: ">qi", 34: ">hqqqq"}[size]
    values = []
    for letter in form[1:]:
        values.append(chance.choice(INT64) if letter == "q" else chance.choice(INT32) if letter == "i" else 0)
    return struct.pack(form, *values)


def snapshot(root: Path, chance: random.Random) -> str:
    """A producer snapshot with odd entries and a right checksum, or garbage."""
    path = chance.choice(_partitions(root)) / f"{chance.choice([0, 5, 7, 20, 40, 60, 2**63 - 1]):020d}.snapshot"
    if not _plain(path):
        return ""
    count = chance.choice([0, 1, 2, 3])
    entries = b"".join(
        struct.pack(
            ">qhiqiqiq",
            chance.choice(INT64),
            chance.choice([-1, 0, 1, 32767, -32768]),
            *(chance.choice(INT32), chance.choice(INT64), chance.choice(INT32)),
            *(chance.choice(INT64), chance.choice(INT32), chance.choice(INT64)),
        )
        for _ in range(count)
    )
    body = struct.pack(">i", count if chance.random() < 0.9 else chance.choice(INT32)) + entries
    crc = crc32c(body) if chance.random() < 0.9 else 0
    path.write_bytes(struct.pack(">hI", chance.choice([1, 1, 1, 0, 2, -1]), crc) + body)
    return f"{path.parent.name}/{path.name}: {count} entries"


def metadata_value(root: Path, chance: random.Random) -> str:
    """A configuration in the cluster's metadata that cannot be."""
    path = root / "__cluster_metadata-0" / f"{0:020d}.log"
    if not path.is_file():
        return ""
    data = path.read_bytes()
    policy = chance.choice([b"delete\0", b"COMPACT", b"\xff" * 7, b",,,,,,,"])
    old, new = chance.choice([(b"compact", policy), (b"\x025", b"\x02x")])
    changed = bytearray(data.replace(old, new[: len(old)].ljust(len(old))))
    for at, size in _batches(bytes(changed)):
        _sealed(changed, at, size)
    path.write_bytes(changed)
    return f"metadata: {old!r} becomes {new!r}"


MUTATIONS: tuple[Mutation, ...] = (
    *(remove, empty, cut, lengthen, rename, renumber, duplicate, swap, index_of_another, link, pipe),
    *(directory_for_file, nested, rename_partition, copy_partition, checkpoint_number, epoch_number, text_garbage),
    *(not_closed, flip),
    *(field, field, field, records, records, shuffle, shuffle, index_entry, index_entry, snapshot, metadata_value),
)


def mutate(root: Path, chance: random.Random) -> list[str]:
    """Applies one to eight mutations; what they did."""
    done = (chance.choice(MUTATIONS)(root, chance) for _ in range(chance.choice([1, 1, 2, 3, 4, 8])))
    return [what for what in done if what]


def mutated_directories(place: Path) -> list[Path]:
    """A varied log directory below `place`, and copies of it with mutations, each of a seed; SEGLOG_EFFORT multiplies
    them."""
    base_directory(place / "base")
    first, made = first_seed(1), [place / str(number) for number in range(tries(10))]
    for seed, directory in enumerate(made, first):
        copy_tree(place / "base", directory)
        mutate(directory, random.Random(seed))
    return [place / "base", *made]
