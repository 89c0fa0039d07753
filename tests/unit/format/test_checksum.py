"""Both checksums against their published check values and Kafka's batches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglog.format.checksum import crc32, crc32c

CHECK = b"123456789"


def test_check_values_are_the_published_ones() -> None:
    assert crc32c(CHECK) == 0xE3069283
    assert crc32(CHECK) == 0xCBF43926


def test_empty_data_sums_to_zero() -> None:
    assert crc32c(b"") == crc32(b"") == 0


def test_a_batch_kafka_wrote_sums_to_its_own_crc_field() -> None:
    batch = bytes.fromhex(
        "000000000000006400000045ffffffff02b0db168e00000000000100000000000003e800000000000003edffffffffffffffff"
        "ffffffffffff0000000214000000046b310476310010000a02046b320100"
    )
    assert crc32c(memoryview(batch)[21:]) == int.from_bytes(batch[17:21], "big")


def test_a_message_kafka_wrote_sums_to_its_own_crc_field() -> None:
    message = bytes.fromhex("b1a6ec76010000000000000003e8000000026b31000000027631")
    assert crc32(message[4:]) == int.from_bytes(message[:4], "big")


@pytest.mark.parametrize("function", [crc32, crc32c])
@given(first=st.binary(), second=st.binary())
def test_continuing_equals_summing_at_once(function: object, first: bytes, second: bytes) -> None:
    assert callable(function)
    assert function(second, function(first)) == function(first + second)
    array = np.frombuffer(bytearray(first + second), dtype=np.uint8)
    assert function(array) == function(first + second)
