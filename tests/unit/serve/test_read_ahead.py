"""The span that a client fetches next is found while it takes the one before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seglog.log.segments import LogView
from seglog.model import Isolation, Record
from seglog.storage.filesystem import PassingFile
from seglog_rescue.serve import fetches, read_ahead
from seglog_rescue.serve.endpoint import Endpoint
from seglog_rescue.serve.fetches import Fetched, fetch, is_quick
from seglog_rescue.serve.protocol import ErrorCode
from seglog_rescue.serve.read_ahead import Ahead, Place, ReadAhead
from seglog_rescue.serve.spans import FileSpan, Found
from tests.support.open_logs import opened_log
from tests.support.serving import Serving

EACH, BATCHES, MOST = 5, 60, 3000
END = EACH * BATCHES


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for name in ("t-0", "u-0"):
        with opened_log(tmp_path / name) as log:
            for i in range(BATCHES):
                log.append([Record(b"v" * 200, timestamp=1000 + i) for _ in range(EACH)])
    return tmp_path


@pytest.fixture(autouse=True)
def at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is in the page cache, whether or not the file system of the tests can tell."""
    monkeypatch.setattr(read_ahead, "is_at_hand", lambda *_: True)


@pytest.fixture
def endpoint(directory: Path) -> Iterator[Endpoint]:
    with Serving(directory) as running:
        yield running.endpoint


def request(*offsets: int, topic: str = "t", most: int = MOST, isolation: int = 0) -> SimpleNamespace:
    """A fetch of one partition of a topic; of `u` too if there are two offsets."""
    parts = [
        SimpleNamespace(partition=0, fetch_offset=offset, partition_max_bytes=most, current_leader_epoch=-1)
        for offset in offsets
    ]
    topics = [SimpleNamespace(topic=name, partitions=[part]) for name, part in zip((topic, "u"), parts, strict=False)]
    return SimpleNamespace(topics=topics, max_bytes=1 << 20, min_bytes=1, isolation_level=isolation, session_epoch=-1)


def taken(fetched: Fetched) -> list[tuple[int, int]]:
    """Position and size of each span of an answer, whose files are closed."""
    spans = [entry["records"] for topic in fetched.values["responses"] for entry in topic["partitions"]]
    for span in spans:
        if isinstance(span, FileSpan):
            span.file.close()
    return [(span.position, span.size) for span in spans if isinstance(span, FileSpan)]


def read(reader: ReadAhead, endpoint: Endpoint, ahead: Ahead, body: SimpleNamespace) -> list[tuple[int, int]]:
    """What a fetch of a connection gets; then its next span is looked for."""
    reader.begin(ahead)
    spans = taken(fetch(endpoint, body, ahead))
    reader.find(ahead)
    return spans


def next_offset(ahead: Ahead) -> int:
    assert ahead.expected is not None
    return ahead.expected.offset


def place(body: SimpleNamespace) -> Place:
    """The place of the first partition of a fetch."""
    (first, *_) = body.topics
    (part,) = first.partitions
    isolation = Isolation(body.isolation_level)
    return Place(first.topic, 0, part.fetch_offset, part.partition_max_bytes, isolation)


def reading_on(endpoint: Endpoint, reader: ReadAhead | None = None) -> tuple[ReadAhead, Ahead]:
    """A connection that has fetched twice, one after the other, so that its next span is held."""
    reader, ahead = ReadAhead(endpoint) if reader is None else reader, Ahead()
    read(reader, endpoint, ahead, request(0))
    read(reader, endpoint, ahead, request(next_offset(ahead)))
    assert ahead.found is not None
    return reader, ahead


class Watched(PassingFile):
    """A file that knows whether it was closed."""

    closed = False

    def close(self) -> None:
        self.closed = True
        super().close()


def file_of(ahead: Ahead) -> Watched:
    """The open file that is held."""
    assert ahead.found is not None and isinstance(ahead.found.data, FileSpan)
    file = Watched(ahead.found.data.file)
    ahead.found = replace(ahead.found, data=replace(ahead.found.data, file=file))
    return file


def test_who_reads_on_gets_the_same_spans_and_nobody_searches_for_them_again(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, offset = list[tuple[int, int]](), 0
    while offset < END:
        alone = Ahead()
        plain += taken(fetch(endpoint, request(offset), alone))
        offset = next_offset(alone)
    searched, find_span = list[int](), fetches.find_span

    def noted(view: LogView, at: int, *rest: Any, **more: Any) -> Found:
        searched.append(at)
        return find_span(view, at, *rest, **more)

    monkeypatch.setattr(fetches, "find_span", noted)
    reader, ahead, read_on, offset = ReadAhead(endpoint), Ahead(), list[tuple[int, int]](), 0
    while offset < END:
        read_on += read(reader, endpoint, ahead, request(offset))
        offset = next_offset(ahead)
    assert read_on == plain
    assert searched == [0, plain[0][1] // (plain[-1][0] // (END - EACH)) // EACH * EACH]  # then it is known to read on


def test_what_was_read_ahead_answers_without_a_thread_and_only_once(endpoint: Endpoint) -> None:
    reader, ahead = reading_on(endpoint)
    offset = next_offset(ahead)
    reader.begin(ahead)
    for other in (request(offset + 1), request(offset, most=MOST + 1), request(offset, isolation=1), request(0, 0)):
        assert ahead.take(place(other)) is None
    assert is_quick(endpoint, request(offset), ahead)
    (span,) = taken(fetch(endpoint, request(offset), ahead))
    assert ahead.found is None and next_offset(ahead) > offset
    assert taken(fetch(endpoint, request(offset), Ahead())) == [span]


@pytest.mark.parametrize("elsewhere", [request(0), request(0, topic="u"), request(0, 0), request(END), request(-5)])
def test_a_fetch_of_something_else_drops_it_and_leaves_no_file_open(
    endpoint: Endpoint, elsewhere: SimpleNamespace
) -> None:
    reader, ahead = reading_on(endpoint)
    file = file_of(ahead)
    taken_elsewhere = read(reader, endpoint, ahead, elsewhere)
    assert taken_elsewhere == taken(fetch(endpoint, elsewhere, Ahead()))
    assert ahead.found is None
    assert file.closed


def test_a_connection_that_ends_leaves_no_file_open(endpoint: Endpoint) -> None:
    reader, ahead = reading_on(endpoint)
    file = file_of(ahead)
    reader.drop(ahead)
    assert file.closed


def test_of_too_many_the_one_held_for_longest_is_closed(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "_MOST_HELD", 2)
    reader = ReadAhead(endpoint)
    held = [reading_on(endpoint, reader)[1] for _ in range(2)]
    files = [file_of(each) for each in held]
    reading_on(endpoint, reader)
    assert [file.closed for file in files] == [True, False]
    assert held[0].found is None


def test_a_single_fetch_and_one_of_two_partitions_read_nothing_ahead(endpoint: Endpoint) -> None:
    reader, ahead = ReadAhead(endpoint), Ahead()
    read(reader, endpoint, ahead, request(0))
    assert ahead.found is None
    for offset in (0, EACH):
        read(reader, endpoint, ahead, request(offset, offset))
    assert (ahead.found, ahead.expected) == (None, None)


def test_what_is_not_cached_is_not_read_ahead(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "is_at_hand", lambda *_: False)
    reader, ahead, offset = ReadAhead(endpoint), Ahead(), 0
    for _ in range(3):
        read(reader, endpoint, ahead, request(offset))
        offset = next_offset(ahead)
        assert ahead.found is None


def test_damage_is_reported_when_it_is_fetched(directory: Path) -> None:
    (log,) = (directory / "t-0").glob("*.log")
    reached = 0
    with Serving(directory) as running:
        endpoint, ahead = running.endpoint, Ahead()
        reader = ReadAhead(endpoint)
        for _ in range(2):
            read(reader, endpoint, ahead, request(reached))
            reached = next_offset(ahead)
        reader.drop(ahead)
        data = bytearray(log.read_bytes())
        batch = len(data) // BATCHES
        data[batch * (reached // EACH) + 100] ^= 1
        log.write_bytes(data)
        ahead = Ahead(place(request(reached)), goes_on=True)
        reader.find(ahead)
        assert ahead.found is None and running.observer.damages == []
        (entry,) = fetch(endpoint, request(reached), ahead).values["responses"][0]["partitions"]
        assert entry["error_code"] == ErrorCode.corrupt_message
        assert len(running.observer.damages) == 1
