"""No compression: the payload is the data."""

from __future__ import annotations

from seglog.format.payloads import Codec, StoredPayload, larger_than


def _copied(data: memoryview, room: memoryview, magic: int) -> int:  # noqa: ARG001
    if len(data) > len(room):
        raise larger_than(len(room))
    room[: len(data)] = data
    return len(data)


CODEC = Codec(
    compress=lambda data, _level, _magic: iter((bytes(data),)),
    expand=lambda payload, _magic: StoredPayload(payload),
    expand_into=_copied,
)
