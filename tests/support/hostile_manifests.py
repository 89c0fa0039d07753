"""Changes to the manifest of a backup's snapshot, made with knowledge of its form."""

from __future__ import annotations

import copy
import hashlib
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

Lines = list[Any]  # a manifest's lines without the last

VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 7, 4096, 65_536, 2**31, 2**31 - 1, -(2**31), 2**53, 2**62, 2**63 - 1, 2**63),
    *(2**64 - 1, 2**64, -(2**63), 10**30, 10**400, 0.0, 1.5, -0.0, 1e308, float("inf"), float("nan")),
    *(
        "",
        "0",
        "..",
        ".",
        "/",
        "../x",
        "../../etc/passwd",
        "/etc/passwd",
        "a/b",
        "a\0b",
        "\0",
        "x" * 300,
        "\n",
        "\x1b[2J",
    ),
    *("\ud800", "é", "\u2028", "orders-0", "orders--1", "orders-99999999999", "orders-0.log", "objects", "packs"),
    *("packs/../../x", "objects/orders-0/_/..", "snapshot", "directory", "partition", "end", "deadbeef", "0" * 32),
    *("0" * 64, "A" * 22, "00000000000000000000.log", "00000000000000000000.index", "meta.properties", ".", "~"),
    *([], {}, [[]], [{}], [None], [0, 0, 0, 0], {"name": "x"}, [["packs/" + "0" * 32 + ".pack", 0, 1, "0" * 32]]),
)
RAW = (b"-1", b"null", b"1e400", b'"../x"', b"[]", b"{}", b"9" * 5000, b"true", b'"\\u0000"', b"/", b"]", b"\n", b"\r")
RAW += (b"\0", b"\xff", b"\xef\xbb\xbf", b'"\\ud800"', b"[" * 3000, b'{"a":' * 3000, b" " * 100, b",", b'"', b"\\")


def sealed(lines: list[bytes]) -> bytes:
    """A manifest with a last line that fits."""
    body = b"".join(lines)
    end = {"type": "end", "lines": len(body.splitlines()), "sha256": hashlib.sha256(body).hexdigest()}
    return body + json.dumps(end).encode() + b"\n"


def formatted(lines: Lines) -> list[bytes]:
    return [json.dumps(line).encode() + b"\n" for line in lines]


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yields every container below a value with a key or an index in it."""
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key])


def _extents(lines: Lines) -> list[list[Any]]:
    files = [file for line in lines for file in line.get("files") or []]
    return [extent for file in files for extent in file["extents"]]


def another_value(lines: Lines, _: Lines, chance: random.Random) -> None:
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        container, key = chance.choice(list(_places(lines)))
        container[key] = copy.deepcopy(chance.choice(VALUES))
        lines[:] = [line if isinstance(line, dict) else {"type": line} for line in lines]


def another_number(lines: Lines, _: Lines, chance: random.Random) -> None:
    numbers = [at for at in _places(lines) if isinstance(at[0][at[1]], int) and not isinstance(at[0][at[1]], bool)]
    container, key = chance.choice(numbers)
    container[key] += chance.choice((-1, 1, -4096, 4096, 10**9, 2**62, -container[key], container[key]))


def without_a_value(lines: Lines, _: Lines, chance: random.Random) -> None:
    container, key = chance.choice(list(_places(lines)))
    del container[key]


def exchanged_values(lines: Lines, _: Lines, chance: random.Random) -> None:
    places = list(_places(lines))
    (one, key), (other, name) = chance.choice(places), chance.choice(places)
    first, second = copy.deepcopy(one[key]), copy.deepcopy(other[name])
    one[key], other[name] = second, first
    lines[:] = [line if isinstance(line, dict) else {"type": "directory"} for line in lines]


def twice(lines: Lines, _: Lines, chance: random.Random) -> None:
    lists = [value for value in [lines, *(c[k] for c, k in _places(lines))] if isinstance(value, list) and value]
    chosen = chance.choice(lists)
    count = chance.choice((1, 1, 2, 50))
    chosen[chance.randrange(len(chosen)) :] += [copy.deepcopy(chance.choice(chosen)) for _ in range(count)]


def parts_of_others(lines: Lines, others: Lines, chance: random.Random) -> None:
    """Extents, files or whole lines of another manifest."""
    mine, theirs = _extents(lines), _extents(others)
    match chance.randrange(4):
        case 0:
            chance.choice(mine)[:] = chance.choice(theirs)
        case 1:
            chance.choice(mine)[0] = chance.choice(theirs)[0]
        case 2:
            lines.insert(chance.randrange(1, len(lines) + 1), copy.deepcopy(chance.choice(others)))
        case _:
            filled = [line for line in lines if line.get("files")]
            chance.choice(filled)["files"] += copy.deepcopy(
                chance.choice([o for o in others if o.get("files")])["files"]
            )


def exchanged_extents(lines: Lines, _: Lines, chance: random.Random) -> None:
    one, other = chance.choice(_extents(lines)), chance.choice(_extents(lines))
    if chance.random() < 0.5:
        one[:], other[:] = list(other), list(one)
    else:
        at = chance.randrange(4)
        one[at], other[at] = other[at], one[at]


def overlapping_extents(lines: Lines, _: Lines, chance: random.Random) -> None:
    file = chance.choice([file for line in lines for file in line.get("files") or [] if file["extents"]])
    extent = chance.choice(file["extents"])
    less = chance.randint(0, extent[2])
    file["extents"] += [[extent[0], extent[1] + less, extent[2] - less, extent[3]], list(extent)]


def another_version(lines: Lines, _: Lines, chance: random.Random) -> None:
    lines[0][chance.choice(("version", "format", "type"))] = copy.deepcopy(chance.choice((0, 2, 99, "1", *VALUES)))


def lines_elsewhere(lines: Lines, _: Lines, chance: random.Random) -> None:
    if chance.random() < 0.5:
        chance.shuffle(lines)
    else:
        line = lines.pop(chance.randrange(len(lines)))
        lines.insert(chance.randrange(len(lines) + 1), line)


Change = Callable[[Lines, Lines, random.Random], None]
CHANGES: tuple[Change, ...] = (another_value, another_value, another_number, without_a_value, exchanged_values, twice)
CHANGES += (parts_of_others, exchanged_extents, overlapping_extents, another_version, lines_elsewhere)


def raw_change(data: bytes, chance: random.Random) -> bytes:
    """Other bytes, somewhere."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(changed))
        changed[at : at + chance.choice((0, 1, 4, 12, 200))] = chance.choice(RAW)
    return bytes(changed[: chance.randrange(len(changed))] if chance.random() < 0.1 else changed)
