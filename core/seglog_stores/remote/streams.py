"""Reads parts of an object as one streamed request each, and uses the bytes as they arrive.

If as many threads read objects as requests may run at once, fetching ahead gains nothing. Each walk reads the answer to
its own request piece by piece, while a piece is still in the processor's caches, and holds only what it reads. 1 GiB in
four threads took 0.37 s of CPU with its CRCs; in requests of 4 MiB that are held as a whole it took 0.61 s.

The CPU time beyond the checksums is the library's: just reading 1 GiB takes as much. Our own requests (http.client,
into our own buffers, unsigned) took a third less in a trial: 0.5 against 0.8 s of CPU, and with TLS 1.35 against 2.0 s,
with no difference in elapsed time. They are not used. Their URLs would be signed, which makes them secrets, and need
other rights: policies that refuse such URLs, Google's signBlob, Azure's SAS. Certificates, proxies, customer keys and
retries would have to be configured in two places.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator

Ask = Callable[[int, int], Iterator[memoryview]]  # (position, bytes) → pieces; raises OSError


class ObjectStream:
    """Bytes `start` to `stop` of an object, requested on the first read. Thread-safe; one thread at a time waits for
    data.
    """

    def __init__(self, start: int, stop: int, ask: Ask) -> None:
        self.stop, self.is_read = stop, False
        self._ask = ask
        self._answer: Iterator[memoryview] | None = None
        self._held: deque[tuple[int, memoryview]] = deque()  # pieces by their positions
        self._first = self._next = start  # the held bytes are between them
        self._guard = threading.Lock()

    def covers(self, position: int) -> bool:
        """True if a walk at `position` continues with this stream."""
        return self._first <= position <= self._next and position < self.stop

    def lend(self, position: int, most: int) -> memoryview | None:
        """Lends at most that many bytes from `position`, out of one piece; None if it does not cover the position.
        Frees the bytes before it.
        """
        with self._guard:
            if not self._reach(position, position + 1):
                return None
            start, piece = self._held[0]
            lent = piece[position - start : position - start + most]
            self.is_read = position + lent.nbytes == self.stop
            return lent

    def read_into(self, position: int, view: memoryview) -> bool:
        """Fills `view` from `position`, and frees the bytes before it. Returns False if it does not cover all of it."""
        end = position + view.nbytes
        with self._guard:
            if not self._reach(position, end):
                return False
            for start, piece in self._held:
                begin, until = max(position, start), min(end, start + piece.nbytes)
                if begin < until:
                    view[begin - position : until - position] = piece[begin - start : until - start]
            self.is_read = end == self.stop
            return True

    def close(self) -> None:
        """Ends the stream, and cancels its request."""
        with self._guard:
            self._answer = None
            self._held.clear()
            self._first = self._next = self.stop

    def _reach(self, position: int, end: int) -> bool:
        """Receives bytes up to `end`, and frees pieces that end before `position`. Returns False if not covered."""
        if not self.covers(position) or end > self.stop:
            return False
        while self._held and self._held[0][0] + self._held[0][1].nbytes <= position:
            self._held.popleft()
        while self._next < end:
            if self._answer is None:
                self._answer = self._ask(self._next, self.stop - self._next)
            try:
                piece = next(self._answer)
            except OSError:
                self._answer = None  # the next read sends a new request
                raise
            self._held.append((self._next, piece))
            self._next += piece.nbytes
        self._first = self._held[0][0]
        return True
