"""What disks and crashes do to log files, from a seed: for tests of verification and repair."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np

from seglog.format.decoder import scan_batches
from seglog.storage.filesystem import FileSystem

BLOCK_BYTES = 512


def batches_of(data: bytes) -> list[bytes]:
    """The bytes of each batch of a healthy segment."""
    array = np.frombuffer(data, dtype=np.uint8)
    rows = scan_batches(array, 0, len(array), 0).batches
    return [data[int(row["position"]) : int(row["position"] + row["size"])] for row in rows]


def held(directory: Path) -> dict[str, list[bytes]]:
    """The batches that each log of a partition holds."""
    return {path.name: batches_of(path.read_bytes()) for path in sorted(directory.glob("*.log"))}


def flip_bits(data: bytearray, chance: random.Random) -> None:
    """Bit rot: one to four bits."""
    for _ in range(chance.randint(1, 4)):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def flip_header_bit(data: bytearray, chance: random.Random) -> None:
    """A bit of some batch's first 23 bytes: offset, size, epoch, magic, checksum."""
    batches = batches_of(bytes(data))
    i = chance.randrange(len(batches))
    data[sum(map(len, batches[:i])) + chance.randrange(23)] ^= 1 << chance.randrange(8)


def lose_block(data: bytearray, chance: random.Random) -> None:
    """Bytes that never reached the file: what follows moves up."""
    start = chance.randrange(0, len(data), BLOCK_BYTES)
    del data[start : start + BLOCK_BYTES * chance.randint(1, 3)]


def write_nonsense(data: bytearray, chance: random.Random) -> None:
    """A block of random bytes over what was there."""
    _overwrite(data, chance, chance.randbytes(BLOCK_BYTES * chance.randint(1, 3)))


def insert_nonsense(data: bytearray, chance: random.Random) -> None:
    """Random bytes between others."""
    start = chance.randrange(0, len(data) + 1)
    data[start:start] = chance.randbytes(chance.randint(1, 900))


def zero_pages(data: bytearray, chance: random.Random) -> None:
    """Blocks that were allocated and never written."""
    _overwrite(data, chance, bytes(BLOCK_BYTES * chance.randint(1, 4)))


def duplicate_block(data: bytearray, chance: random.Random) -> None:
    """A block of the file over another one, or once more after itself."""
    start = chance.randrange(0, len(data), BLOCK_BYTES)
    block = bytes(data[start : start + BLOCK_BYTES * chance.randint(1, 4)])
    if chance.random() < 0.5:
        data[start:start] = block
    else:
        _overwrite(data, chance, block)


def swap_blocks(data: bytearray, chance: random.Random) -> None:
    """Two blocks in each other's place."""
    count = len(data) // BLOCK_BYTES
    if count < 2:
        return
    one, two = (i * BLOCK_BYTES for i in chance.sample(range(count), 2))
    first, second = bytes(data[one : one + BLOCK_BYTES]), bytes(data[two : two + BLOCK_BYTES])
    data[one : one + BLOCK_BYTES], data[two : two + BLOCK_BYTES] = second, first


def swap_batches(data: bytearray, chance: random.Random) -> None:
    """Two runs of whole batches in each other's place."""
    batches = batches_of(bytes(data))
    if len(batches) < 4:
        return
    a, b, c, d = sorted(chance.sample(range(len(batches) + 1), 4))
    data[:] = b"".join(batches[:a] + batches[c:d] + batches[b:c] + batches[a:b] + batches[d:])


def duplicate_batches(data: bytearray, chance: random.Random) -> None:
    """A run of batches once more, somewhere."""
    batches = batches_of(bytes(data))
    start, at = chance.randrange(len(batches)), chance.randrange(len(batches) + 1)
    run = batches[start : start + chance.randint(1, 4)]
    data[:] = b"".join(batches[:at] + run + batches[at:])


def cut_short(data: bytearray, chance: random.Random) -> None:
    """A write that was torn, or a file that lost its end."""
    del data[chance.randrange(len(data)) :]


def grow(data: bytearray, chance: random.Random) -> None:
    """Zeros, or anything, after the last batch."""
    size = chance.randint(1, 3000)
    data += bytes(size) if chance.random() < 0.5 else chance.randbytes(size)


def huge_size(data: bytearray, chance: random.Random) -> None:
    """A batch that claims up to two gigabytes."""
    batches = batches_of(bytes(data))
    i = chance.randrange(len(batches))
    at = sum(map(len, batches[:i])) + 8
    data[at : at + 4] = struct.pack(">i", chance.choice([2**31 - 1, 2**31 - 13, 2**30, 0, -1, -(2**31), 49, 100_000]))


def _overwrite(data: bytearray, chance: random.Random, block: bytes) -> None:
    start = chance.randrange(0, len(data), BLOCK_BYTES)
    data[start : start + len(block)] = block[: len(data) - start]


LOG_DAMAGE: tuple[Callable[[bytearray, random.Random], None], ...] = (
    flip_bits,
    flip_header_bit,
    lose_block,
    write_nonsense,
    insert_nonsense,
    zero_pages,
    duplicate_block,
    swap_blocks,
    swap_batches,
    duplicate_batches,
    cut_short,
    grow,
    huge_size,
)


def rewrite(fs: FileSystem, path: Path, data: bytes) -> None:
    """Makes `data` the contents of a file."""
    with fs.open(path, "create") as file:
        file.write_at(0, data)


def damage_log(fs: FileSystem, directory: Path, chance: random.Random) -> str:
    """Damages one segment, one to three times; says how."""
    logs = [name for name in fs.list(directory) if name.endswith(".log")]
    logs = [name for name in logs if fs.read_bytes(directory / name)]
    name = chance.choice(logs)
    told = [name]
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        data = bytearray(fs.read_bytes(directory / name))
        way = chance.choice(LOG_DAMAGE)
        if data and (way is not swap_batches or batches_of(bytes(data))) and batches_of(bytes(data)):
            way(data, chance)
            told.append(way.__name__)
            rewrite(fs, directory / name, bytes(data))
    return " ".join(told)


def damage_derived(fs: FileSystem, directory: Path, chance: random.Random) -> str:
    """Damages one index, snapshot or epoch file: bits, stale or foreign contents, padding, loss."""
    endings = (".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint")
    names = [name for name in fs.list(directory) if name.endswith(endings)]
    name = chance.choice(names)
    data = bytearray(fs.read_bytes(directory / name))
    way = chance.choice(["flip", "stale", "foreign", "pad", "remove", "odd"])
    if way == "flip" and data:
        flip_bits(data, chance)
    elif way == "stale":
        del data[len(data) // 24 * 12 :]
    elif way == "foreign":
        others = [other for other in names if Path(other).suffix == Path(name).suffix]
        data = bytearray(fs.read_bytes(directory / chance.choice(others)))
    elif way == "pad":
        data += bytes(1200)
    elif way == "remove":
        fs.remove(directory / name)
        return f"{name} removed"
    else:
        data += chance.randbytes(chance.randint(1, 11))
    rewrite(fs, directory / name, bytes(data))
    return f"{name} {way}"
