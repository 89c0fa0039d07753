"""A cleaner that is slow and obvious: which records survive a round, by reading the definition aloud.

Plain Python over `Record` objects; knows nothing of batches, buffers, hashes or files.
"""

from __future__ import annotations

from collections.abc import Sequence

from seglog.model import Record


def version_of(record: Record, strategy: str) -> tuple[int, int]:
    """What is compared, higher wins: (whether there is a version, the version)."""
    if strategy == "offset":
        return 1, 0
    if strategy == "timestamp":
        assert record.timestamp is not None
        return 1, record.timestamp
    name = strategy.removeprefix("header:")
    values = [header.value for header in record.headers if header.key == name]
    if values and values[-1] is not None and len(values[-1]) == 8:
        return 1, int.from_bytes(values[-1], "big", signed=True)
    return 0, 0


def survivors(
    records: Sequence[Record], strategy: str = "offset", first_dirty_offset: int = 0
) -> list[tuple[int, bytes | None, bytes | None]]:
    """(offset, key, value) of the records that stay when all of `records` is cleanable and no tombstone expires."""
    winners: dict[bytes, tuple[tuple[int, int], int]] = {}
    for record in records:
        assert record.offset is not None
        if record.key is None or (strategy == "offset" and record.offset < first_dirty_offset):
            continue
        candidate = (version_of(record, strategy), record.offset)
        if record.key not in winners or candidate >= winners[record.key]:
            winners[record.key] = candidate
    kept = []
    for record in records:
        if record.key is None:
            continue
        best = winners.get(record.key)
        last = strategy != "offset" and record is records[-1]
        if best is None or best[1] == record.offset or last:
            kept.append((record.offset, record.key, record.value))
    return kept
