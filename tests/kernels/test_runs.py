"""Runs of batches: decompressed and packed in one call as one by one, with libzstd's functions and without."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from seglog import layout
from seglog.format.compression import compress, decompress
from seglog.format.decoder import checksums_match, scan_batches
from seglog.format.zstd_library import zstd_slots
from seglog.kernels import lz4, runs
from seglog.kernels.rebuilding import EMPTY, REBUILT, VERBATIM
from seglog.kernels.records import DECOMPRESSION_FAILED
from tests.support.interpreted import both
from tests.support.naive import NaiveRecord, batch_v2
from tests.support.zstd import frame, stream

DECOMPRESSING = pytest.mark.parametrize("decompress_run", both(runs, "decompress_run"), ids=["compiled", "interpreted"])
PLAIN = pytest.mark.parametrize("is_plain_zstd", both(runs, "is_plain_zstd"), ids=["compiled", "interpreted"])
PACKING = pytest.mark.parametrize("pack_run", both(runs, "pack_run"), ids=["compiled", "interpreted"])
NO_ZSTD = np.zeros(runs.ZSTD_SLOTS, dtype=np.int64)
PAYLOADS = [b"".join(NaiveRecord(i, 0, b"key-%d" % i, b"value" * n).encode() for i in range(n)) for n in (3, 1, 9, 4)]


def log_of(codecs: Sequence[int], payloads: Sequence[bytes] = PAYLOADS) -> tuple[np.ndarray, np.ndarray]:
    data = b""
    for i, (codec, payload) in enumerate(zip(codecs, payloads, strict=True)):
        records = [NaiveRecord(k, 0, b"k", b"v") for k in range(3)]
        data += batch_v2(10 * i, records, attributes=codec, payload=compress(codec, payload))
    array = np.frombuffer(data, dtype=np.uint8).copy()
    return array, scan_batches(array, 0, len(array), 0).batches


def run(decompress_run, data: np.ndarray, batches: np.ndarray, zstd: np.ndarray, room: int, first: int = 0):
    """(first batch not done, what came out, where each batch ends, statuses)."""
    starts, ends = batches["position"] + 61, batches["position"] + batches["size"]
    out, bounds = np.full(room + 2, 7, dtype=np.uint8), np.zeros(len(batches), dtype=np.int64)
    status = np.zeros(len(batches), dtype=np.int8)
    last, failed = len(batches), DECOMPRESSION_FAILED
    after, used = decompress_run(
        data, starts, ends, batches, first, last, status, failed, zstd, out[:room], 0, room, room, bounds
    )
    assert (out[room:] == 7).all()
    return after, out[:used].tobytes(), bounds.tolist(), status.tolist()


def test_this_environment_has_the_functions() -> None:
    """The module's libzstd: without, everything works, but threads wait for each other."""
    assert zstd_slots().all()


@DECOMPRESSING
def test_lz4_and_zstd_come_out_one_after_another(decompress_run) -> None:
    data, batches = log_of([4, 3, 4, 3])
    room = sum(map(len, PAYLOADS))
    after, found, bounds, status = run(decompress_run, data, batches, zstd_slots(), room + 9)
    assert (after, found, status) == (4, b"".join(PAYLOADS), [0] * 4)
    assert bounds == np.cumsum([len(payload) for payload in PAYLOADS]).tolist()


@DECOMPRESSING
def test_a_run_ends_where_the_kernel_cannot_go_on(decompress_run) -> None:
    data, batches = log_of([3, 4, 2, 4])
    room = sum(map(len, PAYLOADS))
    assert run(decompress_run, data, batches, zstd_slots(), room)[:2] == (2, PAYLOADS[0] + PAYLOADS[1])
    assert run(decompress_run, data, batches, NO_ZSTD, room)[:2] == (1, PAYLOADS[0])
    assert run(decompress_run, data, batches, zstd_slots(), len(PAYLOADS[0]) + 5)[:2] == (1, PAYLOADS[0])


@DECOMPRESSING
def test_damaged_zstd_ends_the_run_and_damaged_lz4_is_marked(decompress_run) -> None:
    room = sum(map(len, PAYLOADS))
    for codec, expected in ((4, (1, [0, 0, 0, 0])), (3, (4, [0, DECOMPRESSION_FAILED, 0, 0]))):
        data, batches = log_of([codec] * 4)
        data[batches[1]["position"] + 61] ^= 0xFF
        after, _, _, status = run(decompress_run, data, batches, zstd_slots(), room)
        assert (after, status) == expected


def zstd_frames() -> dict[str, bytes]:
    """Frames of every layout of header and blocks that a compressor makes."""
    texts = {"empty": b"", "one": b"a", "repeated": b"a" * 400_000, "random": random.Random(1).randbytes(300_000)}
    texts["text"] = b"".join(b"%d and " % i for i in range(90_000))
    frames = {}
    for name, text in texts.items():
        for told in (False, True):
            for checked in (False, True):
                frames[f"{name}{', size' * told}{', checksum' * checked}"] = frame(text, told=told, checked=checked)
        frames[f"{name}, stream"] = stream(text)
    return frames


@PLAIN
def test_a_frame_is_plain_only_to_its_very_end(is_plain_zstd) -> None:
    for name, packed in zstd_frames().items():
        data = np.frombuffer(b"ab" + packed + packed, dtype=np.uint8)
        end = 2 + len(packed)
        assert is_plain_zstd(data, 2, end), name
        for wrong in (2, 3, 8, end - 4, end - 1, end + 1, end + 4, len(data)):
            assert not is_plain_zstd(data, 2, wrong), (name, wrong)
        assert not is_plain_zstd(data, 1, end), name


@PLAIN
def test_frames_with_dictionaries_and_huge_windows_are_not_plain(is_plain_zstd) -> None:
    def plain(frame: bytes) -> bool:
        return bool(is_plain_zstd(np.frombuffer(frame, dtype=np.uint8), 0, len(frame)))

    frame = bytearray(compress(4, PAYLOADS[2]))
    assert frame[5] < 17 << 3
    assert plain(frame[:5] + bytes([17 << 3]) + frame[6:])
    assert not plain(frame[:5] + bytes([(17 << 3) + 1]) + frame[6:])
    assert not plain(frame[:4] + bytes([frame[4] | 1]) + frame[5:6] + b"\7" + frame[6:])
    assert not plain(b"\x50\x2a\x4d\x18\0\0\0\0" + frame)


@DECOMPRESSING
def test_a_run_ends_at_zstd_that_is_not_one_plain_frame(decompress_run) -> None:
    data, batches = log_of([4, 4, 4], PAYLOADS[:3])
    payload = compress(4, PAYLOADS[1][:40]) + compress(4, PAYLOADS[1][40:])
    second = batch_v2(10, [NaiveRecord(0, 0, b"k", b"v")], attributes=4, payload=payload)
    parts = data[: batches[1]["position"]].tobytes(), second, data[batches[2]["position"] :].tobytes()
    data = np.frombuffer(b"".join(parts), dtype=np.uint8)
    batches = scan_batches(data, 0, len(data), 0).batches
    assert run(decompress_run, data, batches, zstd_slots(), 10_000)[:2] == (1, PAYLOADS[0])


@PACKING
@pytest.mark.parametrize("codec", [0, 3, 4])
@pytest.mark.parametrize("zstd", [zstd_slots(), NO_ZSTD], ids=["library", "none"])
def test_rows_are_packed_side_by_side(pack_run, codec: int, zstd: np.ndarray) -> None:
    data, batches = log_of([codec] * 4)
    actions = np.array([VERBATIM, REBUILT, EMPTY, REBUILT], dtype=np.int8)
    empty = batch_v2(20, [])
    payloads = np.frombuffer(PAYLOADS[1] + empty + PAYLOADS[3], dtype=np.uint8)
    targets = batches.copy()
    targets["size"] = [batches[0]["size"], len(PAYLOADS[1]), len(empty), len(PAYLOADS[3])]
    targets["position"] = [0, 0, len(PAYLOADS[1]), len(PAYLOADS[1]) + len(empty)]
    out = np.full(runs.packed_bound(targets) + 2, 7, dtype=np.uint8)
    table = np.empty(lz4.TABLE_SLOTS, dtype=np.uint16)
    rows, used = pack_run(data, 0, batches, payloads, targets, np.arange(4), actions, 0, zstd, table, out[:-2], 0)
    assert out[-2:].tolist() == [7, 7]
    if codec == 4 and not zstd.any():
        assert (rows, used) == (1, batches[0]["size"])
        return
    assert rows == 4
    found = scan_batches(out, 0, used, 0).batches
    assert found["position"].tolist() == targets["position"].tolist()
    assert checksums_match(out, found, 0).all()
    raw = [out[p + 61 : p + n].tobytes() for p, n in zip(found["position"], found["size"], strict=True)]
    assert decompress(codec, raw[1], limit=1 << 20).tobytes() == PAYLOADS[1]
    assert decompress(codec, raw[3], limit=1 << 20).tobytes() == PAYLOADS[3]
    assert out[: batches[0]["size"]].tobytes() == data[: batches[0]["size"]].tobytes()
    assert raw[2] == empty[layout.RECORD_BATCH_OVERHEAD :]
