"""Small ELF files that need what a test says."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

_HEADER, _PROGRAM = 64, 56


def shared_library(versions: Mapping[str, Sequence[str]], base: int = 0x1000) -> bytes:
    """A shared library for x86-64 that needs these versions of these libraries, to be loaded at `base`."""
    names = [name for library, wanted in versions.items() for name in (library, *wanted)]
    places, strings = {}, b"\0"
    for name in names:
        places[name] = len(strings)
        strings += name.encode() + b"\0"
    start = _HEADER + 2 * _PROGRAM
    needs = b""
    for number, (library, wanted) in enumerate(versions.items()):
        following = 16 + 16 * len(wanted) if number < len(versions) - 1 else 0
        needs += struct.pack("<HHIII", 1, len(wanted), places[library], 16, following)
        for index, name in enumerate(wanted):
            needs += struct.pack("<IHHII", 0, 0, index + 2, places[name], 16 if index < len(wanted) - 1 else 0)
    needs_at = start + len(strings)
    dynamic_at = needs_at + len(needs)
    entries = [(1, places[library]) for library in versions]
    entries += [(5, base + start), (0x6FFFFFFE, base + needs_at), (0x6FFFFFFF, len(versions)), (0, 0)]
    dynamic = b"".join(struct.pack("<qQ", *entry) for entry in entries)
    size = dynamic_at + len(dynamic)
    header = struct.pack("<4sBBB9x", b"\x7fELF", 2, 1, 1)
    header += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, _HEADER, 0, 0, _HEADER, _PROGRAM, 2, 64, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, base, base, size, size, 0x1000)
    place = base + dynamic_at
    found = struct.pack("<IIQQQQQQ", 2, 4, dynamic_at, place, place, len(dynamic), len(dynamic), 8)
    return header + load + found + strings + needs + dynamic
