"""The answer to a fetch as kio writes it, for every version."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglog.storage.local import LocalFileSystem
from seglog_rescue.serve import protocol
from seglog_rescue.serve.fetch_answers import write_fetch_answer
from seglog_rescue.serve.protocol import VERSIONS, Answer, ErrorCode, Request, Values, write_answer
from seglog_rescue.serve.spans import FileSpan

OFFSETS = st.integers(-1, (1 << 63) - 1)
NUMBERS = st.integers(0, (1 << 31) - 1)
ABORTED = st.lists(st.fixed_dictionaries({"producer_id": OFFSETS, "first_offset": OFFSETS}), max_size=200)
PARTITIONS = st.fixed_dictionaries(
    {
        "partition_index": NUMBERS,
        "error_code": st.sampled_from(list(ErrorCode)),
        "high_watermark": OFFSETS,
        "last_stable_offset": OFFSETS,
        "log_start_offset": OFFSETS,
        "aborted_transactions": st.none() | ABORTED,
        "preferred_read_replica": st.integers(-1, 10),
        "records": st.binary(max_size=300),
    }
)
TOPICS = st.fixed_dictionaries(
    {"topic": st.text("aé.-_0", min_size=1, max_size=249), "partitions": st.lists(PARTITIONS, max_size=3)}
)
ANSWERS = st.fixed_dictionaries(
    {
        "error_code": st.sampled_from(list(ErrorCode)),
        "session_id": NUMBERS,
        "responses": st.lists(TOPICS, max_size=3) | st.just(()),
    }
)


def bytes_of(answer: Answer) -> bytes:
    return b"".join(bytes(part) for part in answer.parts if not isinstance(part, FileSpan))


@given(st.integers(*VERSIONS[protocol.FETCH]), NUMBERS, ANSWERS)
def test_it_is_the_answer_that_kio_writes(version: int, number: int, values: Values) -> None:
    request = Request(protocol.FETCH, version, number, None, object())
    ours, kios = write_fetch_answer(request, values), write_answer(request, values)
    assert bytes_of(ours) == bytes_of(kios)
    assert ours.size == kios.size == len(bytes_of(ours)) - 4


@pytest.mark.parametrize("version", range(VERSIONS[protocol.FETCH][0], VERSIONS[protocol.FETCH][1] + 1))
def test_a_span_stays_a_span_with_its_length_before_it(tmp_path: Path, version: int) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(bytes(1000))
    request = Request(protocol.FETCH, version, 1, None, object())
    partition = {"partition_index": 0, "error_code": 0, "high_watermark": 9, "last_stable_offset": 9}
    partition |= {"log_start_offset": 0, "aborted_transactions": None, "preferred_read_replica": -1}
    with LocalFileSystem().open(path, "r") as file:
        topics = [{"topic": "t", "partitions": [{**partition, "records": FileSpan(file, 100, 777)}]}]
        values = {"error_code": 0, "session_id": 0, "responses": topics}
        answer = write_fetch_answer(request, values)
        assert [part for part in answer.parts if isinstance(part, FileSpan)] == [FileSpan(file, 100, 777)]
    whole = bytes_of(write_fetch_answer(request, {**values, "responses": [filled(topics[0])]}))
    front, end = (bytes(part) for part in answer.parts if not isinstance(part, FileSpan))
    assert front + b"r" * 777 + end == whole


def filled(topic: Values) -> Values:
    """The same with bytes in place of spans."""
    partitions = [{**partition, "records": b"r" * len(partition["records"])} for partition in topic["partitions"]]
    return {**topic, "partitions": partitions}
