"""States of `wounded_states` in which the data themselves are odd: control records, segments that repeat each other,
transaction indexes; and links whose targets a broker can make.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

from tests.support.broken.wounded_starts import (
    LOGS,
    PAID,
    PARTITION,
    Change,
    State,
    filled,
    half,
    missing,
    sequence,
    wounded,
    zeros,
)
from tests.support.log_files import CONTROL, TRANSACTIONAL
from tests.support.naive import NaiveRecord, batch_v2

ACTIVE_PAID, END_PAID = f"{PAID}/{399:020d}.log", 400
_MARKER = struct.pack(">hi", 0, 0)
KEYS = {f"type {kind}": struct.pack(">hh", 0, kind) for kind in (77, -1, 2, 6)}


def _of_control_records() -> Iterator[State]:
    odd = {**{wound: (key, _MARKER) for wound, key in KEYS.items()}, "a null key": (None, _MARKER)}
    odd |= {"a short key": (b"\0\0", _MARKER), "a short value": (struct.pack(">hh", 0, 1), b"\0")}
    for base in ("clean", "unclean"):
        for wound, (key, value) in odd.items():
            for flags, producer, words in (
                (TRANSACTIONAL, (7, 0, -1), ""),
                (0, (7, 0, -1), ", not transactional"),
                (0, (-1, -1, -1), ", no producer"),
            ):
                batch = batch_v2(
                    END_PAID, [NaiveRecord(0, 0, key, value)], attributes=CONTROL | flags, producer=producer
                )
                yield wounded(base, LOGS, ACTIVE_PAID, f"a control record: {wound}{words}", _ended_with(batch))
        two = [NaiveRecord(i, 0, struct.pack(">hh", 0, 1), _MARKER) for i in range(2)]
        batch = batch_v2(END_PAID, two, attributes=CONTROL | TRANSACTIONAL, producer=(7, 0, -1))
        yield wounded(base, LOGS, ACTIVE_PAID, "two markers in a batch", _ended_with(batch))
    batch = batch_v2(
        END_PAID, [NaiveRecord(0, 0, KEYS["type 77"], _MARKER)], attributes=CONTROL | TRANSACTIONAL, producer=(7, 0, -1)
    )
    for end in (".index", ".timeindex"):
        change = sequence(_ended_with(batch), lambda path, end=end: missing(path.with_suffix(end)))
        yield wounded("clean", LOGS, ACTIVE_PAID, f"a control record: type 77, {end} missing", change)


def _ended_with(batch: bytes) -> Change:
    return lambda path: filled(path.read_bytes() + batch)(path)


def _of_transaction_indexes() -> Iterator[State]:
    """A broker looks at a transaction index only beside an offset index; without one, the segment is recovered."""
    for wound, change in (("garbage", filled(b"\xff" * 50)), ("zeros", zeros), ("half", half)):
        for segment in (0, 265):
            without = sequence(change, lambda path: missing(path.with_suffix(".index")))
            yield wounded("clean", LOGS, f"{PAID}/{segment:020d}.txnindex", f"{wound}, .index missing", without)


def _of_links() -> Iterator[State]:
    """Links to files that are not there, in a directory that is; `wounded_states` has those without the directory."""
    names = [f"{500:020d}.log", f"{500:020d}.index", f"{750:020d}.index", f"{500:020d}.timeindex"]
    names += [f"{750:020d}.timeindex", f"{790:020d}.snapshot", f"{500:020d}.snapshot", f"{750:020d}.snapshot"]
    names += ["leader-epoch-checkpoint", "leader-epoch-checkpoint.tmp", "partition.metadata", f"{500:020d}.index.swap"]
    names += [f"{500:020d}.timeindex.swap", f"{900:020d}.snapshot", f"{500:020d}.txnindex"]
    for base in ("clean", "unclean"):
        for name in names:
            yield wounded(base, LOGS, f"{PARTITION}/{name}", "a link to nothing beside it", link_to("no-file"))
        for name in (
            f"{500:020d}.index",
            f"{750:020d}.timeindex",
            f"{500:020d}.index.swap",
            f"{500:020d}.timeindex.swap",
        ):
            yield wounded(base, LOGS, f"{PARTITION}/{name}", "a link to nothing, nowhere", link_to("/nowhere/file"))
        for segment in (0, 265, 399):
            for target, wound in (("no-file", "beside it"), ("/nowhere/file", "nowhere")):
                name = f"{PAID}/{segment:020d}.txnindex"
                yield wounded(base, LOGS, name, f"a link to nothing, {wound}", link_to(target))
    for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", ".lock", "meta.properties"):
        yield wounded("clean", LOGS, name, "a link to nothing beside it", link_to("no-file"))


def link_to(target: str) -> Change:
    """The file is a link."""

    def change(path: Path) -> None:
        path.unlink(missing_ok=True)
        path.symlink_to(target)
        os.lchown(path, path.parent.stat().st_uid, path.parent.stat().st_gid)

    return change


def _of_merged_segments() -> Iterator[State]:
    """0.log holds what 350.log has, too."""
    first = f"{PARTITION}/{0:020d}.log"
    for wound, change in {"whole": None, "half": half}.items():

        def merged(path: Path, change: Change | None = change) -> None:
            source = path.with_name(f"{350:020d}.log")
            filled(path.read_bytes() + source.read_bytes())(path)
            if change is not None:
                change(source)

        yield wounded("clean", LOGS, first, f"merged, its source {wound}", merged)
        without = sequence(merged, lambda path: missing(path.with_suffix(".index")))
        yield wounded("clean", LOGS, first, f"merged, its source {wound}, .index missing", without)


def of_data() -> Iterator[State]:
    """Yields the states."""
    yield from _of_control_records()
    yield from _of_transaction_indexes()
    yield from _of_links()
    yield from _of_merged_segments()
