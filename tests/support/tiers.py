"""Tiers made of a partition's genuine files, laid out as the plugins of tiered storage lay them out.

A partition directory (a broker's) is cut into its segments as `RemoteLogManager` copies them: log, indexes, the
producer snapshot of the offset after the segment, and the leader epochs up to there. `TierSegmentFiles` are the bytes
of one; `write_local_tiered`, `write_aiven` and `write_pinterest` put them where LocalTieredStorage, Aiven's plugin
(fixed or variable chunk index, zstd, AES-256-GCM) and Pinterest's uploader would.
"""

from __future__ import annotations

import base64
import json
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha3_512
from pathlib import Path
from typing import Any
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from seglog.format.checkpoint import EpochEntry, format_leader_epochs, parse_leader_epochs
from seglog.format.uuids import format_uuid, parse_uuid
from seglog.scan.listing import list_partition
from seglog.storage.local import LocalFileSystem
from tests.support.zstd import zstd

TOPIC_ID = "AAECAwQFBgcICQoLDA0ODw"
KEY_ID, DATA_KEY, AAD = "key1", bytes(range(32)), bytes(range(32, 64))


@dataclass(frozen=True)
class TierSegmentFiles:
    """One segment as a plugin gets it; offsets are inclusive, a missing transaction index is None."""

    start: int
    end: int
    log: bytes
    index: bytes
    timeindex: bytes
    snapshot: bytes
    epochs: tuple[EpochEntry, ...]
    txnindex: bytes | None
    segment_id: str

    @property
    def own_epochs(self) -> dict[int, int]:
        """Epoch → offset, clipped to the segment (Kafka: RemoteLogManager, segmentLeaderEpochs)."""
        before = [entry for entry in self.epochs if entry.start_offset <= self.start]
        first = {before[-1].epoch: self.start} if before else {}
        return first | {e.epoch: e.start_offset for e in self.epochs if self.start < e.start_offset <= self.end}


def segment_id(number: int) -> str:
    """The id of a test's segment."""
    return format_uuid(UUID(int=0x10111213 << 96 | number))


def tier_segments(partition: Path, *, active: bool = False) -> list[TierSegmentFiles]:
    """The closed segments of a partition directory, and with `active` its last one, too."""
    listing = list_partition(LocalFileSystem(), partition)
    snapshots = {found.offset: found.path.read_bytes() for found in listing.snapshots}
    epochs = parse_leader_epochs((partition / "leader-epoch-checkpoint").read_bytes(), "")
    bases = [found.base_offset for found in listing.segments] + [max(snapshots, default=0)]
    made = []
    for i, found in enumerate(listing.segments if active else listing.segments[:-1]):
        end = bases[i + 1] - 1
        made.append(
            TierSegmentFiles(
                found.base_offset,
                end,
                found.log.read_bytes(),
                found.offset_index.read_bytes() if found.offset_index else b"",
                found.time_index.read_bytes() if found.time_index else b"",
                snapshots[end + 1],
                tuple(entry for entry in epochs if entry.start_offset <= end),
                found.transaction_index.read_bytes() if found.transaction_index else None,
                segment_id(i),
            )
        )
    return made


def write_local_tiered(
    root: Path, topic: str, partition: int, segments: Sequence[TierSegmentFiles], topic_id: str = TOPIC_ID
) -> Path:
    """LocalTieredStorage's directory of the partition, below `root/kafka-tiered-storage`."""
    directory = root / "kafka-tiered-storage" / f"{topic}-{partition}-{topic_id}"
    directory.mkdir(parents=True, exist_ok=True)
    for one in segments:
        stem = f"{one.start:020d}-{one.segment_id}"
        parts = {".log": one.log, ".index": one.index, ".timeindex": one.timeindex, ".snapshot": one.snapshot}
        parts[".leader_epoch_checkpoint"] = format_leader_epochs(one.epochs)
        if one.txnindex is not None:
            parts[".txnindex"] = one.txnindex
        for suffix, data in parts.items():
            (directory / (stem + suffix)).write_bytes(data)
    return directory


def write_pinterest(root: Path, topic: str, partition: int, segments: Sequence[TierSegmentFiles]) -> Path:
    """Pinterest's directory of the partition, all of it uploaded."""
    directory = root / "cluster1" / f"{topic}-{partition}"
    directory.mkdir(parents=True, exist_ok=True)
    for one in segments:
        for suffix, data in ((".log", one.log), (".index", one.index), (".timeindex", one.timeindex)):
            (directory / f"{one.start:020d}{suffix}").write_bytes(data)
    (directory / "offset.wm").write_text(f"{segments[-1].start:020d}")
    return directory


@dataclass(frozen=True)
class AivenOptions:
    """How Aiven's plugin is configured."""

    chunk_bytes: int = 1000
    compressed: bool = False
    encrypted: bool = False


PLAIN = AivenOptions()
SEALED = AivenOptions(compressed=True, encrypted=True)


def write_aiven(
    root: Path,
    topic: str,
    partition: int,
    segments: Sequence[TierSegmentFiles],
    options: AivenOptions = PLAIN,
    topic_id: str = TOPIC_ID,
) -> Path:
    """Aiven's directory of the partition, `root/TOPIC-ID/NUMBER`."""
    directory = root / f"{topic}-{topic_id}" / str(partition)
    directory.mkdir(parents=True, exist_ok=True)
    for one in segments:
        stem = f"{one.start:020d}-{one.segment_id}"
        log, chunk_index = _chunked(one.log, options)
        indexes, sections = _joined_indexes(one, options)
        manifest = _manifest(topic, partition, topic_id, one, options) | {
            "chunkIndex": chunk_index,
            "segmentIndexes": sections,
        }
        (directory / f"{stem}.log").write_bytes(log)
        (directory / f"{stem}.indexes").write_bytes(indexes)
        (directory / f"{stem}.rsm-manifest").write_text(json.dumps(manifest, separators=(",", ":")))
    return directory


def _chunked(log: bytes, options: AivenOptions) -> tuple[bytes, dict[str, Any]]:
    size = options.chunk_bytes
    chunks = [log[i : i + size] for i in range(0, len(log), size)]
    if options.compressed:
        chunks = [zstd.compress(chunk) for chunk in chunks]
    if options.encrypted:
        chunks = [sealed(chunk) for chunk in chunks]
    sizes = [len(chunk) for chunk in chunks]
    index: dict[str, Any] = {"originalChunkSize": size, "originalFileSize": len(log)}
    if options.compressed:
        packed = base64.b64encode(zstd.compress(encode_chunk_sizes(sizes))).decode()
        return b"".join(chunks), {"type": "variable", **index, "transformedChunks": packed}
    index |= {"transformedChunkSize": sizes[0] if len(sizes) > 1 else sizes[-1], "finalTransformedChunkSize": sizes[-1]}
    return b"".join(chunks), {"type": "fixed", **index}


def encode_chunk_sizes(sizes: list[int]) -> bytes:
    """A variable chunk index before it is packed: the bytes that `decode_chunk_sizes` reads."""
    if len(sizes) <= 1:
        return b"".join(number.to_bytes(4, "big") for number in (len(sizes), *sizes))
    *most, last = sizes
    base = min(most)
    width = max(1, -(-(max(most) - base).bit_length() // 8))
    head = len(sizes).to_bytes(4, "big") + base.to_bytes(4, "big") + bytes([width])
    return head + b"".join((size - base).to_bytes(width, "big") for size in most) + last.to_bytes(4, "big")


def _joined_indexes(one: TierSegmentFiles, options: AivenOptions) -> tuple[bytes, dict[str, Any]]:
    parts = {"offset": one.index, "timestamp": one.timeindex, "producerSnapshot": one.snapshot}
    parts["leaderEpoch"] = format_leader_epochs(one.epochs)
    if one.txnindex is not None:
        parts["transaction"] = one.txnindex
    joined, sections = b"", dict[str, Any]()
    for name, data in parts.items():
        stored = sealed(data) if options.encrypted and data else data
        sections[name] = {"position": len(joined), "size": len(stored)}
        joined += stored
    return joined, {"transaction": None} | sections


def _manifest(
    topic: str, partition: int, topic_id: str, one: TierSegmentFiles, options: AivenOptions
) -> dict[str, Any]:
    written: dict[str, Any] = {"version": "1", "compression": options.compressed}
    if options.encrypted:
        key = base64.b64encode(sealed_key(DATA_KEY)).decode()
        written["encryption"] = {"dataKey": f"{KEY_ID}:{key}", "aad": base64.b64encode(AAD).decode()}
    tip = {"topicId": topic_id, "topicPartition": {"topic": topic, "partition": partition}}
    written["remoteLogSegmentMetadata"] = {
        "remoteLogSegmentId": {"topicIdPartition": tip, "id": one.segment_id},
        "startOffset": one.start,
        "endOffset": one.end,
        "maxTimestampMs": 1_700_000_000_000,
        "brokerId": 1,
        "eventTimestampMs": 1_700_000_001_000,
        "segmentLeaderEpochs": {str(epoch): offset for epoch, offset in one.own_epochs.items()},
    }
    return written


# --- encryption -------------------------------------------------------------------------------------------


def sealed(data: bytes) -> bytes:
    """IV, ciphertext and tag, as the plugin writes them."""
    iv = os.urandom(12)
    return iv + AESGCM(DATA_KEY).encrypt(iv, data, AAD)


@cache
def key_pair() -> rsa.RSAPrivateKey:
    """The tests' key pair, made anew for each process: no key is kept in a file."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def private_pem() -> bytes:
    """Its private half, as operators keep it."""
    return key_pair().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def sealed_key(key: bytes) -> bytes:
    """A data key, encrypted with RSA-OAEP over SHA3-512 (RFC 8017, section 7.1.1)."""
    public = key_pair().public_key().public_numbers()
    size = (public.n.bit_length() + 7) // 8
    data = sha3_512(b"").digest() + bytes(size - len(key) - 2 * 64 - 2) + b"\1" + key
    seed = os.urandom(64)
    masked = _xor(data, _mask(seed, len(data)))
    block = b"\0" + _xor(seed, _mask(masked, 64)) + masked
    return pow(int.from_bytes(block, "big"), public.e, public.n).to_bytes(size, "big")


def _mask(seed: bytes, size: int) -> bytes:
    return b"".join(sha3_512(seed + i.to_bytes(4, "big")).digest() for i in range(size // 64 + 1))[:size]


def _xor(a: bytes, b: bytes) -> bytes:
    return bytes(x ^ y for x, y in zip(a, b, strict=True))


def remote_record(
    one: TierSegmentFiles,
    topic: str,
    partition: int,
    *,
    state: int,
    number: int | None = None,
    custom: bytes | None = None,
) -> bytes:
    """The record of `__remote_log_metadata` that adds a segment in a state (RemoteLogSegmentMetadataRecord)."""
    name = segment_id(number) if number is not None else one.segment_id
    owner = bytes([len(topic) + 1]) + topic.encode() + parse_uuid(TOPIC_ID).bytes + partition.to_bytes(4, "big") + b"\0"
    epochs = b"".join(e.to_bytes(4, "big") + at.to_bytes(8, "big") + b"\0" for e, at in one.own_epochs.items())
    return (
        bytes.fromhex("010000")
        + owner
        + parse_uuid(name).bytes
        + b"\0"
        + struct.pack(">qqiqq", one.start, one.end, 1, 1_700_000_000_000, 1_700_000_001_000)
        + bytes([len(one.own_epochs) + 1])
        + epochs
        + struct.pack(">i", len(one.log))
        + (b"\0" if custom is None else _varint(len(custom) + 1) + custom)
        + struct.pack(">bB", state, 0)
    )


def custom_metadata(prefix: str | None = None, key: str | None = None) -> bytes:
    """What Aiven's plugin keeps with a segment: 1500 bytes that are stored, and where."""
    fields = [b"\0\2\xb8\x17"]
    for tag, text in ((1, prefix), (2, key)):
        if text is not None:
            data = _varint(len(text.encode()) + 1) + text.encode()
            fields.append(bytes([tag]) + _varint(len(data)) + data)
    return _varint(len(fields)) + b"".join(fields)


def _varint(number: int) -> bytes:
    low = number & 0x7F
    return bytes([low]) if number < 0x80 else bytes([low | 0x80]) + _varint(number >> 7)
