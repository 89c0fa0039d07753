"""Any log, any order of rounds, any buffer: what survives is what the slow reference says."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from seglog.cleaner.round import Strategy
from seglog.model import NO_SEQUENCE, Compression, Header, Record
from tests.support.cleaning import append, clean, compacted_log, contents
from tests.support.open_logs import START_MS
from tests.support.reference_cleaner import survivors

versions = st.none() | st.integers(-3, 3).map(lambda n: n.to_bytes(8, "big", signed=True)) | st.just(b"bad")
records = st.builds(
    Record,
    value=st.none() | st.binary(max_size=20),
    key=st.binary(max_size=2),
    timestamp=st.integers(START_MS, START_MS + 5),
    headers=st.lists(st.builds(Header, st.sampled_from(["v", "w"]), versions), max_size=3).map(tuple),
    offset=st.none(),
    sequence=st.just(NO_SEQUENCE),
)
rounds = st.lists(
    st.tuples(st.lists(records, max_size=25), st.integers(1, 8), st.sampled_from(list(Compression))),
    min_size=1,
    max_size=3,
)


@given(
    batches=rounds,
    strategy=st.sampled_from(["offset", "timestamp", "header:v"]),
    buffer_bytes=st.sampled_from([24 * 3, 24 * 10, 1 << 20]),
    chunk_bytes=st.sampled_from([64, 300, 1 << 20]),
    mask=st.sampled_from([0, 3, -1]),
)
@settings(max_examples=60)
def test_survivors_are_those_of_the_reference(
    batches: list[tuple[list[Record], int, Compression]],
    strategy: str,
    buffer_bytes: int,
    chunk_bytes: int,
    mask: int,
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        log = compacted_log(Path(directory), segment_bytes=600)
        checkpoint = 0
        for found, batch_records, codec in batches:
            append(log, found, batch_records, codec)
            expected = survivors(list(log.records()), strategy, checkpoint)
            result = clean(
                log,
                roll=True,
                checkpoint=checkpoint,
                strategy=Strategy.parse(strategy),
                dedupe_buffer_bytes=buffer_bytes,
                chunk_bytes=chunk_bytes,
                hash_mask=mask,
            )
            checkpoint = result.end_offset
            assert contents(log) == expected
            assert result.stats.records_written == len(expected)
