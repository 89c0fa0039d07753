"""Logs to clean, and cleaning them, in few words."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from seglog.cleaner import chunks
from seglog.cleaner.cleaner import clean_log
from seglog.cleaner.output import CleaningResult
from seglog.cleaner.round import CleanerOptions
from seglog.log.append import ProducerIdentity
from seglog.log.log import Log
from seglog.model import Compression, Record
from tests.support.manual_clock import ManualClock
from tests.support.open_logs import START_MS, opened_log


def compacted_log(directory: Path, **options: Any) -> Log:
    """A writable compacted log in `directory`/t-0; `options` as `opened_log`."""
    options = {"message_timestamp_after_max_ms": 1 << 62, **options}
    return opened_log(directory / "t-0", cleanup_policy=frozenset({"compact"}), **options)


def keyed(*pairs: tuple[str, str | None], timestamp: int = START_MS) -> list[Record]:
    """Records of (key, value), one millisecond apart."""
    return [
        Record(None if value is None else value.encode(), key.encode(), timestamp + i)
        for i, (key, value) in enumerate(pairs)
    ]


def many(count: int, keys: int, seed: int = 1) -> list[Record]:
    """Records of `keys` keys by chance, one millisecond apart."""
    chance = random.Random(seed)
    return [Record(b"value-%d" % i, b"key-%d" % chance.randrange(keys), START_MS + i) for i in range(count)]


def append(log: Log, records: Sequence[Record], batch_records: int = 3, codec: Compression | None = None) -> None:
    """Appends in batches of `batch_records`."""
    if records:
        log.append(list(records), batch_records=batch_records, codec=codec)


def transaction(log: Log, producer_id: int, records: list[Record], commit: bool, timestamp: int) -> None:
    """Appends a transaction of one batch with its marker."""
    identity = ProducerIdentity(producer_id, transactional=True)
    log.append(records, producer=identity)
    log.append_end_txn_marker(identity, commit, timestamp=timestamp)


def contents(log: Log) -> list[tuple[int | None, bytes | None, bytes | None]]:
    """(offset, key, value) of every record."""
    return [(record.offset, record.key, record.value) for record in log.records()]


def digest(directory: Path) -> str:
    """Of everything in a partition directory, times included."""
    text = repr([(p.name, p.stat().st_mtime_ns, p.read_bytes()) for p in sorted(directory.iterdir())])
    return hashlib.sha256(text.encode()).hexdigest()


def clean(log: Log, *, at: int = START_MS, checkpoint: int | None = None, **options: Any) -> CleaningResult:
    """One round at the time `at`."""
    return clean_log(log, CleanerOptions(**options), ManualClock(at), checkpoint)


def hold_no_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on the cleaner works on every batch as on one that is too large to be held."""
    for limit in ("WHOLE_BATCH_BYTES", "CHUNK_BYTES", "PACKED_CHUNK_BYTES", "_ARENA_BYTES"):
        monkeypatch.setattr(chunks, limit, 0)
    monkeypatch.setattr("seglog.format.windows.WINDOW_BYTES", 200)
    monkeypatch.setattr("seglog.cleaner.key_index._MAP_BESIDE_LARGE", 0)
