"""Ranges of a log that one kernel call a chunk finds right are right by the rules of decoded records, and no others;
what is looked at range by range is found as in one pass."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import seglog
from seglog import layout
from seglog.format.decoder import scan_batches
from seglog.ordered_pool import unlimited
from seglog.scan.listing import resolve_paths
from seglog.scan.resync import PlausibleOffsets
from seglog.storage.local import LocalFileSystem
from seglog.verification import batches, partition_look
from seglog.verification.batches import Level, RangeResult, _clean_entries, _clean_pieces, _Range
from seglog.verification.findings import Finding
from seglog.verification.verify import Verification, VerifyOptions, VerifySummary
from seglog_stores.remote.filesystem import RemoteFileSystem
from seglog_stores.remote.limits import Limits
from seglog_stores.remote.store import ObjectStatus, ObstoreStore
from tests.support import log_files as logs
from tests.support.broken.hostile_logs import hostile_log
from tests.support.broken.mutated_directories import mutate
from tests.support.broken.varied_directory import base_directory, copy_tree
from tests.support.manual_clock import ManualClock
from tests.support.naive import NaiveRecord, batch_v2
from tests.support.object_server import Fault, object_server

FS = LocalFileSystem()
OFFSETS = PlausibleOffsets(0, layout.INT64_MAX)


def plain_batches(numbers: range) -> Iterator[bytes]:
    """Each uncompressed batch of magic 2 that hostile logs hold whole."""
    for number in numbers:
        data = hostile_log(number)
        for batch in scan_batches(np.frombuffer(data, dtype=np.uint8), 0, len(data), 0).batches:
            if batch["magic"] == 2 and not int(batch["attributes"]) & layout.CODEC_MASK:
                yield data[int(batch["position"]) : int(batch["position"]) + int(batch["size"])]


def both(path: Path, level: Level) -> tuple[RangeResult | None, RangeResult | None]:
    size = path.stat().st_size
    with FS.open(path, "r") as file:
        found = [_Range(FS, path, 0, keep=False) for _ in range(2)]
        by_kernel = _clean_entries(file, found[0], size, OFFSETS, level)
        return by_kernel, _clean_pieces(FS, file, found[1], size, OFFSETS, level, unlimited())


def test_the_kernel_and_the_decoder_find_the_same_batches_right(tmp_path: Path) -> None:
    right = broken_batches = broken_records = 0
    path = tmp_path / f"{0:020d}.log"
    for data in plain_batches(range(300)):
        path.write_bytes(data)
        headers, whole = both(path, Level.CRC), both(path, Level.RECORD)
        assert headers[0] == headers[1] and whole[0] == whole[1]
        right += whole[1] is not None
        broken_batches += headers[1] is None
        broken_records += headers[1] is not None and whole[1] is None
    assert right > 50 and broken_batches > 5 and broken_records > 50, (right, broken_batches, broken_records)


def test_a_range_of_a_file_that_has_become_shorter_is_not_right(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.log"
    one = batch_v2(0, [NaiveRecord(0, 0, None, b"v")])
    path.write_bytes(one)
    for start, end in ((0, 2 * len(one)), (len(one), 2 * len(one)), (2 * len(one), 3 * len(one))):
        assert batches.clean_range(FS, path, start, end, OFFSETS, Level.RECORD, keep=True) is None
    assert batches.clean_range(FS, path, 0, len(one), OFFSETS, Level.RECORD, keep=True) is not None


def test_kernel_results_for_whole_hostile_logs_equal_the_decoders(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.log"
    for number in range(250):
        path.write_bytes(hostile_log(number))
        by_kernel, by_decoder = both(path, Level.RECORD)
        assert by_kernel is None or by_kernel == by_decoder


def without_words(found: Iterable[Finding]) -> list[Finding]:
    """Findings, sorted; the words name what an entry of a disordered index was held against first."""
    return sorted((replace(each, message="") for each in found), key=str)


def found_in(directory: Path) -> tuple[list[Finding], VerifySummary]:
    """What is wrong, without the words."""
    verification = Verification(FS, resolve_paths(FS, [directory]), VerifyOptions(jobs=3), ManualClock(0))
    found = without_words(verification)
    if verification.summary.complete:
        return found, verification.summary
    return found, VerifySummary(complete=False)  # what was seen before a file could not be read is counted by ranges


@pytest.mark.slow
def test_ranges_of_any_size_lead_to_the_findings_of_one_pass_in_detail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base_directory(tmp_path / "base")
    mutated, kinds = 0, set[str]()
    for seed in range(24):
        directory, chance = tmp_path / str(seed), random.Random(seed)
        copy_tree(tmp_path / "base", directory)
        if seed:
            mutate(directory, chance)
        with monkeypatch.context() as patched:
            patched.setattr(partition_look, "clean_range", lambda *_, **__: None)
            expected = found_in(directory)
        with monkeypatch.context() as patched:
            patched.setattr(partition_look, "_RANGE_BYTES", chance.choice((64, 300, 2000)))
            patched.setattr(batches, "_KEPT_ROWS", chance.choice((1, 3, 100)))
            patched.setattr(batches, "_CHUNK_BYTES", chance.choice((250, 1000, 1 << 19)))
            assert found_in(directory) == expected, seed
        mutated += bool(expected[0])
        kinds |= {found.code for found in expected[0]}
    assert mutated > 12 and len(kinds) > 10, kinds


@pytest.mark.slow
def test_logs_in_an_object_store_that_are_read_side_by_side_have_the_same_findings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base_directory(tmp_path / "base")
    streamed, kinds = list[tuple[int, int]](), set[str]()
    ask = ObstoreStore.stream

    def counted(store: ObstoreStore, known: ObjectStatus, start: int, size: int, piece: int) -> Iterator[memoryview]:
        streamed.append((start, size))
        return ask(store, known, start, size, piece)

    monkeypatch.setattr(ObstoreStore, "stream", counted)
    with object_server() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        for seed in range(12):
            directory, chance, before = tmp_path / f"logs{seed}", random.Random(seed), len(streamed)
            copy_tree(tmp_path / "base", directory)
            if seed:
                mutate(directory, chance)
            for path in directory.rglob("*"):
                if path.is_file() and not path.is_symlink():
                    server.objects[f"bkt/{directory.name}/{path.relative_to(directory)}"] = path.read_bytes()
            url = f"s3://bkt/{directory.name}"
            expected = [*seglog.verify(url, fs=RemoteFileSystem())]
            assert len(streamed) == before  # in requests of 4 MiB
            limits = Limits(
                request_bytes=chance.choice((256, 1000)), block_bytes=64, piece_bytes=chance.choice((1, 100, 700))
            )
            with monkeypatch.context() as patched:
                patched.setattr(partition_look, "_RANGE_BYTES", chance.choice((300, 2000, 32 << 20)))
                patched.setattr(batches, "_KEPT_ROWS", chance.choice((1, 3, 100)))
                found = [*seglog.verify(url, fs=RemoteFileSystem(limits=limits))]
            assert without_words(found) == without_words(expected), seed
            kinds |= {each.code for each in expected}
    assert len(streamed) > 50 and len(kinds) > 5, (len(streamed), kinds)


def test_an_epoch_that_falls_from_one_range_to_the_next_is_found_at_every_level(tmp_path: Path) -> None:
    epochs = (4, 4), (3, 5)  # of two batches of two segments; the highest does not fall
    for number, pair in enumerate(epochs):
        segment = [batch_v2(6 * number + 3 * i, logs.records(3), leader_epoch=epoch) for i, epoch in enumerate(pair)]
        logs.write_log(tmp_path, segment, base_offset=6 * number)
    for level in (Level.HEADER, Level.CRC, Level.RECORD, Level.INDEX):
        verification = Verification(FS, resolve_paths(FS, [tmp_path / "t-0"]), VerifyOptions(level), ManualClock(0))
        assert [each.first_offset for each in verification if each.code == "LEADER_EPOCH_DECREASING"] == [6], level


@pytest.mark.parametrize(("epochs", "named"), [((-1, 5), (5, 5)), ((-1, 3), (3, 3)), ((-1, -1), (None, -1))])
def test_a_range_begins_with_the_first_epoch_that_is_named(
    tmp_path: Path, epochs: tuple[int, int], named: tuple[int | None, int]
) -> None:
    segment = [batch_v2(3 * i, logs.records(3), leader_epoch=epoch) for i, epoch in enumerate(epochs)]
    for found in both(logs.write_log(tmp_path, segment), Level.RECORD):
        assert found is not None and (found.first_epoch, found.leader_epoch) == named
        assert found.follows(-1, 4) is (named[0] != 3)


def test_a_batch_outside_its_producers_transaction_is_found_however_close_it_is(tmp_path: Path) -> None:
    begun, outside = (
        batch_v2(2 * i, logs.records(2), attributes=0x10 * (1 - i), producer=(7, 0, 2 * i)) for i in (0, 1)
    )
    other = batch_v2(4, logs.records(2), producer=(8, 0, 0))
    directory = logs.write_log(tmp_path, [begun, outside, other]).parent
    wrong = [found for found in found_in(directory)[0] if found.code == "TRANSACTION_STATE_INVALID"]
    assert [found.first_offset for found in wrong] == [2]


@pytest.mark.parametrize(
    "names",
    [
        (f"{0:020d}.index", f"{0:020d}.timeindex", f"{5:020d}.snapshot"),
        (f"{10:020d}.index", f"{10:020d}.timeindex"),
    ],
)
def test_side_files_of_a_segment_in_an_object_store_are_requested_concurrently(
    names: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = base_directory(tmp_path / "base")
    wanted = {f"/bkt/base/p-0/{name}" for name in names}
    together, met = threading.Barrier(len(names)), set[str]()

    def fault(_method: str, path: str) -> Fault | None:
        """Nothing is answered before all are asked for."""
        if path in wanted - met:
            with suppress(threading.BrokenBarrierError):
                together.wait(60)
                met.add(path)
        return None

    with object_server() as server:
        for path in directory.rglob("*"):
            if path.is_file():
                server.objects[f"bkt/base/{path.relative_to(directory)}"] = path.read_bytes()
        server.fault = fault
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        found = list(seglog.verify("s3://bkt/base", fs=RemoteFileSystem()))
    assert met == wanted
    assert sorted((replace(each, message="") for each in found), key=str) == found_in(directory)[0]
