"""libzstd by address: each thread has contexts of its own, which end with it."""

from __future__ import annotations

import threading
import weakref

from seglog.format import zstd_library
from seglog.kernels import runs


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
