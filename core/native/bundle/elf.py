"""ELF files: which libraries and which versions of their symbols a file needs, and how it loses what no loader reads.

Only what the loader itself reads is read: the program headers, the dynamic section, and the version needs that it
points to. Sections may be missing. Layouts are those of 64-bit little-endian files (System V ABI; LSB for versions).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

MAGIC = b"\x7fELF\x02\x01"  # 64-bit, little-endian
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_PROGRAM = struct.Struct("<IIQQQQQQ")
_DYNAMIC = struct.Struct("<qQ")
_NEED = struct.Struct("<HHIII")  # version, count of names, library, first name, next need
_NEED_NAME = struct.Struct("<IHHII")  # hash, flags, version index, name, next name
_LOAD, _DYNAMIC_SEGMENT, _INTERPRETER = 1, 2, 3
_NEEDED, _STRINGS, _VERSIONS, _VERSION_COUNT = 1, 5, 0x6FFFFFFE, 0x6FFFFFFF


class ElfError(ValueError):
    """The file is not an ELF file that this reader understands; the message says where."""


@dataclass
class Needs:
    """What a file needs of the system: libraries, and of each library the versions of symbols."""

    machine: int
    interpreter: str = ""
    libraries: list[str] = field(default_factory=list)
    versions: dict[str, set[str]] = field(default_factory=dict)

    def newest(self, prefix: str) -> tuple[int, ...]:
        """Returns the newest version of a family (`GLIBC`, `GLIBCXX`) that any library must have, () without one."""
        wanted = f"{prefix}_"
        every = [name for names in self.versions.values() for name in names if name.startswith(wanted)]
        numbers = [name.removeprefix(wanted) for name in every if name != f"{wanted}PRIVATE"]
        return max((tuple(map(int, number.split("."))) for number in numbers), default=())


@dataclass(frozen=True)
class _Segment:
    kind: int
    offset: int
    address: int
    size: int


def is_elf(path: Path) -> bool:
    """True for an ELF file of any kind."""
    with path.open("rb") as file:
        return file.read(4) == MAGIC[:4]


def needs(path: Path) -> Needs:
    """Reads what a program or shared library needs. Raises ElfError if it is not a whole 64-bit little-endian file."""
    data = path.read_bytes()
    try:
        return _needs(data)
    except (struct.error, IndexError, ValueError) as error:
        raise ElfError(f"{path}: {error}") from error


def without_sections(data: bytes) -> bytes:
    """Returns the file as far as a loader reads it: symbols, debug information and the table of sections are gone.

    Unlike strip(1) it moves nothing, which libraries that patchelf has changed do not survive. A file whose segments
    reach to its end keeps its length.
    """
    if data[:6] != MAGIC:
        return data
    header = list(_HEADER.unpack_from(data))
    end = max([header[5] + header[9] * header[10], *(each.offset + each.size for each in _segments(data))])
    header[6] = header[12] = header[13] = 0  # the table of sections, their number, the section with their names
    return _HEADER.pack(*header) + data[_HEADER.size : end]


def _needs(data: bytes) -> Needs:
    if data[:6] != MAGIC:
        raise ValueError("this is no 64-bit little-endian ELF file")
    segments = list(_segments(data))
    made = Needs(machine=_HEADER.unpack_from(data)[2])
    for segment in segments:
        if segment.kind == _INTERPRETER:
            made.interpreter = _text(data, segment.offset)
    entries = [entry for each in segments if each.kind == _DYNAMIC_SEGMENT for entry in _dynamic(data, each)]
    table = dict(entries)
    if _STRINGS not in table:
        return made  # a static program
    strings = _offset(segments, table[_STRINGS])
    made.libraries = [_text(data, strings + value) for tag, value in entries if tag == _NEEDED]
    if _VERSIONS in table:
        place, count = _offset(segments, table[_VERSIONS]), table.get(_VERSION_COUNT, 0)
        made.versions = dict(_versions(data, place, count, strings))
    return made


def _segments(data: bytes) -> Iterator[_Segment]:
    header = _HEADER.unpack_from(data)
    start, size, count = header[5], header[9], header[10]
    for at in range(start, start + size * count, size):
        kind, _, offset, address, _, length, _, _ = _PROGRAM.unpack_from(data, at)
        if kind == _LOAD and offset + length > len(data):
            raise ValueError(f"a segment ends at {offset + length}, after the end of the file at {len(data)}")
        yield _Segment(kind, offset, address, length)


def _dynamic(data: bytes, segment: _Segment) -> Iterator[tuple[int, int]]:
    for at in range(segment.offset, segment.offset + segment.size, _DYNAMIC.size):
        tag, value = _DYNAMIC.unpack_from(data, at)
        if tag == 0:
            return
        yield tag, value


def _versions(data: bytes, place: int, count: int, strings: int) -> Iterator[tuple[str, set[str]]]:
    for _ in range(count):
        _, names, library, first, following = _NEED.unpack_from(data, place)
        at, versions = place + first, set()
        for _ in range(names):
            _, _, _, name, step = _NEED_NAME.unpack_from(data, at)
            versions.add(_text(data, strings + name))
            at += step
        yield _text(data, strings + library), versions
        place += following


def _offset(segments: list[_Segment], address: int) -> int:
    for segment in segments:
        if segment.kind == _LOAD and segment.address <= address < segment.address + segment.size:
            return segment.offset + address - segment.address
    raise ValueError(f"no segment holds the address {address:#x}")


def _text(data: bytes, offset: int) -> str:
    return data[offset : data.index(b"\0", offset)].decode("ascii", "backslashreplace")
