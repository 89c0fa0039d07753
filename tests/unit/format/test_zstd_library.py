"""libzstd by address: each thread has contexts of its own, which end with it; without, batches go one by one."""

from __future__ import annotations

import threading
import weakref
from functools import cache

import numpy as np
import pytest

from seglog.format import zstd_library
from seglog.format.compression import compress
from seglog.format.decoder import decode_records, scan_batches
from seglog.kernels import runs
from tests.support.naive import NaiveRecord, batch_v2


def test_the_contexts_of_a_thread_are_freed_when_it_ends() -> None:
    """A service begins threads with every round; each round would keep a megabyte a thread for good."""
    kept: list[weakref.ref[object]] = []
    slots: list[list[int]] = []

    def ask() -> None:
        slots.append(zstd_library.zstd_slots().tolist())
        kept.append(weakref.ref(zstd_library._of_thread.contexts))

    for _ in range(3):
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
    assert [contexts() for contexts in kept] == [None] * 3
    assert all(all(found) for found in slots)


def test_threads_at_the_same_time_share_no_context() -> None:
    meeting = threading.Barrier(3)
    contexts: list[int] = []

    def ask() -> None:
        contexts.append(int(zstd_library.zstd_slots()[runs.COMPRESS_CONTEXT]))
        meeting.wait()

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(contexts)) == 3


@pytest.mark.parametrize(("name", "value"), [("EXTENSION_SUFFIXES", [".none"]), ("_FUNCTIONS", ("ZSTD_none",))])
def test_without_the_library_all_batches_go_through_the_module(
    monkeypatch: pytest.MonkeyPatch, name: str, value: object
) -> None:
    monkeypatch.setattr(zstd_library, name, value)
    # both are kept for the process, and tests after this one need what they have
    monkeypatch.setattr(zstd_library, "_library", cache(zstd_library._library.__wrapped__))
    monkeypatch.setattr(zstd_library, "_of_thread", zstd_library._OfThread())
    assert not zstd_library.zstd_slots().any()
    payloads = [NaiveRecord(0, 0, b"k", b"v" * size).encode() for size in (3, 900, 20_000)]
    data = b"".join(
        batch_v2(i, [NaiveRecord(0, 0, b"k", b"v")], attributes=4, payload=compress(4, payload))
        for i, payload in enumerate(payloads)
    )
    array = np.frombuffer(data, dtype=np.uint8)
    batches = scan_batches(array, 0, len(array), 0).batches
    rows = [row for part in decode_records(array, batches, 0) for row in part.rows]
    assert [int(row["value_size"]) for row in rows] == [3, 900, 20_000]
