"""Works out which log each good batch on a disk belongs to.

A batch does not name its topic. The evidence that tells logs apart, from the surest to the weakest:

1. Batches that overlap in offsets and are not the same bytes belong to different logs (or to one log before and after
   compaction, which counts as two logs here); a log's leader epochs never decrease.
2. The halves of one batch join their fragments (`fragments`), and so do copies of one batch.
3. Offsets that follow exactly, if no other fragment could follow; a producer's sequence that continues.
4. Magic, codec, timestamp type, producers, time, and the look of keys and values (`likeness`).

Steps: certain evidence (2) joins fragments into chains. Then pairs of chains whose offsets follow exactly are joined,
unless another pair would be nearly as good, or a chain between whose end and the place something may be lost. Then each
chain goes to the log with a hole that it fits, unless another log or another chain would fit as well. If another log of
the very same kind has those offsets, too (often a partition of the same topic), only sequences and halves of batches
count. A chain that could as well go elsewhere stays a log of its own and is *undecided*: two logs in one are worse than
one log in two, which `--into-one` joins.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from seglog import layout
from seglog.storage.filesystem import FileSystem
from seglog_rescue.salvage.chains import Chain, Pair
from seglog_rescue.salvage.fragments import Join, block_bytes_of, fragments_of, joins_of, with_cuts, with_sure_offsets
from seglog_rescue.salvage.likeness import Traits, likeness, traits_of
from seglog_rescue.salvage.rivals import split_by_rivals

_EXACT = 4.0  # worth of offsets that follow exactly
_ONLY = 3.0  # added if no other pair's offsets do
_NEAR = 0.5  # subtracted if they leave a gap no larger than others in the log
_MAX_NEAR = 64  # chains to consider after another one
_SEQUENCE = 8.0  # worth of a producer's sequence that continues
_MIN_WORTH = 3.0  # a pair must be worth this to be joined
_MARGIN = 1.0  # the best must exceed the next by this
_IDENTITY = ("first_offset", "last_offset", "size", "crc")


@dataclass(frozen=True, slots=True)
class CarvedLog:
    """Batches of one log: `rows` (FOUND) by offset, including copies. `name` is a partition's, or empty.

    `undecided` is set if it might be a part of another log.
    """

    name: str
    rows: np.ndarray
    undecided: bool = False


def attribute(fs: FileSystem, paths: Sequence[Path], found: np.ndarray, names: Mapping[int, str]) -> list[CarvedLog]:
    """Sorts `found` (FOUND rows of the sources `paths`) into logs; returns these, the largest first.

    `names` maps a source that is a partition's file to that partition: its batches certainly belong there.
    """
    chains = []
    for name in sorted(set(names.values())):
        sources = [source for source, own in names.items() if own == name]
        rows = _by_offset(found[np.isin(found["source"], sources)])
        if len(rows):
            chains.append(Chain(rows, traits_of(fs, paths, rows), name))
    carved = found[~np.isin(found["source"], list(names))]
    carved = with_sure_offsets(carved[np.lexsort((carved["position"], carved["source"]))])
    chains += _chains_of(fs, paths, carved)
    logs = _assigned(_join_exact(_join_copies(chains)))
    return sorted(logs, key=lambda log: -int(log.rows["size"].sum(dtype=np.int64)))


def _by_offset(rows: np.ndarray) -> np.ndarray:
    return rows[np.lexsort((rows["last_offset"], rows["first_offset"]))]


def _merged(chains: Sequence[Chain], *, undecided: bool = False) -> Chain:
    """Merges chains, ordered by offset, into one."""
    traits = chains[0].traits
    for chain in chains[1:]:
        traits = traits.joined(chain.traits)
    name = next((chain.name for chain in chains if chain.name), "")
    rows = chains[0].rows if len(chains) == 1 else _by_offset(np.concatenate([chain.rows for chain in chains]))
    undecided = undecided or any(chain.undecided for chain in chains)
    return Chain(rows, traits, name, undecided, chains[0].head, chains[-1].tail, chains[-1].block_bytes)


# --- certain evidence


def _chains_of(fs: FileSystem, paths: Sequence[Path], carved: np.ndarray) -> list[Chain]:
    """Returns chains of fragments that batches in two halves join."""
    chains = []
    for source in np.unique(carved["source"]).tolist():
        path = paths[source]
        fragments = with_cuts(fs, path, fragments_of(carved[carved["source"] == source]))
        following: dict[int, Join] = {}
        preceded: set[int] = set()
        joins = list(joins_of(fs, path, fragments))
        block_bytes = block_bytes_of(joins)
        for join in joins:
            if join.after not in preceded:
                following[join.before] = join
                preceded.add(join.after)
        for number in sorted(set(range(len(fragments))) - preceded):
            head, parts = fragments[number], [fragments[number].rows]
            while number in following:
                join = following[number]
                number = join.after
                parts += [join.row, fragments[number].rows]
            rows = np.concatenate(parts)
            traits, tail = traits_of(fs, paths, rows), fragments[number]
            chains.append(Chain(rows, traits, head=head, tail=tail, block_bytes=block_bytes))
    return chains


def _join_copies(chains: list[Chain]) -> list[Chain]:
    """Joins chains that hold copies of one batch and contradict each other nowhere.

    Copies of a marker do not count: markers of one transaction may have the same bytes in many partitions.
    """
    if not chains:
        return []
    rows = np.concatenate([chain.rows for chain in chains])
    owner = np.repeat(np.arange(len(chains)), [len(chain.rows) for chain in chains])
    data = np.flatnonzero(rows["attributes"] & layout.CONTROL_MASK == 0)
    order = data[np.lexsort([rows[name][data] for name in _IDENTITY])]
    same = np.ones(max(len(order) - 1, 0), dtype=bool)
    for name in _IDENTITY:
        same &= rows[name][order[1:]] == rows[name][order[:-1]]
    pairs = {(int(owner[order[i]]), int(owner[order[i + 1]])) for i in np.flatnonzero(same).tolist()}
    groups = _Groups([chain.name for chain in chains])
    for one, other in sorted(pair for pair in pairs if pair[0] != pair[1]):
        if not _contradict(chains[one].rows, chains[other].rows):
            groups.join(one, other)
    found = ([chains[member] for member in members] for members in groups.members())
    return [_merged(sorted(members, key=lambda chain: chain.first_offset)) for members in found]


def _contradict(one: np.ndarray, other: np.ndarray) -> bool:
    """True if batches of the two overlap without being copies."""
    names = list(_IDENTITY)
    left = one[~np.isin(np.ascontiguousarray(one[names]), np.ascontiguousarray(other[names]))]
    at = np.searchsorted(other["last_offset"], left["first_offset"])
    inside = at < len(other)
    return bool((other["first_offset"][at[inside]] <= left["last_offset"][inside]).any())


class _Groups:
    """Groups of numbers (union-find); a group has at most one name."""

    def __init__(self, names: list[str]) -> None:
        self._parent, self._names = list(range(len(names))), names

    def _root(self, number: int) -> int:
        while self._parent[number] != number:
            self._parent[number] = self._parent[self._parent[number]]
            number = self._parent[number]
        return number

    def join(self, one: int, other: int) -> None:
        first, second = sorted((self._root(one), self._root(other)))
        if first == second or (self._names[first] and self._names[second]):
            return
        self._parent[second] = first
        self._names[first] = self._names[first] or self._names[second]

    def members(self) -> list[list[int]]:
        found: dict[int, list[int]] = {}
        for number in range(len(self._parent)):
            found.setdefault(self._root(number), []).append(number)
        return list(found.values())


# --- offsets that follow exactly


def _join_exact(chains: list[Chain]) -> list[Chain]:
    """Joins chains whose offsets follow exactly, unless another pair competes."""
    starts: dict[int, list[int]] = {}
    ends: dict[int, list[int]] = {}
    for number, chain in enumerate(chains):
        starts.setdefault(chain.first_offset, []).append(number)
        ends.setdefault(chain.next_offset, []).append(number)
    pairs = list(_near_pairs(chains))
    near_befores, near_afters = {pair.before for pair in pairs}, {pair.after for pair in pairs}
    for offset, befores in ends.items():
        afters = starts.get(offset, [])
        only = len(befores) == len(afters) == 1
        only = only and befores[0] not in near_befores and afters[0] not in near_afters
        found = [_exact_pair(chains, b, a, only) for b in befores for a in afters if a != b]
        pairs += [pair for pair in found if pair.worth >= (0.0 if only else _MIN_WORTH)]
    sure, doubtful = split_by_rivals(chains, pairs)
    following, unsettled = _settle(sure)
    preceded = set(following.values())
    doubtful = [pair for pair in doubtful if pair.before not in following and pair.after not in preceded]
    undecided = {number for pair in (*unsettled, *doubtful) for number in (pair.before, pair.after)}
    joined = []
    for number in sorted(set(range(len(chains))) - preceded):
        members = [number]
        while members[-1] in following:
            members.append(following[members[-1]])
        joined.append(_merged([chains[member] for member in members], undecided=not undecided.isdisjoint(members)))
    return joined


def _near_pairs(chains: list[Chain]) -> Iterator[Pair]:
    """Yields pairs of chains with a gap between them no larger than the gaps within the first.

    A compacted log continues like that, so they compete with the pairs that follow exactly.
    """
    order = sorted(range(len(chains)), key=lambda number: chains[number].first_offset)
    starts = [chains[number].first_offset for number in order]
    for number, chain in enumerate(chains):
        at, reach = bisect_left(starts, chain.next_offset + 1), chain.next_offset + chain.largest_gap
        for other in order[at : min(bisect_right(starts, reach), at + _MAX_NEAR)]:
            worth = _worth(chain, chains[other], only=False) - _NEAR
            if other != number and worth >= _MIN_WORTH:
                yield Pair(worth, number, other)


def _settle(pairs: list[Pair]) -> tuple[dict[int, int], list[Pair]]:
    """Returns the clear pairs as before → after, and the unsettled ones. A pair is clear if no other comes near it.

    A settled pair rules out other pairs with its chains, which may settle more.
    """
    following: dict[int, int] = {}
    while True:
        best_before, best_after = _two_best(pairs, "before"), _two_best(pairs, "after")
        settled = [
            pair
            for pair in pairs
            if pair.worth >= max(best_before[pair.before][1], best_after[pair.after][1]) + _MARGIN
            and pair.worth == best_before[pair.before][0] == best_after[pair.after][0]
        ]
        if not settled:
            return following, pairs
        following.update({pair.before: pair.after for pair in settled})
        befores, afters = {pair.before for pair in settled}, {pair.after for pair in settled}
        pairs = [pair for pair in pairs if pair.before not in befores and pair.after not in afters]


def _two_best(pairs: list[Pair], end: str) -> dict[int, tuple[float, float]]:
    """Returns the largest worth and the next one, by chain."""
    found: dict[int, tuple[float, float]] = {}
    for pair in pairs:
        number = getattr(pair, end)
        best, second = found.get(number, (-math.inf, -math.inf))
        found[number] = (pair.worth, best) if pair.worth > best else (best, max(second, pair.worth))
    return found


def _worth(before: Chain, after: Chain, only: bool) -> float:
    """Scores how likely `after`, which begins with the next offset, continues `before`; -inf if it cannot."""
    if (before.name and after.name) or not before.may_continue_in(after):
        return -math.inf
    if int(after.traits.epochs[0]) < before.traits.epochs[1]:
        return -math.inf
    return likeness(before.traits, after.traits) + _EXACT + (_ONLY if only else 0.0)


def _exact_pair(chains: list[Chain], number: int, other: int, only: bool) -> Pair:
    """Returns the pair of two chains. Producers' sequences count if no batch is missing between the two."""
    before, after = chains[number], chains[other]
    worth = _worth(before, after, only)
    wanted, found = before.next_sequences, after.first_sequences
    agreed = [wanted[producer] == found[producer] for producer in wanted.keys() & found.keys()]
    if not agreed or before.last_offset + 1 != after.first_offset:
        return Pair(worth, number, other)
    return Pair(worth + (_SEQUENCE if all(agreed) else -_SEQUENCE), number, other, all(agreed))


# --- offsets that leave gaps


@dataclass(slots=True)
class _Log:
    """A growing log: its chains, and by offset the first and last offsets and epochs (least, most) of its parts."""

    chains: list[Chain]
    traits: Traits
    firsts: list[int] = field(default_factory=list)
    lasts: list[int] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=list)

    @classmethod
    def of(cls, chain: Chain) -> _Log:
        log = cls([], chain.traits)
        if not chain.name:
            log.add(chain)
            return log
        # a named partition may have holes that fragments fill
        ends = np.maximum.accumulate(chain.rows["last_offset"])
        cuts = np.flatnonzero(chain.rows["first_offset"][1:] > ends[:-1] + 1) + 1
        for part in np.split(chain.rows, cuts):
            epochs = int(part["leader_epoch"].min()), int(part["leader_epoch"].max())
            log._insert(int(part["first_offset"][0]), int(part["last_offset"].max()), epochs)
        log.chains.append(chain)
        return log

    def fit(self, chain: Chain) -> float:
        """Scores how well a chain fits into a hole of the log; -inf if it does not."""
        at = bisect_left(self.firsts, chain.first_offset)
        least, most = chain.traits.epochs
        if at and (self.lasts[at - 1] >= chain.first_offset or self.epochs[at - 1][1] > least):
            return -math.inf
        if at < len(self.firsts) and (self.firsts[at] <= chain.last_offset or self.epochs[at][0] < most):
            return -math.inf
        exact = at > 0 and self.lasts[at - 1] + 1 == chain.first_offset
        return likeness(self.traits, chain.traits) + (_EXACT if exact else 0.0)

    def around(self, chain: Chain) -> tuple[int, int]:
        """Returns the first and last offset of the log's parts before and after a chain, or of the chain itself."""
        at = bisect_left(self.firsts, chain.first_offset)
        first = self.firsts[at - 1] if at else chain.first_offset
        return first, self.lasts[at] if at < len(self.lasts) else chain.last_offset

    def add(self, chain: Chain) -> None:
        self._insert(chain.first_offset, chain.last_offset, chain.traits.epochs)
        self.traits = self.traits.joined(chain.traits) if self.chains else chain.traits
        self.chains.append(chain)

    def _insert(self, first: int, last: int, epochs: tuple[int, int]) -> None:
        at = bisect_left(self.firsts, first)
        self.firsts.insert(at, first)
        self.lasts.insert(at, last)
        self.epochs.insert(at, epochs)


def _assigned(chains: list[Chain]) -> list[CarvedLog]:
    """Assigns chains, by offset, to the logs that they fit, or to new ones."""
    logs = [_Log.of(chain) for chain in chains if chain.name]
    waiting = sorted((chain for chain in chains if not chain.name), key=lambda chain: chain.first_offset)
    for number, chain in enumerate(waiting):
        fits = sorted(((log.fit(chain), at) for at, log in enumerate(logs)), reverse=True)
        if not fits or fits[0][0] < _MIN_WORTH:
            logs.append(_Log.of(chain))
            continue
        worth, at = fits[0]
        second = fits[1][0] if len(fits) > 1 else -math.inf
        others = [other for log in logs if log is not logs[at] for other in log.chains] + waiting[number + 1 :]
        if chain.undecided or second > worth - _MARGIN or _has_rival(logs[at], chain, others, worth):
            logs.append(_Log.of(_merged([chain], undecided=True)))
        else:
            logs[at].add(chain)
    whole = (_merged(sorted(log.chains, key=lambda chain: chain.first_offset)) for log in logs)
    return [CarvedLog(chain.name, chain.rows, chain.undecided) for chain in whole]


def _has_rival(log: _Log, chain: Chain, others: list[Chain], worth: float) -> bool:
    """True if another chain could take the place: it overlaps with this one and fits the log, or it is of its kind and
    overlaps with the log's parts around it."""
    first, last = log.around(chain)
    for other in others:
        overlaps = other.first_offset <= chain.last_offset and other.last_offset >= chain.first_offset
        if overlaps and log.fit(other) > worth - _MARGIN:
            return True
        nearby = other.first_offset <= last and other.last_offset >= first
        if nearby and other.traits.kind == chain.traits.kind:
            return True
    return False
