"""Walking entries and finding the next one: claims about framing, damage and bounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seglog import layout
from seglog.kernels import batches as kernels
from seglog.kernels import validate
from tests.support.interpreted import both, interpreted
from tests.support.naive import NaiveRecord, batch_v2, message

RECORDS = [NaiveRecord(0, 0, b"k", b"v"), NaiveRecord(3, 5, None, b"")]
BATCH = batch_v2(100, RECORDS, producer=(7, 3, 5), leader_epoch=9, attributes=0x10)
WALKS = both(kernels, "walk_batches")


def array(data: bytes) -> np.ndarray:
    return np.frombuffer(data, dtype=np.uint8)


@pytest.mark.parametrize("walk", WALKS)
def test_a_row_holds_every_header_field(walk) -> None:
    rows = np.zeros(4, dtype=layout.BATCH)
    assert walk(array(BATCH), 0, len(BATCH), 5000, rows) == (1, len(BATCH), kernels.WALK_COMPLETE)
    row = {name: rows[0][name].item() for name in layout.BATCH.names}
    crc = int.from_bytes(BATCH[17:21], "big")
    assert row == {
        "position": 5000,
        "base_offset": 100,
        "last_offset": 103,
        "base_timestamp": 1000,
        "max_timestamp": 1005,
        "producer_id": 7,
        "crc": crc,
        "size": len(BATCH),
        "count": 2,
        "leader_epoch": 9,
        "base_sequence": 5,
        "producer_epoch": 3,
        "attributes": 0x10,
        "magic": 2,
    }


@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize("magic", [0, 1])
def test_messages_become_rows(walk, magic: int) -> None:
    data = message(41, magic, b"k", b"v", timestamp=77)
    rows = np.zeros(4, dtype=layout.BATCH)
    assert walk(array(data), 0, len(data), 10, rows)[0] == 1
    row = rows[0]
    assert (row["base_offset"], row["last_offset"], row["magic"], row["count"]) == (41, 41, magic, -1)
    assert row["max_timestamp"] == (77 if magic else -1)


@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize(
    ("tail", "status"),
    [
        (b"", kernels.WALK_COMPLETE),
        (b"\x00" * 17, kernels.WALK_PARTIAL),
        (BATCH[:-1], kernels.WALK_PARTIAL),
        (b"\x00" * 18, kernels.WALK_BAD_SIZE),
        (b"\x00" * 8 + b"\xff\xff\xff\xff" + b"\x00" * 20, kernels.WALK_BAD_SIZE),
        (b"\x00" * 11 + b"\x30" + b"\x00" * 4 + b"\x02" + b"\x00" * 60, kernels.WALK_BAD_HEADER),
    ],
    ids=["nothing", "17 bytes", "torn batch", "zeroes", "negative size", "short v2"],
)
def test_a_walk_stops_after_the_last_whole_batch(walk, tail: bytes, status: int) -> None:
    rows = np.zeros(4, dtype=layout.BATCH)
    data = array(BATCH + tail)
    assert walk(data, 0, len(data), 0, rows) == (1, len(BATCH), status)


@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize("entry", [BATCH, message(0, 1, b"k", b"v")], ids=["batch of 4 offsets", "message"])
def test_the_offset_after_a_batch_is_an_offset_too(walk, entry: bytes) -> None:
    rows = np.zeros(4, dtype=layout.BATCH)
    most = layout.INT64_MAX - (4 if entry is BATCH else 1)
    for base, found in ((most, (1, len(entry), kernels.WALK_COMPLETE)), (most + 1, (0, 0, kernels.WALK_BAD_HEADER))):
        data = array(base.to_bytes(8, "big") + entry[8:])
        assert walk(data, 0, len(data), 0, rows) == found
    assert rows[0]["last_offset"] == layout.INT64_MAX - 1


def test_a_walk_stops_when_the_table_is_full() -> None:
    rows = np.zeros(2, dtype=layout.BATCH)
    data = array(BATCH * 3)
    assert kernels.walk_batches(data, 0, len(data), 0, rows) == (2, 2 * len(BATCH), kernels.WALK_FULL)


@given(st.binary(max_size=200), st.integers(0, 200))
@settings(max_examples=200)
def test_any_bytes_walk_alike_compiled_and_interpreted(data: bytes, cut: int) -> None:
    buffer = array((BATCH * 2)[:cut] + data)
    one, two = np.zeros(8, dtype=layout.BATCH), np.zeros(8, dtype=layout.BATCH)
    result = kernels.walk_batches(buffer, 0, len(buffer), 3, one)
    with np.errstate(over="ignore"):
        assert interpreted("batches").walk_batches(buffer, 0, len(buffer), 3, two) == result
        assert (one == two).all()
        found = validate.find_entry(buffer, 0, len(buffer), 0, 0, 1000)
        assert interpreted("validate").find_entry(buffer, 0, len(buffer), 0, 0, 1000) == found


@pytest.mark.parametrize("zeros", range(40))
def test_no_number_of_zeros_hides_the_next_entry(zeros: int) -> None:
    for entry in (batch_v2(0, RECORDS), message(0, 0, None, b"")):
        data = array(b"\x01" * 3 + bytes(zeros) + entry)
        found = validate.find_entry(data, 0, len(data), 0, 0, 200)
        assert found == interpreted("validate").find_entry(data, 0, len(data), 0, 0, 200)
        assert found == 3 + zeros


@pytest.mark.parametrize("damage", [b"", b"\x00" * 4096, bytes(range(256)) * 4], ids=["none", "zeroes", "pattern"])
@pytest.mark.parametrize("entry", [BATCH, message(100, 0, b"k", b"v"), message(100, 1, None, b"v" * 40)])
def test_the_next_entry_after_damage_is_found(damage: bytes, entry: bytes) -> None:
    data = array(damage + entry)
    assert validate.find_entry(data, 0, len(data), 0, 50, 200) == len(damage)
    assert validate.find_entry(data, len(damage) + 1, len(data), 0, 50, 200) == -1
    assert validate.find_entry(data, 0, len(data), 0, 101, 200) == -1
