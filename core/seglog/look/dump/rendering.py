"""Renders the pieces of a log to blocks, in order, in threads; shared by `dump` and `dump_log`.

A task renders a run of batches. Its thread computes the first blocks; the others are computed as they are read. The
memory of all tasks together is bounded in bytes (`ordered_pool.MemoryBudget`), whatever the batches expand to. Buffers
are recycled: a block is valid until the next step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

import numpy as np

from seglog import layout
from seglog.kernels import render
from seglog.ordered_pool import Account, MemoryBudget, bytes_in_flight
from seglog.scan.log_walk import WalkedEntries
from seglog.verification.findings import Finding

# The size of a rendered block, which only a single longer line exceeds.
BLOCK_BYTES = 1 << 21
SMALL_FILE_BYTES = 1 << 20

_TASK_OUTPUT_BYTES = 8 << 20
_GROUP_BYTES = 128 << 10
Block = memoryview
Rendered = Block | Finding


Write = Callable[[np.ndarray, np.ndarray], int]
Large = Callable[[int, int], Iterator[Block]]


def blocks(
    count: int, write: Write, large: Large, buffer: Callable[[int], np.ndarray], unused: Callable[[np.ndarray], None]
) -> Iterator[Block]:
    """Yields the blocks of `count` batches. `write(out, state)` calls a rendering kernel (`kernels.render`).

    `large(batch, row)` writes a record that the kernel leaves out; `buffer(least)` gives memory, `unused` takes it
    back.
    """
    state = np.zeros(render.STATE_SIZE, dtype=np.int64)
    while state[render.STATE_BATCH] < count:
        out = buffer(int(state[render.STATE_NEEDED]))
        written = write(out, state)
        if written:
            state[render.STATE_NEEDED] = 0
            yield out.data[:written]
            continue
        unused(out)
        if state[render.STATE_LARGE]:
            yield from large(int(state[render.STATE_BATCH]), int(state[render.STATE_ROW]))
            state[render.STATE_LARGE] = 0
            state[render.STATE_ROW] += 1
            state[render.STATE_RECORDS] += 1


class LogRenderer:
    """Renders one log. A subclass renders a run of batches and decides when to stop."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self._buffers: deque[np.ndarray] = deque()

    def rendered(
        self, piece: WalkedEntries, first: int, stop: int, account: Account | None = None
    ) -> Generator[Rendered, None, None]:
        """Yields the lines of batches `first` to `stop` of `piece`; `account` counts the memory that they hold."""
        raise NotImplementedError

    def enough(self) -> bool:
        """True if no more is wanted; `in_sequence` asks after each step."""
        return False

    def in_sequence(self, steps: Iterator[WalkedEntries | Finding]) -> Iterator[Rendered]:
        """Yields the blocks and findings of `steps`, rendered as they are read."""
        for step in steps:
            if isinstance(step, Finding):
                yield step
                continue
            yield from self._recycling(self.rendered(step, 0, len(step.batches)))
            if self.enough():
                return

    def under_threads(self, steps: Iterator[WalkedEntries | Finding]) -> Iterator[Rendered]:
        """Yields the blocks and findings of `steps`, rendered ahead in threads. Each piece must have its own buffer."""
        waiting: deque[Finding | _Task] = deque()
        jobs, budget = self.jobs, MemoryBudget(bytes_in_flight(self.jobs))
        with ThreadPoolExecutor(jobs, "seglog-dump") as pool:
            try:
                for step in steps:
                    if isinstance(step, Finding):
                        waiting.append(step)
                    else:
                        for first, stop in _groups(step):
                            account = budget.account()
                            account.hold(len(step.data) if first == 0 else 0)
                            blocks = self.rendered(step, first, stop, account)
                            waiting.append(_Task(account, pool.submit(_begun, blocks, account)))
                    while len(waiting) > 2 * jobs or (waiting and budget.is_full):
                        yield from self._finished(waiting.popleft())
                while waiting:
                    yield from self._finished(waiting.popleft())
            finally:
                for left in waiting:
                    if not isinstance(left, Finding):
                        left.begun.cancel()
                        left.account.close()  # lets a task that waits for memory go on

    def _finished(self, item: Finding | _Task) -> Iterator[Rendered]:
        if isinstance(item, Finding):
            yield item
            return
        with item.account:
            begun, rest = item.begun.result()
            yield from self._recycling(iter(begun))
            yield from self._recycling(rest)

    def _recycling(self, blocks: Iterator[Rendered]) -> Iterator[Rendered]:
        for block in blocks:
            yield block
            if not isinstance(block, Finding) and isinstance(block.obj, np.ndarray):
                self._buffers.append(block.obj if block.obj.base is None else block.obj.base)

    def lines(self, count: int, write: Write, large: Large) -> Iterator[Block]:
        """Yields the blocks of `count` batches, in buffers that `_recycling` gives back."""
        return blocks(count, write, large, self._buffer, self._buffers.append)

    def _buffer(self, least: int) -> np.ndarray:
        size = max(least, BLOCK_BYTES)
        try:
            found = self._buffers.popleft()
        except IndexError:  # another thread may take the last one, so the deque is not asked before
            return np.empty(size, dtype=np.uint8)
        return found if len(found) >= size else np.empty(size, dtype=np.uint8)


@dataclass(frozen=True, slots=True)
class _Task:
    """A run of batches in the making."""

    account: Account
    begun: Future[tuple[list[Rendered], Iterator[Rendered]]]


def _begun(blocks: Iterator[Rendered], account: Account) -> tuple[list[Rendered], Iterator[Rendered]]:
    """Renders the first blocks, as far as memory allows; returns them and an iterator that renders the others."""
    begun: list[Rendered] = []
    size = 0
    for block in blocks:
        begun.append(block)
        if not isinstance(block, Finding):
            account.hold(BLOCK_BYTES)
            size += len(block)
        if size >= _TASK_OUTPUT_BYTES or not account.may_go_on:
            break
    return begun, blocks


def _groups(piece: WalkedEntries) -> Iterator[tuple[int, int]]:
    """Splits a piece into runs of batches (first, stop), one per task: the whole piece, or about 128 KiB of compressed
    batches."""
    count = len(piece.batches)
    if not (piece.batches["attributes"] & layout.CODEC_MASK).any():
        return iter(((0, count),))
    number = (piece.batches["position"] - piece.position) // _GROUP_BYTES
    cuts = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), count]
    return ((first, stop) for first, stop in zip(cuts, islice(cuts, 1, None), strict=False))
