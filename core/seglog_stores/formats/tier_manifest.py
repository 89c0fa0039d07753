"""Parses the JSON manifest that Aiven's plugin writes beside a segment in tiered storage, and its chunk index.

Aiven: SegmentManifestV1, SegmentIndexesV1, FixedSizeChunkIndex, VariableSizeChunkIndex, ChunkSizesBinaryCodec.

A segment is stored in chunks: chunk i holds the bytes from `i * originalChunkSize` on, and is compressed and encrypted
by itself. The manifest states the stored size of each. Unknown fields are ignored; a missing or wrong one raises a
`CorruptTierError` that names the file and the field.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from seglog.format.checkpoint import EpochEntry
from seglog.format.compression import decompress_into
from seglog.format.filenames import topic_name_problem
from seglog.format.message_tables import messages
from seglog.format.payloads import DecompressionError
from seglog.format.wire import WireError, decode_message
from seglog.layout import INT32_MAX, INT64_MAX
from seglog.model import Compression, TopicPartition
from seglog_stores.formats.manifest_fields import JsonFields, json_fields

MANIFEST_BYTES_LIMIT = 64 << 20
_INDEX_BYTES_LIMIT = 64 << 20  # 16 million chunks, as many as 2 GiB have with chunks of 128 bytes
_SECTIONS = ("offset", "timestamp", "producerSnapshot", "leaderEpoch")
_WIDTHS = (1, 2, 3, 4)

# The contents of `customMetadata` by Aiven's plugin.
_CUSTOM = """
0 fields 0 0 objectPrefix:string#1=null objectKey:string#2=null
"""


@dataclass(frozen=True, slots=True)
class RemoteSegment:
    """A segment in tiered storage, as described by its leader (Kafka: RemoteLogSegmentMetadata).

    `end_offset` is inclusive; `epochs` ascend, and the first one begins at `start_offset`.
    """

    topic_partition: TopicPartition
    topic_id: str
    segment_id: str
    start_offset: int
    end_offset: int
    max_timestamp_ms: int
    broker_id: int
    event_timestamp_ms: int
    epochs: tuple[EpochEntry, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ChunkIndex:
    """The places of the chunks of a stored log. `ends` (int64, ascending) are the positions after each stored chunk."""

    chunk_bytes: int
    file_bytes: int
    ends: npt.NDArray[np.int64]

    @property
    def count(self) -> int:
        """The number of chunks."""
        return len(self.ends)

    @property
    def stored_bytes(self) -> int:
        """The size of the object that holds the chunks."""
        return int(self.ends[-1]) if len(self.ends) else 0

    def stored(self, chunk: int) -> tuple[int, int]:
        """Returns position and size of a stored chunk."""
        start = int(self.ends[chunk - 1]) if chunk else 0
        return start, int(self.ends[chunk]) - start

    def original_bytes(self, chunk: int) -> int:
        """Returns the size of a chunk's part of the log."""
        return min(self.chunk_bytes, self.file_bytes - chunk * self.chunk_bytes)


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the `.indexes` object: stored position and size."""

    position: int
    size: int


@dataclass(frozen=True, slots=True)
class Encryption:
    """The encryption of chunks and indexes: the data key, encrypted with the key pair `key_id`, and the AAD."""

    key_id: str
    data_key: bytes
    aad: bytes


@dataclass(frozen=True, slots=True)
class SegmentManifest:
    """A manifest. `transactions` is None if the segment has no transaction index."""

    chunks: ChunkIndex
    offsets: Section
    timestamps: Section
    producers: Section
    leader_epochs: Section
    transactions: Section | None
    compressed: bool
    encryption: Encryption | None
    segment: RemoteSegment


def parse_manifest(data: bytes, path: Path | str) -> SegmentManifest:
    """Parses a manifest; `path` is used only in messages. Raises `CorruptTierError`."""
    root = json_fields(data, path)
    version = root.text("version")
    if version != "1":
        raise root.wrong("version", f"{version[:40]!r} is not 1")
    indexes = root.fields("segmentIndexes")
    offsets, timestamps, producers, leader_epochs = (_section(indexes.fields(name)) for name in _SECTIONS)
    return SegmentManifest(
        _chunk_index(root.fields("chunkIndex")),
        offsets,
        timestamps,
        producers,
        leader_epochs,
        None if indexes.is_null("transaction") else _section(indexes.fields("transaction")),
        root.boolean("compression"),
        None if root.is_null("encryption") else _encryption(root.fields("encryption")),
        _segment(root.fields("remoteLogSegmentMetadata")),
    )


def _section(fields: JsonFields) -> Section:
    return Section(fields.integer("position", most=INT32_MAX), fields.integer("size", most=INT32_MAX))


def _encryption(fields: JsonFields) -> Encryption:
    key_id, colon, text = fields.text("dataKey").partition(":")
    if not colon or not key_id:
        raise fields.wrong("dataKey", "it is not <key id>:<base64>")
    return Encryption(key_id, fields.decoded("dataKey", text), fields.decoded("aad"))


def _segment(fields: JsonFields) -> RemoteSegment:
    segment_id = fields.fields("remoteLogSegmentId")
    partition_id = segment_id.fields("topicIdPartition")
    partition = partition_id.fields("topicPartition")
    topic = partition.text("topic")
    problem = topic_name_problem(topic)
    if problem is not None:
        raise partition.wrong("topic", problem)
    start = fields.integer("startOffset")
    end = fields.integer("endOffset")
    if end < start:
        raise fields.wrong("endOffset", f"{end} is below startOffset {start}")
    return RemoteSegment(
        TopicPartition(topic, partition.integer("partition", most=INT32_MAX)),
        partition_id.uuid("topicId"),
        segment_id.uuid("id"),
        start,
        end,
        fields.integer("maxTimestampMs", least=-INT64_MAX),
        fields.integer("brokerId", least=-1, most=INT32_MAX),
        fields.integer("eventTimestampMs", least=-INT64_MAX),
        _leader_epochs(fields),
    )


def _leader_epochs(fields: JsonFields) -> tuple[EpochEntry, ...]:
    epochs = fields.fields("segmentLeaderEpochs")
    found = []
    for name in epochs.names():
        if not (name.isascii() and name.isdigit() and len(name) <= 10 and int(name) <= INT32_MAX):
            raise epochs.wrong(name[:40], "it is not a leader epoch")
        found.append(EpochEntry(int(name), epochs.integer(name)))
    if not found:
        raise fields.wrong("segmentLeaderEpochs", "it names no epoch")
    found.sort()
    if any(a.start_offset >= b.start_offset for a, b in itertools.pairwise(found)):
        raise fields.wrong("segmentLeaderEpochs", "offsets do not ascend with epochs")
    return tuple(found)


# --- chunks -----------------------------------------------------------------------------------------------


def _chunk_index(fields: JsonFields) -> ChunkIndex:
    kind = fields.text("type")
    chunk = fields.integer("originalChunkSize", least=1, most=INT32_MAX)
    size = fields.integer("originalFileSize", most=INT32_MAX)
    count = -(-size // chunk)
    if kind == "fixed":
        stored = fields.integer("transformedChunkSize", most=INT32_MAX)
        last = fields.integer("finalTransformedChunkSize", most=INT32_MAX)
        if count * 8 > _INDEX_BYTES_LIMIT:
            raise fields.wrong("originalChunkSize", f"{chunk} makes {count} chunks of {size} bytes")
        ends = np.arange(1, count + 1, dtype=np.int64) * stored
        ends[-1:] += last - stored
        return ChunkIndex(chunk, size, ends)
    if kind != "variable":
        raise fields.wrong("type", f"{kind[:40]!r} is neither fixed nor variable")
    try:
        sizes = decode_chunk_sizes(_inflated(fields.decoded("transformedChunks"), count))
    except (ValueError, DecompressionError) as error:
        raise fields.wrong("transformedChunks", str(error)) from error
    if len(sizes) != count:
        raise fields.wrong("transformedChunks", f"sizes of {len(sizes)} chunks, where {size} bytes make {count}")
    return ChunkIndex(chunk, size, np.cumsum(sizes, dtype=np.int64))


def _inflated(data: bytes, count: int) -> bytes:
    room = np.zeros(min(4 * count + 16, _INDEX_BYTES_LIMIT), dtype=np.uint8)
    return room[: decompress_into(Compression.ZSTD, data, room)].tobytes()


def decode_chunk_sizes(data: bytes) -> npt.NDArray[np.int64]:
    """Returns the sizes of stored chunks (Aiven: ChunkSizesBinaryCodec). Raises ValueError for malformed data.

    No chunk is `i32 0`, one chunk `i32 1, i32 size`. More are `i32 n, i32 base, i8 width`, n - 1 sizes less the base,
    of `width` bytes each, and the last size as i32.
    """
    count = int.from_bytes(data[:4], "big", signed=True)
    if len(data) < 4 or count < 0:
        raise ValueError("the number of chunks is missing")
    if count <= 1:
        if len(data) != 4 + 4 * count:
            raise ValueError(f"{len(data)} bytes do not hold the sizes of {count} chunks")
        sizes = np.frombuffer(data, dtype=">i4", offset=4).astype(np.int64)
    else:
        base, width = int.from_bytes(data[4:8], "big", signed=True), data[8] if len(data) > 8 else 0
        if width not in _WIDTHS or len(data) != 13 + (count - 1) * width:
            raise ValueError(f"{len(data)} bytes do not hold the sizes of {count} chunks")
        wide = np.zeros((count - 1, 4), dtype=np.uint8)
        packed = np.frombuffer(data, dtype=np.uint8, count=(count - 1) * width, offset=9)
        wide[:, 4 - width :] = packed.reshape(-1, width)
        sizes = np.zeros(count, dtype=np.int64)
        sizes[:-1] = wide.view(">u4").ravel() + np.int64(base)
        sizes[-1] = int.from_bytes(data[-4:], "big", signed=True)
    if len(sizes) and (sizes.min() < 0 or sizes.max() > INT32_MAX):
        raise ValueError("a chunk has a negative or too large size")
    return sizes


@dataclass(frozen=True, slots=True)
class CustomMetadata:
    """Overrides of the keys of a segment's log and indexes; None means that the plugin's configuration applies."""

    prefix: str | None = None
    key: str | None = None


def parse_custom_metadata(data: bytes) -> CustomMetadata:
    """Returns the fields of the custom metadata that Kafka stores with each segment for Aiven's plugin.

    Aiven: SegmentCustomMetadataSerde, SegmentCustomMetadataField (`custom.metadata.fields.include`). It has only tagged
    fields: 0 is the number of stored bytes (ignored here), 1 the prefix, 2 the key without prefix and suffix. Raises
    `WireError`, also if prefix and key cannot name an object.
    """
    fields = decode_message(messages(_CUSTOM)[0, "fields"], data, 0)
    found = CustomMetadata(fields.get("objectPrefix"), fields.get("objectKey"))
    named = (found.prefix or "") + ("KEY" if found.key is None else found.key)
    if "\0" in named or any(part in ("", ".", "..") for part in named.split("/")):
        raise WireError(f"prefix {found.prefix!r} and key {found.key!r} name no object")
    return found
