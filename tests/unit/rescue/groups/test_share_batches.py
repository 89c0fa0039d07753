"""What is known of a share group's offsets: batches of snapshots and updates, put together as Kafka does."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from seglog_rescue.groups.committed_offsets import ShareBatch, ShareState
from seglog_rescue.groups.coordinator_replay import StoredRecord
from seglog_rescue.groups.share_batches import batches_of


def state(start: int, *batches: ShareBatch) -> ShareState:
    return ShareState("g", "id", 0, start, 0, 0, 0, StoredRecord(b"", b"", 0, 0), batches)


@pytest.mark.parametrize("seed", range(300))
def test_of_an_offset_in_several_batches_the_highest_count_and_state_decide(seed: int) -> None:
    generator = random.Random(seed)
    written = []
    for _ in range(generator.randrange(12)):
        first = generator.randrange(40)
        last = first + generator.randrange(10)
        written.append(ShareBatch(first, last, generator.choice((0, 2, 4)), generator.randrange(1, 4)))
    start = generator.randrange(30)
    known = {}
    for offset in range(start, 60):
        covering = [(one.deliveries, one.state) for one in written if one.first <= offset <= one.last]
        if covering:
            known[offset] = max(covering)
    batches = batches_of(state(start, *written))
    assert known == {
        offset: (one.deliveries, one.state) for one in batches for offset in range(one.first, one.last + 1)
    }
    for before, after in pairwise(batches):
        assert before.last < after.first
        assert before.last + 1 < after.first or before[2:] != after[2:], "one batch would do"


def test_odd_batches_end() -> None:
    huge = 2**63 - 1
    odd = (ShareBatch(9, 3, 2, 1), ShareBatch(-5, 2, 2, 1), ShareBatch(0, huge, 0, 1), ShareBatch(huge, huge, 2, 1))
    assert batches_of(state(-1, *odd)) == [
        *(ShareBatch(-1, 2, 2, 1), ShareBatch(3, huge - 1, 0, 1), ShareBatch(huge, huge, 2, 1))
    ]
