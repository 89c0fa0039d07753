"""`Log.to_arrow`: a log knows nothing of Arrow, so whoever opens it for users gives it the function that does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from seglog.errors import UnsupportedError
from seglog.model import Isolation


class ArrowDoor:
    """The part of a log that needs Arrow. `make_reader` is set by `seglog.open_log`."""

    make_reader: Callable[..., Any] | None = None

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        *,
        offset: int | None = None,
        isolation: Isolation | str | None = Isolation.READ_UNCOMMITTED,
    ) -> Any:
        """Returns a pyarrow.RecordBatchReader of the records that `columns()` yields, with the columns of `open_table`.

        Batches are made while they are consumed: do that before the log is closed. Raises ConfigError for an unknown
        column, UnsupportedError for a log that `seglog.open_log` has not opened, and the errors of `columns()`.
        """
        if self.make_reader is None:
            raise UnsupportedError("to_arrow is for a log that seglog.open_log has opened; seglog.open_table reads any")
        return self.make_reader(columns, offset, isolation)
