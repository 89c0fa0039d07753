"""Sending fetched bytes: whole, in parts, by sendfile and by copying, one partition and several."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from seglog.errors import IncompleteError
from seglog.storage.filesystem import File
from seglog.storage.local import LocalFileSystem
from seglog_rescue.serve.transfer import ERROR_OFFSET_OUT_OF_RANGE, MessageSetSend, MultiMessageSetSend

CONTENT = bytes(i * 7 % 251 for i in range(700_000))


@dataclass(frozen=True)
class Range:
    file: File | None
    position: int
    size: int


@pytest.fixture
def file(tmp_path: Path) -> Iterator[File]:
    (tmp_path / "a.log").write_bytes(CONTENT)
    with LocalFileSystem().open(tmp_path / "a.log", "r") as opened:
        yield opened


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    left, right = socket.socketpair()
    with left, right:
        left.setblocking(False)
        right.setblocking(False)
        yield left, right


def transfer(send: MessageSetSend | MultiMessageSetSend, pair: tuple[socket.socket, socket.socket]) -> bytes:
    """Writes and reads by turns until the send is complete; every call must add up."""
    received, written, idle = bytearray(), 0, 0
    while not send.complete or len(received) < send.size:
        count = send.write_to(pair[0])
        written += count
        idle = 0 if count else idle + 1
        assert idle < 10
        try:
            while True:
                received += pair[1].recv(1 << 16)
                idle = 0
        except BlockingIOError:
            pass
    assert written == send.size
    return bytes(received)


@pytest.mark.parametrize("use_sendfile", [True, False])
def test_partial_writes_add_up_to_header_and_bytes(
    file: File, pair: tuple[socket.socket, socket.socket], use_sendfile: bool
) -> None:
    send = MessageSetSend(Range(file, 1000, 650_000), use_sendfile=use_sendfile)
    assert send.write_to(pair[0]) < send.size  # the socket's buffer is smaller
    assert not send.complete
    send = MessageSetSend(Range(file, 1000, 650_000), use_sendfile=use_sendfile)
    while True:
        try:
            pair[1].recv(1 << 20)
        except BlockingIOError:
            break
    got = transfer(send, pair)
    assert got == struct.pack(">ih", 650_002, 0) + CONTENT[1000:651_000]
    assert send.write_to(pair[0]) == 0


def test_an_error_is_a_code_without_bytes(file: File, pair: tuple[socket.socket, socket.socket]) -> None:
    send = MessageSetSend(Range(file, 0, 100), ERROR_OFFSET_OUT_OF_RANGE)
    assert transfer(send, pair) == struct.pack(">ih", 2, 1)
    assert transfer(MessageSetSend(None), pair) == struct.pack(">ih", 2, 0)


def test_several_partitions_share_one_size(file: File, pair: tuple[socket.socket, socket.socket]) -> None:
    parts = [
        MessageSetSend(Range(file, 0, 300_000)),
        MessageSetSend(None, 2),
        MessageSetSend(Range(file, 5, 300_000)),
    ]
    send = MultiMessageSetSend(parts)
    got = transfer(send, pair)
    assert got[:4] == struct.pack(">i", len(got) - 4)
    first = struct.pack(">ih", 300_002, 0) + CONTENT[:300_000]
    assert got[4:] == first + struct.pack(">ih", 2, 2) + struct.pack(">ih", 300_002, 0) + CONTENT[5:300_005]


@pytest.mark.parametrize("use_sendfile", [True, False])
def test_bytes_that_vanished_are_reported(
    file: File, pair: tuple[socket.socket, socket.socket], use_sendfile: bool
) -> None:
    send = MessageSetSend(Range(file, 699_990, 100), use_sendfile=use_sendfile)
    with pytest.raises(IncompleteError, match="gone"):
        send.write_to(pair[0])
    assert not send.complete
