"""States with two wounds, drawn by a seed: two of `wounded_states`, or bytes of any file that are cut, wrong or zero.

A pair is known by its name, so that the table of fates can hold those that a broker was given.
"""

from __future__ import annotations

import os
import random
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.support.broken.wounded_herds import HERDED, partition_of
from tests.support.broken.wounded_starts import (
    BASES,
    DYNAMIC,
    PAID,
    PARTITION,
    Change,
    State,
    filled,
    made,
    sound,
    wounded,
)

AND = " + "
_LEAST_LEFT = 8  # bytes of a file that is cut: those without any are among the other states
_WOUNDS = {
    re.compile(r"cut at (\d+)"): lambda found: lambda path: os.truncate(path, int(found[1])),
    re.compile(r"bit (\d) of byte (\d+) flipped"): lambda found: _flip(int(found[2]), 1 << int(found[1])),
    re.compile(r"zeros from (\d+) to (\d+)"): lambda found: _zero(int(found[1]), int(found[2])),
    re.compile(r"(\d+) bytes twice"): lambda found: _twice(int(found[1])),
}


def _flip(position: int, mask: int) -> Change:
    def change(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[position] ^= mask
        filled(bytes(data))(path)

    return change


def _zero(start: int, end: int) -> Change:
    def change(path: Path) -> None:
        data = path.read_bytes()
        filled(data[:start] + bytes(end - start) + data[end:])(path)

    return change


def _twice(size: int) -> Change:
    """The last bytes of the file follow it once more, as when a write was repeated."""

    def change(path: Path) -> None:
        data = path.read_bytes()
        filled(data + data[-size:])(path)

    return change


def pair(one: State, other: State) -> State:
    """The state with both wounds, the first one first."""
    return State(
        one.base,
        one.file,
        f"{one.wound}{AND}{other.file} | {other.wound}",
        lambda root: _both(root, one, other),
        {**one.settings, **other.settings},
        one.needs_root or other.needs_root,
        other.free if one.free is None else one.free,
    )


def _both(root: Path, one: State, other: State) -> None:
    one.change(root)
    other.change(root)


def state_named(name: str, known: Mapping[str, State]) -> State:
    """The pair of that name, of states in `known` by their names or of wounds of bytes."""
    base = name.partition(" | ")[0]
    first, _, second = name.partition(AND)
    one, other = (known.get(each) or _of_bytes(each) for each in (first, f"{base} | {second}"))
    return pair(one, other)


def _of_bytes(name: str) -> State:
    base, shown, wound = name.split(" | ")
    settings = DYNAMIC if base == "dynamic" else None
    directory, _, where = ("logs/" + shown if not shown.startswith("other/") else shown).partition("/")
    for pattern, change_of in _WOUNDS.items():
        if found := pattern.fullmatch(wound):
            return wounded(base, directory, where, wound, change_of(found), settings)
    raise ValueError(f"{name}: nothing makes such a wound")


def pairs(seed: int, states: list[State], *, in_a_partition: bool = False) -> Iterator[State]:
    """Pairs without end, the same for the same seed. Both wounds can be made, `in_a_partition` both in the same one."""
    chance = random.Random(seed)
    known = {state.name: state for state in states}
    while True:
        base = chance.choice(HERDED if in_a_partition else list(BASES))
        within = f"{chance.choice((PARTITION, PAID))}/" if in_a_partition else ""
        of_base = [state for state in states if state.base == base and state.wound != "sound"]
        of_base = [state for state in of_base if partition_of(state) or not within]
        of_base = [state for state in of_base if state.file.startswith(within)]
        one, other = (chance.choice(of_base) if chance.random() < 0.6 else None for _ in range(2))
        with tempfile.TemporaryDirectory() as work:
            root = Path(work)
            made(sound(base), root)
            files = sorted(path for path in root.rglob("*") if path.is_file() and path.stat().st_size > _LEAST_LEFT)
            files = [path for path in files if f"/{within}" in str(path)]
            one, other = (each or _of_bytes(_drawn(chance, base, root, files)) for each in (one, other))
        both = pair(one, other)
        if one.file != other.file and AND not in one.wound and can_be_made(both):
            assert state_named(both.name, known).name == both.name
            yield both


def can_be_made(state: State) -> bool:
    """Whether the first wound leaves what the second one needs."""
    with tempfile.TemporaryDirectory() as work:
        try:
            made(state, Path(work))
        except (OSError, AssertionError, IndexError, ValueError):
            return False
    return True


def _drawn(chance: random.Random, base: str, root: Path, files: list[Path]) -> str:
    """The name of a state of one wound in a file."""
    path = chance.choice(files)
    size = path.stat().st_size
    shown = str(path.relative_to(root)).removeprefix("logs/")
    start = chance.randrange(size)
    wound = chance.choice(
        (
            f"cut at {chance.randrange(1, size)}",
            f"bit {chance.randrange(8)} of byte {start} flipped",
            f"zeros from {start} to {min(size, start + chance.choice((8, 64, 4096)))}",
            f"{chance.randrange(1, size)} bytes twice",
        )
    )
    return f"{base} | {shown} | {wound}"
