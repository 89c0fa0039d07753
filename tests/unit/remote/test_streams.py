"""Walks side by side: one request each, used as it comes; what is lost on the way is asked for from where it was."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from seglog.locations import parse_location
from seglog.storage.filesystem import File
from seglog_stores.remote.filesystem import RemoteFileSystem
from seglog_stores.remote.limits import Limits
from seglog_stores.remote.store import ObjectStatus
from seglog_stores.remote.streams import ObjectStream
from tests.support.object_server import SECRETS, Fault, ObjectServer, object_server

LIMITS = Limits(block_bytes=64, request_bytes=256, piece_bytes=100, requests_at_once=4, retries=2, timeout_s=5.0)
DATA = bytes(range(251)) * 40
LOG = parse_location("s3://bkt/kafka/t-0/00.log")
START, STOP = 30, 9000


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    with object_server() as served:
        served.objects["bkt/kafka/t-0/00.log"] = DATA
        yield served


@pytest.fixture
def fs(server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> RemoteFileSystem:
    monkeypatch.setattr("seglog_stores.remote.store._FIRST_PAUSE_S", 0.001)
    return RemoteFileSystem(environment=server.environment, limits=LIMITS)


class Piecewise:
    """A store with one object, which comes in pieces of 100 bytes."""

    lists = True

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.streamed: list[tuple[int, int]] = []

    def get(self, _known: ObjectStatus, start: int, size: int) -> bytes:
        self.asked.append(start)
        return DATA[start : start + size]

    def stream(self, _known: ObjectStatus, start: int, size: int, piece: int) -> Iterator[memoryview]:
        self.streamed.append((start, size))
        for position in range(start, start + size, piece):
            yield memoryview(DATA)[position : min(position + piece, start + size)]

    def head(self, key: str) -> ObjectStatus:
        return ObjectStatus(key, len(DATA), 0, "1")

    def pages(self, _prefix: str, _after: str = "") -> Iterator[list[ObjectStatus]]:
        yield [self.head(LOG.key)]


def read(file: File, start: int, stop: int, most: int = 70) -> bytes:
    """The bytes of a walk."""
    found = b""
    while start + len(found) < stop:
        lent = file.lend(start + len(found), min(most, stop - start - len(found)))
        assert lent
        found += lent
    return found


def test_a_concurrent_walk_is_one_request_and_holds_no_more_than_it_reads(fs: RemoteFileSystem) -> None:
    with fs.open(LOG, "r") as file:
        file.advise_wanted(START, STOP - START, side_by_side=True)
        assert fs.traffic.gets == 0  # it is asked for when it is read
        assert read(file, START, STOP) == DATA[START:STOP]
        assert (fs.traffic.gets, fs.traffic.bytes_read, fs.cached_bytes) == (1, STOP - START, 0)
        assert file.read_at(100, 50) == DATA[100:150]  # what was passed is asked for again
    assert fs.traffic.gets == 2


def test_a_short_walk_comes_as_blocks_that_are_held(fs: RemoteFileSystem) -> None:
    with fs.open(LOG, "r") as file:
        file.advise_wanted(0, LIMITS.request_bytes, side_by_side=True)
        assert read(file, 0, LIMITS.request_bytes) == DATA[: LIMITS.request_bytes]
        assert read(file, 0, LIMITS.request_bytes) == DATA[: LIMITS.request_bytes]
    assert fs.cached_bytes >= LIMITS.request_bytes


def test_what_is_announced_again_goes_on_with_its_request() -> None:
    store = Piecewise()
    fs = RemoteFileSystem(limits=LIMITS, open_root=lambda _: store)
    with fs.open(LOG, "r") as file:
        for _ in range(3):
            file.advise_wanted(START, STOP - START, side_by_side=True)
            assert read(file, START, START + 70) == DATA[START : START + 70]
        assert store.streamed == [(START, STOP - START)]
        assert read(file, START, START + 900) == DATA[START : START + 900]
        file.advise_wanted(START, STOP - START, side_by_side=True)  # it has passed the beginning
        assert read(file, START, STOP) == DATA[START:STOP]
    assert store.streamed == [(START, STOP - START)] * 2


@pytest.mark.parametrize("seed", range(20))
def test_reads_of_any_size_that_go_on_get_the_bytes_there(seed: int) -> None:
    chance, store = random.Random(seed), Piecewise()
    fs = RemoteFileSystem(limits=LIMITS, open_root=lambda _: store)
    with fs.open(LOG, "r") as file:
        file.advise_wanted(START, STOP - START, side_by_side=True)
        position = START
        while position < STOP:
            size = min(chance.choice((1, 60, 150, 400)), STOP - position)
            if chance.random() < 0.5:
                found = bytes(file.lend(position, size) or b"")
                assert 0 < len(found) <= size
            else:
                found = file.read_at(position, size)
                assert len(found) == size
            assert found == DATA[position : position + len(found)]
            position += chance.choice((len(found), max(1, len(found) // 2)))  # less: its end was no whole batch
    assert store.streamed == [(START, STOP - START)]
    assert all(start >= STOP - 500 for start in store.asked)  # the end, once more: its request has ended


def test_more_walks_than_are_kept_of_one_file_read_right_all_the_same(fs: RemoteFileSystem) -> None:
    parts = [(start, start + 300) for start in range(0, len(DATA) - 300, 300)]
    with fs.open(LOG, "r") as file:
        for start, stop in parts:
            file.advise_wanted(start, stop - start, side_by_side=True)
        assert [read(file, start, stop) for start, stop in parts] == [DATA[start:stop] for start, stop in parts]


@pytest.mark.parametrize("cut", [0, 1, 99, 2000])
def test_an_answer_that_is_cut_short_goes_on_where_it_was(fs: RemoteFileSystem, server: ObjectServer, cut: int) -> None:
    faults = iter([Fault(cut=cut), Fault(cut=cut)])
    server.fault = lambda method, _path: next(faults, None) if method == "BODY" else None
    with fs.open(LOG, "r") as file:
        file.advise_wanted(START, STOP - START, side_by_side=True)
        assert read(file, START, STOP) == DATA[START:STOP]
    assert next(faults, None) is None


def test_answers_that_bring_nothing_end_in_an_error_and_whoever_reads_on_asks_anew(
    fs: RemoteFileSystem, server: ObjectServer
) -> None:
    with fs.open(LOG, "r") as file:
        file.advise_wanted(START, STOP - START, side_by_side=True)
        server.fault = lambda method, _path: Fault(cut=0) if method == "BODY" else None
        with pytest.raises(OSError, match="the store's answer was cut short, also on retries"):
            read(file, START, STOP)
        server.fault = lambda method, _path: None
        assert read(file, START, STOP) == DATA[START:STOP]


def test_an_object_that_changes_between_two_answers_is_an_error_and_not_a_mixture(
    fs: RemoteFileSystem, server: ObjectServer
) -> None:
    server.fault = lambda method, _path: Fault(cut=2000) if method == "BODY" else None
    with fs.open(LOG, "r") as file:
        file.advise_wanted(START, STOP - START, side_by_side=True)
        assert read(file, START, START + 70) == DATA[START : START + 70]
        server.objects["bkt/kafka/t-0/00.log"] = DATA[::-1]
        with pytest.raises(OSError, match="changed while it was read") as caught:
            read(file, START, STOP)
    assert caught.value.errno == errno.ESTALE


def test_a_store_that_refuses_is_asked_no_further(server: ObjectServer) -> None:
    fs = RemoteFileSystem(environment=server.environment, limits=replace(LIMITS, retries=0))
    with fs.open(LOG, "r") as file:
        file.advise_wanted(START, STOP - START, side_by_side=True)
        server.fault = lambda method, _path: Fault(403, "ExpiredToken") if method == "GET" else None
        before = fs.traffic.gets
        with pytest.raises(PermissionError, match="403 ExpiredToken"):
            read(file, START, STOP)
    assert fs.traffic.gets == before + 1


def test_a_walk_that_is_given_up_ends_its_request() -> None:
    ended: list[int] = []

    def ask(start: int, size: int) -> Iterator[memoryview]:
        try:
            for position in range(start, start + size, 100):
                yield memoryview(DATA)[position : position + 100]
        finally:
            ended.append(start)

    stream = ObjectStream(START, STOP, ask)
    assert stream.lend(START, 50) == DATA[START : START + 50]
    stream.close()
    assert ended == [START]
    assert stream.lend(START, 50) is None and not stream.read_into(START, memoryview(bytearray(10)))
