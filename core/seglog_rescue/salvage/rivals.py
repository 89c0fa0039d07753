"""Finds the pairs of chains that are doubtful because another chain might be in the place of one of the two.

The offsets of two logs of one kind, such as two partitions of a topic, overlap. That the end of a chain of one is the
start of a chain of the other is rare, unless chains between them are lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

import numpy as np

from seglog_rescue.salvage.chains import Chain, Pair

_Rival = Literal["before", "after", "both"]


def split_by_rivals(chains: Sequence[Chain], pairs: Sequence[Pair]) -> tuple[list[Pair], list[Pair]]:
    """Splits off the pairs that are doubtful because another chain of their kind has such offsets.

    Sequences that continue outweigh that. If the offsets of a pair follow exactly, and those of no other pair there, a
    chain is a rival only if something between it and the pair may be lost: it ends before the place, and no chain
    follows it, or it begins after the place, and no chain precedes it. So pairs that have become doubtful may make
    others doubtful.
    """
    by_kind: dict[tuple[object, ...], list[int]] = {}
    for number, chain in enumerate(chains):
        by_kind.setdefault(chain.traits.kind, []).append(number)
    kinds = {
        kind: tuple(np.array(column) for column in zip(*((n, *_extent(chains[n])) for n in numbers), strict=True))
        for kind, numbers in by_kind.items()
    }
    meeting = _meeting(chains, pairs)
    rivals: dict[Pair, list[tuple[int, _Rival]]] = {}
    for pair in pairs:
        numbers, firsts, lasts = kinds[chains[pair.before].traits.kind]
        near = (firsts <= chains[pair.after].last_offset) & (lasts >= chains[pair.before].first_offset)
        others = [] if pair.sequenced else numbers[near].tolist()
        found = [(number, _rival(chains, pair, number, pair in meeting)) for number in others]
        rivals[pair] = [(number, rival) for number, rival in found if rival is not None]
    while True:
        followed, preceded = {pair.before for pair in meeting}, {pair.after for pair in meeting}
        ruled_out = {"before": followed, "after": preceded, "both": frozenset[int]()}
        rivalled = {
            pair for pair, found in rivals.items() if any(number not in ruled_out[rival] for number, rival in found)
        }
        if meeting.isdisjoint(rivalled):
            return [pair for pair in pairs if pair not in rivalled], [pair for pair in pairs if pair in rivalled]
        meeting -= rivalled


def _extent(chain: Chain) -> tuple[int, int]:
    return chain.first_offset, chain.last_offset


def _meeting(chains: Sequence[Chain], pairs: Sequence[Pair]) -> set[Pair]:
    """Returns the pairs whose offsets follow exactly where no other pair's do."""
    exact = [pair for pair in pairs if chains[pair.before].next_offset == chains[pair.after].first_offset]
    befores, afters = Counter(pair.before for pair in exact), Counter(pair.after for pair in exact)
    return {pair for pair in exact if befores[pair.before] == afters[pair.after] == 1}


def _rival(chains: Sequence[Chain], pair: Pair, number: int, meets: bool) -> _Rival | None:
    """Returns whether a chain that overlaps with a pair might be in the place of one of the two: of the one before,
    unless another chain follows it; of the one after, unless another precedes it. `meets` as in `_meeting`.
    """
    before, after, other = chains[pair.before], chains[pair.after], chains[number]
    if number in (pair.before, pair.after):
        return None
    if before.traits.producers and not before.traits.producers & other.traits.producers:
        return None
    if not meets:
        return "both"
    # Times tell chains apart only where they ascend from one to the next.
    times = [chain.traits.times for chain in (before, after, other)]
    in_order = min(least for least, _ in times) >= 0 and times[0][1] <= times[1][0]
    if other.next_offset <= after.first_offset:
        is_later = in_order and times[2][1] > times[1][0]
        return None if is_later or other.traits.epochs[1] > after.traits.epochs[0] else "before"
    if other.first_offset >= before.next_offset:
        is_earlier = in_order and times[2][0] < times[0][1]
        return None if is_earlier or other.traits.epochs[0] < before.traits.epochs[1] else "after"
    return None
