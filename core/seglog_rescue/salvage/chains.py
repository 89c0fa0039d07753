"""Chains of fragments that certainly belong to one log, and pairs of chains of which one may follow the other."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from seglog.layout import INT32_MAX
from seglog_rescue.salvage.fragments import MAX_GAP, Fragment
from seglog_rescue.salvage.likeness import Traits


@dataclass(frozen=True)
class Chain:
    """Fragments that belong together: FOUND rows by offset, and the partition's `name` if it is known.

    `head` and `tail` are its first and last fragment, None for a named partition; `block_bytes` is the block size of
    the source's file system, 0 if it does not show.
    """

    rows: np.ndarray
    traits: Traits
    name: str = ""
    undecided: bool = False
    head: Fragment | None = None
    tail: Fragment | None = None
    block_bytes: int = 0

    @property
    def first_offset(self) -> int:
        return int(self.rows["first_offset"][0])

    @property
    def last_offset(self) -> int:
        return int(self.rows["last_offset"].max())

    @property
    def next_offset(self) -> int:
        """The offset after its last batch, including a cut one."""
        return self.last_offset + 1 if self.tail is None else max(self.tail.next_offset, self.last_offset + 1)

    @property
    def largest_gap(self) -> int:
        """The most offsets missing between two of its batches, at most 1000."""
        gaps = self.rows["first_offset"][1:] - self.rows["last_offset"][:-1] - 1
        return int(min(gaps.max(initial=0), MAX_GAP))

    @cached_property
    def first_sequences(self) -> dict[tuple[int, int], int]:
        """The first sequence by (producer id, producer epoch)."""
        rows = _sequenced(self.rows)
        _, at = np.unique(rows["producer_id"], return_index=True)
        found = (rows[at][name].tolist() for name in ("producer_id", "producer_epoch", "base_sequence"))
        return {(producer, epoch): sequence for producer, epoch, sequence in zip(*found, strict=True)}

    @cached_property
    def next_sequences(self) -> dict[tuple[int, int], int]:
        """The sequence after the last by (producer id, producer epoch)."""
        rows = _sequenced(self.rows)[::-1]
        _, at = np.unique(rows["producer_id"], return_index=True)
        span = rows["last_offset"] - rows["first_offset"] + 1
        following = (rows["base_sequence"] + span)[at] & INT32_MAX
        found = (rows[at][name].tolist() for name in ("producer_id", "producer_epoch"))
        return {(producer, epoch): after for producer, epoch, after in zip(*found, following.tolist(), strict=True)}

    def may_continue_in(self, other: Chain) -> bool:
        """True if their places on the disk allow `other` to follow."""
        one_source = self.rows["source"][-1] == other.rows["source"][0]
        if self.tail is None or other.head is None or not one_source:
            return True
        return self.tail.may_continue_at(other.head.position, self.block_bytes)


def _sequenced(rows: np.ndarray) -> np.ndarray:
    return rows[(rows["producer_id"] >= 0) & (rows["base_sequence"] >= 0)]


@dataclass(frozen=True, slots=True)
class Pair:
    """Chain `after` may follow `before`, as likely as `worth` says; `sequenced` if producers' sequences continue."""

    worth: float
    before: int
    after: int
    sequenced: bool = False
