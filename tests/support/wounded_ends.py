"""States that a power cut leaves at the end of the metadata log, and files that the broker's user may only read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from seglog.format.metadata_snapshot import encode_metadata_record
from seglog.scan.segment_scan import SegmentScan
from seglog.storage.local import LocalFileSystem
from tests.support.wounded_starts import LOGS, METADATA, PAID, PARTITION, Change, State, appended, wounded

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
