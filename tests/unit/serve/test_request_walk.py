"""Walking over a request: as far as kio reads it, and never further than its bytes go."""

from __future__ import annotations

import struct

import pytest
from kio.index import load_request_schema
from kio.serial import entity_reader

from seglog_rescue.serve import protocol
from seglog_rescue.serve.protocol import VERSIONS, HostileRequestError, read_request
from seglog_rescue.serve.request_walk import TooShortError, walk_of
from tests.support.raw_client import request_frame

EVERY_VERSION = [(key, version) for key, (least, most) in VERSIONS.items() for version in range(least, most + 1)]
TOPICS = [{"topic": "t", "name": "t", "partitions": [{"partition": 3}, {"partition": 4}]}]
GROUP = {"group_id": "g", "protocols": [{"name": "range", "metadata": b"x" * 200}, {"name": "s", "metadata": b""}]}
FILLED = {**GROUP, "topics": TOPICS, "rack_id": "r" * 200, "groups": ["a", "b"], "topic_names": ["t"]}


def frame_of(api_key: int, version: int) -> bytes:
    try:
        return request_frame(api_key, version, FILLED)
    except (TypeError, AttributeError):  # these fields mean something else there
        return request_frame(api_key, version, {})


@pytest.mark.parametrize(("api_key", "version"), EVERY_VERSION)
def test_it_ends_where_kio_ends_and_not_within_less(api_key: int, version: int) -> None:
    frame, kind = frame_of(api_key, version), load_request_schema(api_key, version)
    _, start = entity_reader(kind.__header_schema__)(frame, 0)
    assert walk_of(kind)(frame, start) == len(frame) == start + entity_reader(kind)(frame, start)[1]
    for end in range(start, len(frame)):
        with pytest.raises(TooShortError):
            walk_of(kind)(frame[:end], start)


@pytest.mark.parametrize(
    "length", [b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x7f", b"\xff" * 9 + b"\x01", b"\xff" * 30]
)
def test_a_compact_array_that_promises_more_than_there_is_reaches_no_decoder(length: bytes) -> None:
    """kio ends the process at these."""
    front = struct.pack(">hhih", protocol.METADATA, 12, 1, -1) + b"\0"
    with pytest.raises(HostileRequestError, match="TooShortError"):
        read_request(front + length + b"\0" * 20)
