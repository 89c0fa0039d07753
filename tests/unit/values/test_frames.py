"""The frames of registries: in the payload, and in headers."""

from __future__ import annotations

import zlib
from uuid import UUID

import pytest

from seglog.model import Header
from seglog_ask.values.frames import MOST_EXPANDED_BYTES, frame_of, message_named
from seglog_ask.values.schemas import Naming, NotDecodedError

GUID = UUID("0123456789abcdef0123456789abcdef")


@pytest.mark.parametrize(
    ("data", "number", "payload"),
    [
        (b"\0\0\0\1\2rest", 258, b"rest"),
        (b"\0\0\0\0\0\0\0\1\2rest", 258, b"rest"),  # Apicurio's eight bytes
        (b"\1" + GUID.bytes + b"rest", GUID, b"rest"),
        (b"\3\0" + GUID.bytes + b"rest", GUID, b"rest"),
        (b"\3\5" + GUID.bytes + zlib.compress(b"rest"), GUID, b"rest"),
    ],
)
def test_a_frame_names_its_schema_and_the_rest(data: bytes, number: object, payload: bytes) -> None:
    frame = frame_of(data, (), "value")
    assert frame is not None
    assert (frame.id, frame.data[frame.start :]) == (number, payload)


@pytest.mark.parametrize(
    "data", [b"", b"\0\0\0\1", b"\1short", b"\3\0short", b"\3\7" + GUID.bytes, b"{}", b"\2abcdefgh"]
)
def test_other_bytes_have_no_frame(data: bytes) -> None:
    assert frame_of(data, (), "value") is None


def test_a_header_names_the_schema_of_its_side() -> None:
    headers = [
        Header("__key_schema_id", b"\1" + bytes(16)),
        Header("__value_schema_id", b"\1" + GUID.bytes + b"\2\4"),
    ]
    frame = frame_of(b"payload", headers, "value")
    assert frame is not None and (frame.id, frame.start) == (GUID, 0)
    assert frame.naming == Naming("path", b"\2\4")
    key = frame_of(b"payload", headers, "key")
    assert key is not None and key.id == UUID(int=0)
    with pytest.raises(NotDecodedError, match="holds no schema id"):
        frame_of(b"payload", [Header("__value_schema_id", b"\7")], "value")
    apicurio = frame_of(b"payload", [Header("apicurio.value.globalId", (9).to_bytes(8, "big"))], "value")
    assert apicurio is not None and apicurio.id == 9 and apicurio.naming == Naming("first")


@pytest.mark.parametrize(
    ("payload", "path"), [(b"\0x", (0,)), (b"\2\2x", (1,)), (b"\4\2\0x", (1, 0)), (b"\2\xac\2x", (150,))]
)
def test_the_path_to_a_message_comes_after_the_id(payload: bytes, path: tuple[int, ...]) -> None:
    frame = frame_of(b"\0\0\0\0\1" + payload, (), "value")
    assert frame is not None and frame.naming == Naming("path before")
    found, start = message_named(frame.payload, frame.naming)
    assert (found, frame.payload[start:]) == (path, b"x")


@pytest.mark.parametrize("payload", [b"", b"\x80", b"\4\0", b"\xff\xff\xff\xff\xff\xff\1", b"\1", b"\xfe\xff\3"])
def test_a_broken_path_is_told(payload: bytes) -> None:
    with pytest.raises(NotDecodedError):
        message_named(payload, Naming("path before"))


def test_what_expands_too_far_or_is_broken_is_told() -> None:
    bomb = zlib.compress(bytes(MOST_EXPANDED_BYTES + 1))
    for payload, said in ((bomb, "expands beyond"), (b"junk", "broken"), (bomb[:9], "ends early")):
        with pytest.raises(NotDecodedError, match=said):
            frame_of(b"\3\5" + GUID.bytes + payload, (), "value")
