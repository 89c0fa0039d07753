"""What the format layer reads from: anything that holds bytes, without copying it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    # The stubs of numpy call arrays buffers only from Python 3.12 on.
    ByteSource: TypeAlias = ReadableBuffer | npt.NDArray[np.uint8]


def byte_view(data: ByteSource) -> memoryview:
    """A flat view of `data` whose items are bytes (0 to 255); nothing is copied."""
    view = memoryview(cast(Any, data))
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")
