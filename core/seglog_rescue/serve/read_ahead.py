"""Finds the span that a client fetches next while it takes the one before: its next answer is then only sent.

1. A fetch that begins where the connection's last answer ended comes from a client that reads on. When its answer, with
   the data of one partition, is sent, the next span is found and checked, if the page cache has it.
2. The next fetch takes it, if it asks for just that. Any other fetch drops it, and so does the connection's end.

What is held is an open file, and no bytes. If too many connections hold one, the one held for longest is closed.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from seglog.errors import SeglogError
from seglog.model import Isolation
from seglog_rescue.serve.endpoint import Endpoint
from seglog_rescue.serve.spans import FileSpan, Found, find_span, is_at_hand

QUICK_BYTES = 4 << 20  # checked in about a millisecond
_MOST_HELD = 64


@dataclass(frozen=True, slots=True)
class Place:
    """What a fetch reads of a partition: from an offset on, at most so many bytes."""

    topic: str
    number: int
    offset: int
    most_bytes: int
    isolation: Isolation


@dataclass(slots=True, eq=False)
class Ahead:
    """What a connection is expected to fetch next, and its span if that is found. One thread at a time has it."""

    expected: Place | None = None
    found: Found | None = None
    goes_on: bool = False  # the last fetch was the expected one

    def take(self, place: Place) -> Found | None:
        """Returns the span of a fetch if it is the expected one and its span was found; the caller closes it."""
        if place != self.expected:
            return None
        self.goes_on = True
        found, self.found = self.found, None
        return found

    def expect(self, place: Place | None) -> None:
        """Takes note of the place after an answer; drops a span that was not taken."""
        if self.found is not None:
            _close(self.found)
        self.expected, self.found = place, None


class ReadAhead:
    """The spans held for all connections. Only the event loop calls it."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._held: OrderedDict[Ahead, None] = OrderedDict()

    def begin(self, ahead: Ahead) -> None:
        """Gives a connection's span to the fetch that begins."""
        self._held.pop(ahead, None)
        ahead.goes_on = False

    def drop(self, ahead: Ahead) -> None:
        """Drops what is held for a connection that ends."""
        self._held.pop(ahead, None)
        ahead.expect(None)

    def find(self, ahead: Ahead) -> None:
        """Finds the span that a client is expected to fetch, unless the disk would be waited for."""
        place = ahead.expected
        if place is None or not ahead.goes_on or not 0 < place.most_bytes <= QUICK_BYTES:
            return
        ahead.found = self._span(place)
        if ahead.found is None:
            return
        self._held[ahead] = None
        if len(self._held) > _MOST_HELD:
            self._held.popitem(last=False)[0].expect(None)

    def _span(self, place: Place) -> Found | None:
        partition = self._endpoint.catalog.find(place.topic, place.number)
        if partition is None:
            return None
        view, ends, damages = partition.log.view, partition.ends, list[Exception]()
        if not is_at_hand(view, place.offset, place.most_bytes, ends):
            return None
        try:
            found = find_span(
                view, place.offset, place.most_bytes, place.isolation, ends, skip_damage=False, report=damages.append
            )
        except (SeglogError, OSError):
            return None  # the client's own fetch meets it again, and reports it
        if damages or not isinstance(found.data, FileSpan):
            _close(found)
            return None
        return found


def _close(found: Found) -> None:
    if isinstance(found.data, FileSpan):
        found.data.file.close()
