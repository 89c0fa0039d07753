"""Which segments are the log: each offset once, as far as the lineage goes, compared with a look at every offset."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from seglog.format.checkpoint import EpochEntry
from seglog_stores.tiers.lineage import Choice, Local, choose
from seglog_stores.tiers.segments import Problem, Remark, TierSegment, own_epochs


def segment(first: int, last: int, lineage: Sequence[EpochEntry] = (), name: str = "") -> TierSegment:
    path = Path(name or f"{first}-{last}")
    return TierSegment(first, last, str(path), own_epochs(lineage, first, last), {}, None, path)


def epochs(*pairs: tuple[int, int]) -> tuple[EpochEntry, ...]:
    return tuple(EpochEntry(*pair) for pair in pairs)


def ranges(choice: Choice) -> list[tuple[int, int]]:
    return [(found.segment.start_offset, found.end_offset) for found in choice.chosen]


def problems(choice: Choice) -> list[tuple[Problem, int | None, int | None]]:
    return [(one.problem, one.first_offset, one.last_offset) for one in choice.remarks]


def test_a_later_upload_counts_from_its_first_offset_on() -> None:
    choice = choose("t-0", [segment(0, 150), segment(100, 250), segment(120, 140)])
    assert ranges(choice) == [(0, 99), (100, 250)]
    assert problems(choice) == [(Problem.OVERLAP, 100, 150), (Problem.DUPLICATE, 120, 140)]


def test_what_a_deposed_leader_uploaded_ends_where_its_epoch_did() -> None:
    followed, deposed = epochs((1, 0), (2, 120)), epochs((1, 0))
    choice = choose("t-0", [segment(0, 150, deposed), segment(120, 200, followed)], None, followed)
    assert ranges(choice) == [(0, 119), (120, 200)]
    assert problems(choice) == [(Problem.OUTSIDE_LINEAGE, 120, 150)]
    choice = choose("t-0", [segment(130, 150, deposed), segment(120, 200, followed)], None, followed)
    assert (ranges(choice), problems(choice)) == ([(120, 200)], [(Problem.OUTSIDE_LINEAGE, 130, 150)])


def test_the_segment_in_which_the_log_begins_now_counts_and_those_before_it_do_not() -> None:
    before, now = epochs((1, 0), (3, 50)), epochs((3, 70))
    choice = choose("t-0", [segment(0, 39, before), segment(40, 99, before), segment(100, 120, before)], None, now)
    assert ranges(choice) == [(40, 99), (100, 120)]
    assert problems(choice) == [(Problem.OUTSIDE_LINEAGE, 0, 39)]


def test_the_local_log_wins_and_one_that_is_older_than_the_tier_is_reported() -> None:
    segments = [segment(0, 99), segment(100, 199), segment(200, 299)]
    assert ranges(choose("t-0", segments, Local(150, 300))) == [(0, 99), (100, 149)]
    choice = choose("t-0", segments[:2], Local(250, 300))
    assert problems(choice) == [(Problem.GAP, 200, 249)]
    choice = choose("t-0", segments, Local(100, 150))
    assert (ranges(choice), problems(choice)) == ([(0, 99)], [(Problem.LOCAL_BEHIND, 200, 299)])


def test_offsets_that_nobody_has_are_a_gap() -> None:
    choice = choose("t-0", [segment(0, 99), segment(150, 199), segment(200, 210), segment(220, 230)])
    assert problems(choice) == [(Problem.GAP, 100, 149), (Problem.GAP, 211, 219)]


STARTS = st.lists(st.integers(1, 60), max_size=4, unique=True).map(lambda found: [0, *sorted(found)])
LINEAGES = STARTS.map(lambda starts: tuple(EpochEntry(2 * i, start) for i, start in enumerate(starts)))


@st.composite
def uploads(draw: st.DrawFn) -> tuple[tuple[EpochEntry, ...], list[TierSegment]]:
    """A lineage, and segments of leaders that followed it, or others that did not."""
    lineage = draw(LINEAGES)
    found = []
    for number in range(draw(st.integers(0, 6))):
        first = draw(st.integers(0, 70))
        last = first + draw(st.integers(0, 30))
        own = lineage
        if draw(st.booleans()):
            at = draw(st.integers(1, 60))
            epoch = draw(st.sampled_from([1, 3, 5]))
            own = (*(e for e in lineage if e.start_offset < at and e.epoch < epoch), EpochEntry(epoch, at))
            own = own if own[0].start_offset == 0 else (EpochEntry(0, 0), *own)
        found.append(segment(first, last, own, f"upload {number}"))
    return lineage, sorted(found, key=lambda one: (one.start_offset, one.end_offset))


def epoch_at(entries: Sequence[EpochEntry], offset: int) -> int:
    return max((entry for entry in entries if entry.start_offset <= offset), key=lambda entry: entry.start_offset).epoch


@settings(max_examples=150, deadline=None)
@given(uploads())
def test_every_offset_of_the_lineage_counts_once(drawn: tuple[tuple[EpochEntry, ...], list[TierSegment]]) -> None:
    lineage, segments = drawn
    wanted = set()
    for one in segments:
        for offset in range(one.start_offset, one.end_offset + 1):
            if epoch_at(one.epochs, offset) != epoch_at(lineage, offset):
                break
            wanted.add(offset)
    choice = choose("t-0", segments, None, lineage)
    found = [offset for first, last in ranges(choice) for offset in range(first, last + 1)]
    assert found == sorted(wanted)
    gaps = {offset for one in choice.remarks if one.problem is Problem.GAP for offset in _offsets(one)}
    assert gaps == set(range(min(wanted), max(wanted))) - wanted if wanted else not gaps


def _offsets(one: Remark) -> range:
    assert one.first_offset is not None and one.last_offset is not None
    return range(one.first_offset, one.last_offset + 1)
