"""Writes the answer to a fetch, the one answer whose rate counts, without kio's entities (FetchResponse.json, 4 to 12).

A consumer gets an answer for each megabyte; entities and their writers would take as long as reading and checking it.
The other answers are written by `protocol.write_answer`, and a test compares both for every version.
"""

from __future__ import annotations

import struct
from typing import Any

from seglog.serve.protocol import Answer, Request, Values

_FLEXIBLE = 12  # KIP-482: lengths plus one as varints, and tagged fields, of which none is set
_NO_TAGS = b"\0"
_CORRELATION = struct.Struct(">i")
_THROTTLE = struct.Struct(">i")
_SESSION = struct.Struct(">hi")  # error code, session id: version 7
_PARTITION = struct.Struct(">ihqq")  # index, error code, high watermark, last stable offset
_LOG_START = struct.Struct(">q")  # version 5
_REPLICA = struct.Struct(">i")  # version 11
_ABORTED = struct.Struct(">qq")  # producer id, first offset
_COUNT = struct.Struct(">i")
_LENGTH = struct.Struct(">h")


def write_fetch_answer(request: Request, values: Values) -> Answer:
    """Returns the answer to a fetch, as `write_answer` does for the same values; no answer throttles a client."""
    version = request.version
    flexible = version >= _FLEXIBLE
    answer = Answer()
    head = _CORRELATION.pack(request.correlation_id) + (_NO_TAGS if flexible else b"") + _THROTTLE.pack(0)
    if version >= 7:
        head += _SESSION.pack(values["error_code"], values["session_id"])
    topics = values["responses"]
    answer.write(head + _count(len(topics), flexible))
    for topic in topics:
        answer.write(_name(topic["topic"], flexible) + _count(len(topic["partitions"]), flexible))
        for partition in topic["partitions"]:
            records = partition["records"]
            answer.write(_front(partition, version) + _count(len(records), flexible))
            answer.write(records)
            if flexible:
                answer.write(_NO_TAGS)
        if flexible:
            answer.write(_NO_TAGS)
    if flexible:
        answer.write(_NO_TAGS)
    answer.finish()
    return answer


def _front(partition: Values, version: int) -> bytes:
    """A partition's fields before its records."""
    front = _PARTITION.pack(
        partition["partition_index"],
        partition["error_code"],
        partition["high_watermark"],
        partition["last_stable_offset"],
    )
    if version >= 5:
        front += _LOG_START.pack(partition["log_start_offset"])
    front += _aborted(partition["aborted_transactions"], version >= _FLEXIBLE)
    return front + (_REPLICA.pack(partition["preferred_read_replica"]) if version >= 11 else b"")


def _aborted(transactions: Any, flexible: bool) -> bytes:
    if transactions is None:
        return _count(-1, flexible)
    end = _NO_TAGS if flexible else b""
    pairs = (_ABORTED.pack(each["producer_id"], each["first_offset"]) + end for each in transactions)
    return _count(len(transactions), flexible) + b"".join(pairs)


def _name(text: str, flexible: bool) -> bytes:
    encoded = text.encode()
    return (_varint(len(encoded) + 1) if flexible else _LENGTH.pack(len(encoded))) + encoded


def _count(count: int, flexible: bool) -> bytes:
    """The length of an array or of bytes; -1 for a null."""
    return _varint(count + 1) if flexible else _COUNT.pack(count)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
