"""States that a power cut leaves at the end of the metadata log, files that the broker's user may only read, closed
indexes that a load opens where it replays producers, and names that two log directories have."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from seglog.layout import RECORDS_COUNT_OFFSET
from seglog.scan.segment_scan import SegmentScan
from seglog.storage.local import LocalFileSystem
from seglog_rescue.rebuild.metadata_snapshot import encode_metadata_record
from tests.support.broken.wounded_starts import (
    LOGS,
    METADATA,
    PAID,
    PARTITION,
    Change,
    State,
    appended,
    made_a_directory,
    owned_as,
    wounded,
)

# --- what a power cut leaves of the metadata log's end


def of_power_cuts() -> Iterator[State]:
    """The last batch is as large as several sectors; some of them were never written."""
    large = [encode_metadata_record("FEATURE_LEVEL_RECORD", {"name": "group.version", "featureLevel": 1})] * 200

    def unwritten(begin: int, end: int | None) -> Change:
        def change(log: Path) -> None:
            data = bytearray(log.read_bytes())
            batch = next(reversed(_batch_positions(log)))
            place = slice(batch + begin, len(data) if end is None else batch + end)
            data[place] = bytes(len(data[place]))
            log.write_bytes(data)

        return change

    for wound, begin, end in (
        ("a last batch whose rest is zeros", 61, None),
        ("a last batch without its header", 0, 512),
        ("a last batch with a hole", 1024, 1536),
        ("a last batch with a wrong byte", 100, 101),
    ):
        yield wounded("clean", LOGS, METADATA, wound, appended(*large, damage=unwritten(begin, end)))


def _batch_positions(log: Path) -> list[int]:
    return [int(at) for chunk in SegmentScan(LocalFileSystem(), log) for at in chunk.batches["position"]]


# --- what the broker's user may read, and not write


def of_read_only() -> Iterator[State]:
    """A copy made with the mode of a backup: what a start opens for writing, and what only a fetch does."""
    names = (
        *(f"{PARTITION}/{base:020d}.index" for base in (350, 500, 750)),
        *(f"{PARTITION}/{base:020d}.timeindex" for base in (0, 500, 750)),
        f"{PARTITION}/{500:020d}.log",
        f"{PAID}/{265:020d}.txnindex",
        f"{PARTITION}/{790:020d}.snapshot",
    )
    for base in ("clean", "unclean"):
        for name in names:
            yield wounded(base, LOGS, name, "mode 444", lambda path: path.chmod(0o444), needs_root=True)


# --- what a load replays producers from


def of_replayed_indexes() -> Iterator[State]:
    """A closed segment's offset index is opened only if snapshots after it are missing."""
    for base, where, without in (
        ("clean", 0, [f"{350:020d}.snapshot"]),
        ("clean", 500, [f"{0:020d}.index"]),
        ("clean", 500, [f"{750:020d}.snapshot", f"{790:020d}.snapshot"]),
        ("unclean", 0, []),
        ("unclean", 0, [f"{350:020d}.snapshot"]),
    ):
        wound = " and ".join(("a directory", *(f"{name} missing" for name in without)))
        yield wounded(base, LOGS, f"{PARTITION}/{where:020d}.index", wound, _a_directory_without(without))


def _a_directory_without(names: Sequence[str]) -> Change:
    def change(path: Path) -> None:
        made_a_directory(path)
        for name in names:
            path.with_name(name).unlink()

    return change


# --- names that both log directories have


def of_twins() -> Iterator[State]:
    """A partition in both log directories of a broker, and what a file system's own check leaves in its root."""
    yield wounded("two", "other", PARTITION, "there too", _copied_here)
    for directory in ("other", LOGS):
        yield wounded("two", directory, "lost+found", "there", made_a_directory)


def _copied_here(path: Path) -> None:
    shutil.copytree(path.parent.parent / LOGS / path.name, path)
    for each in (path, *path.iterdir()):
        owned_as(each, path.parent)


# --- batches without records


def of_empty_batches() -> Iterator[State]:
    """Snapshots whose checksums a start does not compare, and whose batches have none of their records."""
    for base, name in (("unclean", "bootstrap.checkpoint"), ("dynamic", f"{METADATA}/{0:020d}-{0:010d}.checkpoint")):
        for number, what in ((0, "the header"), (1, "the first records"), (-1, "the footer")):
            yield wounded(base, LOGS, name, f"{what} without a record", _without_records(number))


def _without_records(number: int) -> Change:
    def change(path: Path) -> None:
        data = bytearray(path.read_bytes())
        begin = _batch_positions(path)[number] + RECORDS_COUNT_OFFSET
        data[begin : begin + 4] = bytes(4)
        path.write_bytes(data)

    return change
