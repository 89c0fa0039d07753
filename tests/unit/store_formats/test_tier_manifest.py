"""Manifests of Aiven's plugin: its own output, every field broken, and chunk sizes against a slow model."""

from __future__ import annotations

import base64
import copy
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seglog.errors import CorruptTierError
from seglog.format.checkpoint import EpochEntry
from seglog.model import TopicPartition
from seglog_stores.formats.tier_manifest import (
    Section,
    SegmentManifest,
    decode_chunk_sizes,
    parse_manifest,
)
from tests.support.tiers import encode_chunk_sizes
from tests.support.zstd import frame

# Written by the plugin, with Kafka 4.3's classes.
WRITTEN = (
    '{"version":"1","chunkIndex":{"type":"variable","originalChunkSize":400,"originalFileSize":1000,"transformedChunks"'
    ':"KLUv/SAPeQAAAAAAAwAAABgBAAAAAAAX"},"segmentIndexes":{"offset":{"position":0,"size":0},"timestamp":{"position":0,'
    '"size":12},"producerSnapshot":{"position":12,"size":10},"leaderEpoch":{"position":22,"size":10},"transaction":null'
    '},"compression":true,"remoteLogSegmentMetadata":{"remoteLogSegmentId":{"topicIdPartition":{"topicId":'
    '"AAECAwQFBgcICQoLDA0ODw","topicPartition":{"topic":"t","partition":3}},"id":"EBESExQVFhcYGRobHB0eHw"},'
    '"startOffset":100,"endOffset":199,"maxTimestampMs":1700000000000,"brokerId":1,"eventTimestampMs":1700000001000,'
    '"segmentLeaderEpochs":{"5":100},"txnIdxEmpty":true}}'
)


def parsed(document: Any) -> SegmentManifest:
    return parse_manifest(json.dumps(document).encode(), "m")


def changed(path: str, value: Any) -> Any:
    """The manifest with one field changed, or taken out where `value` is `...`."""
    document = copy.deepcopy(json.loads(WRITTEN))
    *way, last = path.split(".")
    place = document
    for name in way:
        place = place[name]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return document


def test_what_the_plugin_wrote_is_read() -> None:
    found = parse_manifest(WRITTEN.encode(), "m")
    assert [found.chunks.stored(i) for i in range(found.chunks.count)] == [(0, 24), (24, 24), (48, 23)]
    assert [found.chunks.original_bytes(i) for i in range(3)] == [400, 400, 200]
    assert (found.chunks.stored_bytes, found.compressed, found.encryption) == (71, True, None)
    assert (found.offsets, found.leader_epochs, found.transactions) == (Section(0, 0), Section(22, 10), None)
    segment = found.segment
    assert (segment.topic_partition, segment.topic_id) == (TopicPartition("t", 3), "AAECAwQFBgcICQoLDA0ODw")
    assert (segment.start_offset, segment.end_offset, segment.epochs) == (100, 199, (EpochEntry(5, 100),))


def test_a_fixed_index_multiplies() -> None:
    index = {"type": "fixed", "originalChunkSize": 400, "originalFileSize": 1000, "transformedChunkSize": 428}
    found = parsed(changed("chunkIndex", {**index, "finalTransformedChunkSize": 228}))
    assert [found.chunks.stored(i) for i in range(found.chunks.count)] == [(0, 428), (428, 428), (856, 228)]


def test_what_is_not_known_is_ignored_and_encryption_is_read() -> None:
    assert parsed(changed("later", {"x": [1]})).compressed
    sealed = {"dataKey": "key:1:" + base64.b64encode(b"k").decode(), "aad": base64.b64encode(b"a").decode()}
    with pytest.raises(CorruptTierError, match=r"m: the manifest's field encryption\.dataKey: it is not base64"):
        parsed(changed("encryption", sealed))
    found = parsed(changed("encryption", {**sealed, "dataKey": "key1:aw=="})).encryption
    assert found is not None and (found.key_id, found.data_key, found.aad) == ("key1", b"k", b"a")


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("version", "2", "'2' is not 1"),
        ("version", ..., "it is missing"),
        ("chunkIndex", None, "null is not an object"),
        ("chunkIndex.type", "rope", "'rope' is neither fixed nor variable"),
        ("chunkIndex.originalChunkSize", 0, "0 is not between 1 and 2147483647"),
        ("chunkIndex.originalFileSize", True, "true is not an integer"),
        ("chunkIndex.originalFileSize", 10**30, "is not between 0 and 2147483647"),
        ("chunkIndex.transformedChunks", "KLUv/SAPeQ==", "zstd"),
        ("chunkIndex.transformedChunks", "!", "it is not base64"),
        ("segmentIndexes.timestamp", ..., "it is missing"),
        ("segmentIndexes.timestamp.size", -1, "-1 is not between 0"),
        ("segmentIndexes.transaction", [], "[] is not an object"),
        ("compression", "yes", '"yes" is not true or false'),
        ("encryption", {"dataKey": "x", "aad": ""}, "it is not <key id>:<base64>"),
        ("remoteLogSegmentMetadata.startOffset", 1.5, "1.5 is not an integer"),
        ("remoteLogSegmentMetadata.endOffset", 99, "99 is below startOffset 100"),
        ("remoteLogSegmentMetadata.segmentLeaderEpochs", {}, "it names no epoch"),
        ("remoteLogSegmentMetadata.segmentLeaderEpochs", {"x": 1}, "it is not a leader epoch"),
        ("remoteLogSegmentMetadata.segmentLeaderEpochs", {"1": 5, "2": 5}, "offsets do not ascend"),
        ("remoteLogSegmentMetadata.remoteLogSegmentId.id", "short", "is not a UUID"),
        ("remoteLogSegmentMetadata.remoteLogSegmentId.topicIdPartition.topicPartition.topic", "..", "cannot be named"),
    ],
)
def test_every_broken_field_is_named(path: str, value: Any, reason: str) -> None:
    with pytest.raises(CorruptTierError) as error:
        parsed(changed(path, value))
    assert str(error.value).startswith(f"m: the manifest's field {path}")
    assert reason in str(error.value)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b"1" * 10_000])
def test_what_is_no_manifest_is_said_to_be_none(data: bytes) -> None:
    with pytest.raises(CorruptTierError, match=r"is not (JSON|a JSON object)"):
        parse_manifest(data, "m")


def test_a_chunk_index_must_fit_the_size_of_the_log() -> None:
    with pytest.raises(CorruptTierError, match="transformedChunks: sizes of 3 chunks, where 10 bytes make 1"):
        parsed(changed("chunkIndex.originalFileSize", 10))


def test_a_chunk_index_that_expands_without_end_is_refused() -> None:
    bomb = base64.b64encode(frame(bytes(1 << 26))).decode()
    with pytest.raises(CorruptTierError, match="transformedChunks"):
        parsed(changed("chunkIndex.transformedChunks", bomb))
    fixed = {"type": "fixed", "originalChunkSize": 1, "originalFileSize": 2**31 - 1, "transformedChunkSize": 1}
    with pytest.raises(CorruptTierError, match="originalChunkSize: 1 makes 2147483647 chunks"):
        parsed(changed("chunkIndex", {**fixed, "finalTransformedChunkSize": 1}))


def slowly(data: bytes) -> list[int]:
    """Chunk sizes as the plugin's class reads them, a byte at a time."""
    count = int.from_bytes(data[:4], "big")
    if count <= 1:
        return [int.from_bytes(data[4 + 4 * i : 8 + 4 * i], "big") for i in range(count)]
    base, width = int.from_bytes(data[4:8], "big"), data[8]
    most = [base + int.from_bytes(data[9 + i * width : 9 + (i + 1) * width], "big") for i in range(count - 1)]
    return [*most, int.from_bytes(data[-4:], "big")]


@settings(max_examples=40)
@given(st.lists(st.integers(0, 2**31 - 1), max_size=50) | st.lists(st.integers(1000, 1300), max_size=50))
def test_chunk_sizes_go_both_ways_as_in_a_slow_model(sizes: list[int]) -> None:
    data = encode_chunk_sizes(sizes)
    assert decode_chunk_sizes(data).tolist() == slowly(data) == sizes


@settings(max_examples=40)
@given(st.binary(max_size=40))
def test_any_bytes_are_chunk_sizes_or_an_error(data: bytes) -> None:
    try:
        found = decode_chunk_sizes(data)
    except ValueError:
        return
    assert found.dtype == np.int64 and found.tolist() == slowly(data)
