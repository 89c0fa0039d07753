"""What is verified in parts elsewhere leads to the findings of one look, and nothing of it is read again."""

from __future__ import annotations

import pickle
import random
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from seglog import layout
from seglog.errors import NotALogError
from seglog.scan.listing import list_log_directory, list_partition, resolve_paths
from seglog.storage.local import LocalFileSystem
from seglog.verification import batches, partition_look
from seglog.verification.batches import Level
from seglog.verification.findings import Finding
from seglog.verification.verify import Verification, VerifyOptions, VerifySummary
from seglog_ask.spark import parts
from seglog_ask.spark.parts import KnownPart, by_log, known_ranges, parts_of, verify_part
from tests.support import log_files as logs
from tests.support.broken.mutated_directories import mutate
from tests.support.broken.varied_directory import base_directory, copy_tree
from tests.support.manual_clock import ManualClock
from tests.support.naive import batch_v2

FS = LocalFileSystem()


def parts_found(
    directory: Path, most_bytes: int, level: Level = Level.SEMANTIC, most_headers: int | None = None
) -> list[KnownPart]:
    """What tasks would find, as it comes back from them."""
    found: list[KnownPart] = []
    for one in list_log_directory(FS, directory).partitions:
        try:
            listing = list_partition(FS, one.path)
            work = list(parts_of(listing, most_bytes)) if listing.format != "0.7" else []
            done = [verify_part(FS, pickle.loads(pickle.dumps(part)), level, most_headers) for part in work]
        except (OSError, NotALogError):
            continue  # the look says why
        found += [each for each in pickle.loads(pickle.dumps(done)) if each is not None]
    return found


def look(
    directory: Path, known: list[KnownPart] | None = None, level: Level = Level.SEMANTIC
) -> tuple[list[Finding], VerifySummary]:
    """What is wrong, without the words: they name what an entry of a disordered index was held against first."""
    options, targets = VerifyOptions(level, jobs=1), resolve_paths(FS, [directory])
    verification = Verification(FS, targets, options, ManualClock(0), known=partial(known_ranges, by_log(known or [])))
    found = [replace(each, message="") for each in verification]
    if verification.summary.complete:
        return found, verification.summary
    return found, VerifySummary(complete=False)


def test_parts_of_any_size_lead_to_the_findings_of_one_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base_directory(tmp_path / "base")
    mutated, kinds, known_of_damaged = 0, set[str](), 0
    for seed in range(20):
        directory, chance = tmp_path / str(seed), random.Random(seed)
        copy_tree(tmp_path / "base", directory)
        if seed:
            mutate(directory, chance)
        expected = look(directory)
        with monkeypatch.context() as patched:
            patched.setattr(partition_look, "BOUNDARY_BYTES", chance.choice((100, 1000, 8 << 20)))
            patched.setattr(batches, "_KEPT_ROWS", chance.choice((1, 3, 100)))
            known = parts_found(directory, chance.choice((64, 300, 2000, 1 << 20)))
        assert look(directory, known) == expected, seed
        mutated += bool(expected[0])
        kinds |= {found.code for found in expected[0]}
        known_of_damaged += any(each.result is None for part in known for each in part.ranges)
    assert mutated > 10 and len(kinds) > 8 and known_of_damaged > 3, (kinds, known_of_damaged)


def test_parts_whose_headers_are_too_many_are_read_again_from_there_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = base_directory(tmp_path / "logs")
    expected, whole = look(directory), parts_found(directory, 2000)
    monkeypatch.setattr(batches, "_KEPT_ROWS", 2)
    brought = set[int]()
    for most in (0, 100, 250, 10_000):
        known = parts_found(directory, 2000, most_headers=most)
        assert [part.log for part in known] == [part.log for part in whole]
        held = [
            sum(len(each.columns) + len(each.data) for one in part.ranges for each in one.entries) for part in known
        ]
        assert max(held) <= most
        assert look(directory, known) == expected, most
        brought.add(sum(len(part.ranges) for part in known))
    assert len(brought) > 2, brought


@pytest.mark.parametrize("level", [Level.HEADER, Level.CRC, Level.SEMANTIC])
def test_what_is_known_is_not_read_again(tmp_path: Path, level: Level, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = base_directory(tmp_path / "logs")
    expected, known = look(directory, level=level), parts_found(directory, 300, level)
    assert max(sum(part.log == each.log for each in known) for part in known) > 2  # a log in several parts

    def read_again(*_: object, **__: object) -> None:
        raise AssertionError("it was read again")

    with monkeypatch.context() as patched:
        patched.setattr(partition_look, "clean_range", read_again)
        patched.setattr(partition_look.PartitionLook, "_detailed", read_again)
        healthy = [part for part in known if all(each.result is not None for each in part.ranges)]
        assert look(directory, healthy, level) == expected


def test_a_log_that_changed_meanwhile_is_read_anew(tmp_path: Path) -> None:
    first = batch_v2(0, logs.records(3))
    path = logs.write_log(tmp_path, [first, batch_v2(3, logs.records(3))])
    known = parts_found(tmp_path, 50)
    assert known
    path.write_bytes(path.read_bytes() + batch_v2(3, logs.records(3)))
    found, summary = look(tmp_path, known)
    assert (found, summary) == look(tmp_path)
    assert "OFFSETS_NOT_ASCENDING" in {each.code for each in found}
    assert verify_part(FS, replace(next(parts_of(list_partition(FS, path.parent), 50)), size=1), Level.CRC) is None


def test_a_part_that_brought_nothing_is_read_by_the_look(tmp_path: Path) -> None:
    directory = base_directory(tmp_path / "logs")
    known = parts_found(directory, 300)
    for number in range(0, len(known), 7):
        assert look(directory, known[:number] + known[number + 1 :]) == look(directory)


def test_headers_travel_as_they_are_but_for_checksums(tmp_path: Path) -> None:
    rows = np.zeros(50, dtype=layout.BATCH)
    chance = np.random.default_rng(7)
    for name in rows.dtype.names or ():
        limits = np.iinfo(rows.dtype[name])
        rows[name] = chance.integers(limits.min, limits.max, len(rows), dtype=rows.dtype[name], endpoint=True)
    entries = batches.WalkedEntries(5, np.arange(7, dtype=np.uint8), rows, np.ones(50, dtype=bool), lambda: None)  # type: ignore[arg-type,return-value]
    back = parts._unpacked(FS, tmp_path, pickle.loads(pickle.dumps(parts._packed(entries))))
    rows["crc"] = 0
    assert (back.batches == rows).all() and back.valid.all()
    assert (back.position, back.data.tobytes(), back.complete) == (5, bytes(range(7)), True)
