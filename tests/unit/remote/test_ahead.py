"""Reading ahead: walks are told apart, what is announced comes in whole requests, and all of them share the cache."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from seglog_stores.remote.ahead import AnnouncedWalks, ReadAhead, Step
from seglog_stores.remote.blocks import Blocks, Source
from seglog_stores.remote.limits import Limits

LIMITS = Limits(cache_bytes=4096, block_bytes=64, request_bytes=256, requests_at_once=4, retries=2, timeout_s=5.0)


def walks(limits: Limits = LIMITS) -> tuple[ReadAhead, AnnouncedWalks]:
    announced = AnnouncedWalks(limits)
    return ReadAhead(limits, announced), announced


def test_two_walks_through_one_file_are_distinguished() -> None:
    ahead, _ = walks()
    asked: list[tuple[int, int]] = []
    for step in range(40):
        for start in (0, 100_000):
            found = ahead.read(start + 50 * step, start + 50 * step + 50)
            asked += [(found.begin, found.end)] if found.begin < found.end else []
            assert found.passed == found.reached  # it was not announced, and may be read again
    for start in (0, 100_000):
        mine = [each for each in asked if start <= each[0] < start + 50_000]
        assert all(later[0] == earlier[1] for earlier, later in itertools.pairwise(mine))  # each byte once
        assert mine[-1][1] >= start + 2000
    assert ahead.read(50_000, 50_050) == Step(50_050, 50_050)  # one read is no walk


def test_announced_ranges_are_requested_at_once_in_full_requests_and_never_beyond_their_end() -> None:
    ahead, _ = walks()
    asked = [ahead.announce(100, 5000)]
    assert asked[0] == (100, 1024)
    for position in range(100, 5000, 100):
        step = ahead.read(position, position + 100)
        asked.append((step.begin, step.end))
    wanted = [each for each in asked if each[0] < each[1]]
    assert wanted[0][0] == 100
    assert wanted[-1][1] == 5000
    assert all(later[0] == earlier[1] for earlier, later in itertools.pairwise(wanted))
    assert all(end % 256 == 0 for _, end in wanted[:-1])


def test_what_an_announced_walk_has_passed_goes_unless_it_will_be_read_again() -> None:
    for again in (False, True):
        ahead, _ = walks()
        ahead.announce(0, 5000, again=again)
        steps = [ahead.read(position, position + 100) for position in range(0, 5000, 100)]
        gone = [(step.passed, step.reached) for step in steps if step.passed < step.reached]
        assert bool(gone) is not again
        assert again or (gone[0][0], gone[-1][1]) == (0, 5000)


def test_announced_walks_share_half_of_the_cache_until_they_end() -> None:
    ahead, announced = walks()
    assert announced.window == 1024
    for start in range(0, 8 * 10_000, 10_000):
        ahead.announce(start, start + 10_000)
    assert announced.window == 4096 // 2 // 8
    ahead.read(0, 10_000)
    assert announced.window == 4096 // 2 // 7
    ahead.close()
    assert announced.window == 1024


def test_what_an_announced_walk_has_passed_is_given_up_up_to_its_end_and_no_further() -> None:
    data = bytes(range(256)) * 40
    blocks = Blocks(LIMITS)
    ahead = ReadAhead(LIMITS, blocks.announced)
    source = Source(("s3://bkt/x", "1"), len(data), lambda start, size: data[start : start + size])
    blocks.read_into(source, 0, memoryview(bytearray(64)))  # whoever reads what lies before it still may
    start, stop, most = 60, 3000, 0
    blocks.read_ahead(source, *ahead.announce(start, stop))
    position = start
    while position < stop:
        lent = blocks.lend(source, position, min(60, stop - position))
        step = ahead.read(position, position + lent.nbytes)
        blocks.give_up(source, step.passed, step.reached)
        assert lent == data[position : position + lent.nbytes]
        position += lent.nbytes
        most = max(most, blocks.held)
    assert most <= 64 + 1024 + 2 * 256  # what came early, the run that is read, the one before it, and the first block
    assert blocks.held == 64 + 64  # the block that the last byte lies in is a neighbour's, too
    asked: list[int] = []

    def fetch(start: int, size: int) -> bytes:
        asked.append(start)
        return data[start : start + size]

    again = Source(source.identity, len(data), fetch)
    for number in (0, (stop - 1) // 64):
        blocks.read_into(again, number * 64, memoryview(bytearray(8)))
    assert not asked  # the blocks at both ends are those of its neighbours, too
    blocks.read_into(again, 640, memoryview(bytearray(8)))
    assert asked == [640]


def test_a_small_file_comes_when_it_is_announced_and_is_no_walk() -> None:
    ahead, announced = walks()
    assert ahead.announce(0, 60) == (0, 60)
    announced.add(1)
    assert announced.window == 1024
    assert walks(replace(LIMITS, cache_bytes=0))[0].announce(0, 60) == (0, 0)  # nobody would hold it


def test_requests_begin_where_others_would() -> None:
    fetched: list[tuple[int, int]] = []

    def fetch(start: int, size: int) -> bytes:
        fetched.append((start, size))
        return bytes(size)

    Blocks(LIMITS).read_into(Source(("s3://bkt/x", "1"), 10_000, fetch), 200, memoryview(bytearray(700)))
    assert sorted(fetched) == [(192, 64), (256, 256), (512, 256), (768, 192)]


@pytest.mark.parametrize("cache_bytes", [0, 300, 1024, 1 << 20])
def test_lent_bytes_are_those_of_the_object_in_any_cache(cache_bytes: int) -> None:
    data = bytes(range(256)) * 40
    fetched: list[tuple[int, int]] = []

    def fetch(start: int, size: int) -> bytes:
        fetched.append((start, size))
        return data[start : start + size]

    blocks = Blocks(replace(LIMITS, cache_bytes=cache_bytes))
    source, position = Source(("s3://bkt/x", "1"), len(data), fetch), 0
    while position < len(data):
        lent = blocks.lend(source, position, min(500, len(data) - position))
        assert lent.readonly
        assert 1 <= lent.nbytes <= 500
        assert lent == data[position : position + lent.nbytes]
        position += lent.nbytes
    if cache_bytes == 1 << 20:
        assert sum(size for _, size in fetched) == len(data)
    assert blocks.held <= cache_bytes
