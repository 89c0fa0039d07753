"""What was opened around a log, and is closed with it: its log directory with the lock, or a view for reading."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self


class Owned:
    """Base of a log whose `close`, and the end of whose `with` block, may close more than itself."""

    _release: Callable[[BaseException | None], object] | None = None

    def owned(self, release: Callable[[BaseException | None], object]) -> Self:
        """Lets closing call `release` with the error of the `with` block: it closes the log and what is around it."""
        self._release = release
        return self

    def _given_back(self, error: BaseException | None) -> bool:
        """Calls `release`, once; returns False if there is nothing to call."""
        release, self._release = self._release, None
        if release is not None:
            release(error)
        return release is not None
