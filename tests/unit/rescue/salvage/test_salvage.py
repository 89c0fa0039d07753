"""Salvage: all good batches, from wherever they lie, in a new log; sources stay as they are."""

from __future__ import annotations

import errno
import os
import random
import shutil
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from seglog.clock import FixedClock
from seglog.errors import NotALogError, RefusedError
from seglog.format.message_07 import walk_messages
from seglog.log.append import ProducerIdentity
from seglog.model import Compression, Record
from seglog.repairs.repair import examination
from seglog.storage.filesystem import File, OpenMode, PassingFile
from seglog.storage.local import LocalFileSystem
from seglog_rescue.salvage.salvage import SalvageOptions, SalvageReport, salvage
from tests.support.broken.damage import batches_of
from tests.support.fixtures import fixture_copy, fixture_now_ms
from tests.support.log_files import batch, wrappers, write_log
from tests.support.messages_07 import encode_message
from tests.support.open_logs import START_MS, opened_log
from tests.support.small_disk import SmallDisk

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

FS = LocalFileSystem()
NAME = "4.3.0/generated"
CLOCK = FixedClock(fixture_now_ms(NAME))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return fixture_copy(NAME, tmp_path / "kafka") / "mixed-0"


def batches_in(directory: Path) -> list[bytes]:
    return [each for path in sorted(directory.glob("*.log")) for each in batches_of(path.read_bytes())]


def salvaged(paths: list[Path], target: Path, **options: int) -> SalvageReport:
    report = salvage(FS, CLOCK, paths, target, SalvageOptions(**options))  # type: ignore[arg-type]
    summary = examination(FS, CLOCK, target.parent, [target]).summary
    assert (summary.errors, summary.warnings) == (0, 0)
    return report


def test_a_healthy_log_comes_out_batch_for_batch(source: Path, tmp_path: Path) -> None:
    report = salvaged([source], tmp_path / "out" / "mixed-0", segment_bytes=20_000)
    assert batches_in(tmp_path / "out" / "mixed-0") == batches_in(source)
    assert (report.batches, report.missing) == (len(batches_in(source)), ())
    assert len(list((tmp_path / "out" / "mixed-0").glob("*.log"))) > 3
    assert (tmp_path / "out" / "mixed-0" / "partition.metadata").read_bytes()


@pytest.mark.parametrize("shift", [-1, 1, 5, 1_000_000])
def test_a_segment_with_a_wrong_name_gives_its_batches(tmp_path: Path, shift: int) -> None:
    source = tmp_path / "t-0"
    with opened_log(source, segment_bytes=400) as log:
        for _ in range(12):
            log.append([Record(b"v" * 40, timestamp=START_MS)] * 3)
    healthy = batches_in(source)
    path = sorted(source.glob("*.log"))[1]
    path.rename(source / f"{int(path.stem) + shift:020d}.log")
    assert salvaged([source], tmp_path / "out" / "t-0").missing == ()
    assert batches_in(tmp_path / "out" / "t-0") == healthy


def test_a_batch_whose_offset_nobody_vouches_for_is_left_out(tmp_path: Path) -> None:
    source = tmp_path / "t-0"
    source.mkdir()
    good, strange = [batch(100, 3), batch(103, 3)], batch(7, 3)
    (source / f"{100:020d}.log").write_bytes(b"".join([good[0], strange, good[1]]))
    salvaged([source], tmp_path / "out" / "t-0")
    assert batches_in(tmp_path / "out" / "t-0") == good


@pytest.mark.parametrize("others", [True, False], ids=["beside other segments", "alone"])
def test_a_cleaned_segment_with_a_wrong_name_gives_its_batches(tmp_path: Path, *, others: bool) -> None:
    """No batch goes on from another one: there are gaps between them, which ascend."""
    source = tmp_path / "t-0"
    source.mkdir()
    batches = [batch(first, 2) for first in (0, 5, 9, 40, 100)]
    (source / f"{300:020d}.log").write_bytes(b"".join(batches))
    if others:
        (source / f"{200:020d}.log").write_bytes(batch(200, 3))
        batches.append(batch(200, 3))
    salvaged([source], tmp_path / "out" / "t-0")
    assert batches_in(tmp_path / "out" / "t-0") == batches


@pytest.mark.parametrize(("broken", "whole"), [(8 + (1 << 40), 8), (12, 8), (8 + (3 << 20), 11)])
def test_the_last_of_misplaced_batches_may_have_a_broken_offset(tmp_path: Path, broken: int, whole: int) -> None:
    """Far away, or one bit off from where the batch before it ends."""
    source = tmp_path / "t-0"
    source.mkdir()
    good = [batch(first, 2) for first in (0, 2, 6)]
    (source / f"{1 << 50:020d}.log").write_bytes(b"".join(good) + batch(broken, 2))
    salvaged([source], tmp_path / "out" / "t-0")
    assert batches_in(tmp_path / "out" / "t-0") == good
    (source / f"{1 << 50:020d}.log").write_bytes(b"".join(good) + batch(whole, 2))
    salvaged([source], tmp_path / "again" / "t-0")
    assert batches_in(tmp_path / "again" / "t-0") == [*good, batch(whole, 2)]


@pytest.mark.parametrize("place", ["between bytes that are no batch", "within a damaged batch"])
def test_a_wrong_name_hides_no_batch_that_was_moved(tmp_path: Path, place: str) -> None:
    """The batch at offset 6 lies behind that at 12, and neither the name nor the batch before it allows its offset."""
    source = tmp_path / "t-0"
    source.mkdir()
    batches = [batch(first, 3) for first in (0, 3, 6, 12, 18, 21)]
    around = bytearray(batch(15, 3, value=b"x" * 100) if place == "within a damaged batch" else b"\xee" * 400)
    around[100 : 100 + len(batches[2])] = batches[2]
    data = b"".join([*batches[:2], batches[3], around, *batches[4:]])
    (source / f"{1 << 20:020d}.log").write_bytes(data)
    salvaged([source], tmp_path / "out" / "t-0")
    assert batches_in(tmp_path / "out" / "t-0") == batches


def test_a_wrapper_whose_broken_end_fits_a_wrong_name_excludes_nobody(tmp_path: Path) -> None:
    source = tmp_path / "t-0"
    source.mkdir()
    batches = wrappers(0, Compression.GZIP, count=20)
    broken = struct.pack(">q", 59) + batches[3][8:]
    (source / f"{50:020d}.log").write_bytes(b"".join([*batches[:3], broken, *batches[4:]]))
    salvaged([source], tmp_path / "out" / "t-0")
    assert batches_in(tmp_path / "out" / "t-0") == [*batches[:3], *batches[4:]]


def test_a_batch_alone_belongs_where_another_files_name_says(tmp_path: Path) -> None:
    """Its file lies over the one that came after it."""
    source = tmp_path / "t-0"
    source.mkdir()
    (source / f"{8:020d}.log").write_bytes(batch(5, 3))
    (source / f"{20:020d}.log").write_bytes(batch(20, 3))
    salvaged([source], tmp_path / "out" / "t-0")
    assert batches_in(tmp_path / "out" / "t-0") == [batch(5, 3), batch(20, 3)]


def test_a_wrapper_whose_end_is_broken_excludes_nobody(tmp_path: Path) -> None:
    """The offset of a wrapper of magic 0 is covered by no checksum, and its messages have offsets of their own."""
    batches = wrappers(0, Compression.GZIP, count=20)
    broken = struct.pack(">q", 59) + batches[3][8:]
    source = write_log(tmp_path, [*batches[:3], broken, *batches[4:]]).parent
    report = salvaged([source], tmp_path / "out" / "t-0")
    assert batches_in(tmp_path / "out" / "t-0") == [*batches[:3], *batches[4:]]
    assert report.missing == ((9, 11),)


def test_a_wrapper_too_small_for_its_offsets_excludes_not_even_the_last_one(tmp_path: Path) -> None:
    batches = wrappers(0, Compression.GZIP, count=20)
    broken = struct.pack(">q", 1 << 29) + batches[-2][8:]
    source = write_log(tmp_path, [*batches[:-2], broken, batches[-1]]).parent
    salvaged([source], tmp_path / "out" / "t-0")
    assert batches_in(tmp_path / "out" / "t-0") == [*batches[:-2], batches[-1]]


def test_a_wrapper_of_more_offsets_than_a_segment_holds_is_left_out(tmp_path: Path) -> None:
    batches = wrappers(0, Compression.GZIP, count=20)
    broken = struct.pack(">q", 1 << 51) + batches[-1][8:]
    source = write_log(tmp_path, [*batches[:-1], broken]).parent
    salvaged([source], tmp_path / "out" / "t-0")
    assert batches_in(tmp_path / "out" / "t-0") == batches[:-1]


def test_what_one_file_lost_another_gives(source: Path, tmp_path: Path) -> None:
    healthy = batches_in(source)
    log = source / "00000000000000000258.log"
    (source / "00000000000000000000.log.deleted").write_bytes(log.read_bytes())
    log.write_bytes(log.read_bytes()[:4000] + bytes(3000) + log.read_bytes()[7000:])
    before = {path.name: path.read_bytes() for path in source.iterdir()}
    report = salvaged([source], tmp_path / "mixed-0")
    assert batches_in(tmp_path / "mixed-0") == healthy
    used = {found.path.name: found.used for found in report.sources}
    assert used["00000000000000000000.log.deleted"] > 0
    assert {path.name: path.read_bytes() for path in source.iterdir()} == before


def test_missing_offsets_are_named(source: Path, tmp_path: Path) -> None:
    log = source / "00000000000000000258.log"
    log.write_bytes(bytes(log.stat().st_size))
    report = salvaged([source], tmp_path / "mixed-0")
    assert report.missing == ((258, 527),)
    assert report.missing_offsets == 270


class _FailingDisk(LocalFileSystem):
    """Reads of files whose name begins with `name` fail from byte `position` on."""

    def __init__(self, name: str, position: int) -> None:
        super().__init__()
        self._name, self._position = name, position

    def open(self, path: Path, mode: OpenMode) -> File:
        file = super().open(path, mode)
        return _FailingFile(file, self._position) if path.name.startswith(self._name) else file


class _FailingFile(PassingFile):
    def __init__(self, below: File, position: int) -> None:
        super().__init__(below)
        self._position = position

    def _checked(self, position: int, size: int) -> None:
        if position + size > self._position:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(self.path))

    def read_at(self, position: int, size: int) -> bytes:
        self._checked(position, size)
        return super().read_at(position, size)

    def read_into(self, position: int, buffer: WriteableBuffer) -> int:
        self._checked(position, len(memoryview(buffer)))
        return super().read_into(position, buffer)


def test_a_file_that_cannot_be_read_is_named_and_the_others_are_copied(source: Path, tmp_path: Path) -> None:
    name, others = "00000000000000000258", tmp_path / "others"
    shutil.copytree(source, others, ignore=shutil.ignore_patterns(f"{name}.log"))
    report = salvage(_FailingDisk(name, 0), CLOCK, [source], tmp_path / "mixed-0", SalvageOptions())
    assert batches_in(tmp_path / "mixed-0") == batches_in(others)
    assert not report.is_complete
    assert {each.path.name: each.unreadable for each in report.sources if each.unreadable} == {
        f"{name}.log": os.strerror(errno.EIO)
    }


@pytest.mark.slow
def test_what_came_before_an_unreadable_place_is_copied(tmp_path: Path) -> None:
    """Of a file that is read in several steps."""
    batches = [batch(i, value=bytes(1 << 20)) for i in range(24)]
    log = tmp_path / "t-0" / f"{0:020d}.log"
    log.parent.mkdir()
    log.write_bytes(b"".join(batches))
    report = salvage(_FailingDisk(log.stem, 22 << 20), CLOCK, [log], tmp_path / "out" / "t-0", SalvageOptions())
    copied = batches_in(tmp_path / "out" / "t-0")
    assert copied and copied == batches[: len(copied)]
    assert report.sources[0].unreadable and report.sources[0].used == len(copied)


def test_where_nothing_can_be_read_the_error_is_the_system_s(source: Path, tmp_path: Path) -> None:
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        salvage(_FailingDisk("", 0), CLOCK, [source], tmp_path / "mixed-0", SalvageOptions())
    assert not (tmp_path / "mixed-0").exists()


def test_carving_finds_batches_in_an_image_at_any_alignment(source: Path, tmp_path: Path) -> None:
    chance = random.Random(3)
    image = tmp_path / "disk.img"
    pieces = [path.read_bytes() for path in sorted(source.glob("*.log"), reverse=True)]
    image.write_bytes(b"".join(chance.randbytes(chance.randint(100, 9999)) + piece for piece in pieces))
    report = salvaged([image], tmp_path / "mixed-0", carve=True)
    assert sorted(batches_in(tmp_path / "mixed-0")) == sorted(batches_in(source))
    assert report.missing == ()


def test_the_log_of_kafka_07_is_joined(tmp_path: Path) -> None:
    source = fixture_copy("0.7", tmp_path / "old") / "ancient-0"
    logs = sorted(source.glob("*.kafka"))
    count = sum(len(walk_messages(path.read_bytes()).messages) for path in logs)
    data = bytearray(logs[0].read_bytes())
    data[3000] ^= 1
    logs[0].write_bytes(data)
    salvage(FS, CLOCK, [source], tmp_path / "ancient-0", SalvageOptions())
    walk = walk_messages((tmp_path / "ancient-0" / "00000000000000000000.kafka").read_bytes())
    assert len(walk.messages) == count - 1
    assert all(message.is_valid for message in walk.messages)


def test_after_damage_a_kafka_07_message_across_two_windows_is_found(tmp_path: Path) -> None:
    messages = [encode_message(bytes([i]) * 300) for i in range(3)]
    source = tmp_path / "old" / "ancient-0"
    source.mkdir(parents=True)
    for boundary in (4 << 20, 8 << 20):  # the damage ends shortly before it
        (source / "00000000000000000000.kafka").write_bytes(b"\xff" * (boundary - 100) + b"".join(messages))
        report = salvage(FS, CLOCK, [source], tmp_path / f"ancient-{boundary}", SalvageOptions())
        assert report.batches == 3


def test_nothing_good_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(random.Random(1).randbytes(100_000))
    with pytest.raises(NotALogError, match="no good batch"):
        salvage(FS, CLOCK, [tmp_path / "x.bin"], tmp_path / "out", SalvageOptions(carve=True))
    assert not (tmp_path / "out").exists()


def test_without_room_the_directory_that_was_asked_for_is_named(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "mixed-0"
    with pytest.raises(RefusedError, match=f"^{out.parent}: .* bytes of disk space are needed, and 0 are free;"):
        salvage(SmallDisk(tmp_path / "new", 0), CLOCK, [source], out, SalvageOptions())
    assert not list(out.parent.iterdir())


def test_the_target_may_not_be_the_source_or_hold_anything(source: Path, tmp_path: Path) -> None:
    for target in (source, source / "below", source.parent / "keyed-0"):
        with pytest.raises(RefusedError):
            salvage(FS, CLOCK, [source], target, SalvageOptions())


# --- images that hold several logs


TOPICS = ("orders-none-0", "orders-lz4-0", "customers-0", "payments-0")
BLOCK = 4096


def segments_of(directory: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(directory.glob("*.log"))]


def disk(logs: dict[str, list[bytes]], chance: random.Random, extent: tuple[int, int], garbage: float = 0.2) -> bytes:
    """Segments in extents of so many blocks, which lie in any order, with other files' blocks between them."""
    extents: list[bytes] = []
    for segment in (segment for segments in logs.values() for segment in segments):
        padded, at = segment + bytes(-len(segment) % BLOCK), 0
        while at < len(padded):
            size = chance.randint(*extent) * BLOCK
            extents.append(padded[at : at + size])
            at += size
    chance.shuffle(extents)
    image = []
    for each in extents:
        image.append(each)
        while chance.random() < garbage:
            image.append(chance.choice([bytes(BLOCK), chance.randbytes(BLOCK)]))
    return b"".join(image)


def carved(tmp_path: Path, image: bytes, logs: dict[str, list[bytes]], **options: object) -> list[dict[str, int]]:
    """Of each log that was made: how many of its batches are whose. Every log is valid."""
    (tmp_path / "disk.img").write_bytes(image)
    options = {"carve": True, **options}
    chosen = SalvageOptions(**options)  # type: ignore[arg-type]
    report = salvage(FS, CLOCK, [tmp_path / "disk.img"], tmp_path / "out", chosen)
    owner = {each: name for name, segments in logs.items() for segment in segments for each in batches_of(segment)}
    found = []
    for log in report.logs:
        counts: dict[str, int] = {}
        for each in batches_in(log.directory):
            counts[owner[each]] = counts.get(owner[each], 0) + 1
        assert sum(counts.values()) == log.batches
        summary = examination(FS, CLOCK, log.directory.parent, [log.directory]).summary
        assert (summary.errors, summary.warnings) == (0, 0)
        found.append(counts)
    return found


@pytest.fixture
def topics(tmp_path: Path) -> dict[str, list[bytes]]:
    root = fixture_copy("4.3.0/clean", tmp_path / "kafka")
    return {name: segments_of(root / name) for name in TOPICS}


def test_four_logs_one_after_the_other_come_out_as_four(tmp_path: Path, topics: dict[str, list[bytes]]) -> None:
    image = b"".join(segment for segments in topics.values() for segment in segments)
    found = carved(tmp_path, image, topics)
    wanted = [{name: sum(len(batches_of(s)) for s in segments)} for name, segments in topics.items()]
    assert sorted(found, key=str) == sorted(wanted, key=str)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [f"carved-{n}" for n in range(4)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("extent", [(1, 8), (4, 40)])
def test_logs_in_pieces_all_over_a_disk_are_never_mixed(
    tmp_path: Path, topics: dict[str, list[bytes]], extent: tuple[int, int], seed: int
) -> None:
    found = carved(tmp_path, disk(topics, random.Random(seed), extent), topics)
    assert all(len(counts) == 1 for counts in found)
    best = {name: max(counts.get(name, 0) for counts in found) for name in topics}
    all_of = {name: sum(len(batches_of(segment)) for segment in segments) for name, segments in topics.items()}
    assert all(best[name] >= 0.6 * all_of[name] for name in topics), (best, all_of)


def test_a_batch_that_is_cut_in_two_is_put_together(tmp_path: Path, topics: dict[str, list[bytes]]) -> None:
    (segment,) = topics["orders-lz4-0"]
    middle = len(segment) // 2 // BLOCK * BLOCK
    image = segment[middle:] + bytes(-len(segment) % BLOCK) + bytes(BLOCK) + segment[:middle]
    assert carved(tmp_path, image, topics) == [{"orders-lz4-0": len(batches_of(segment))}]


def twins(tmp_path: Path, producers: bool) -> dict[str, list[bytes]]:
    """Two partitions of one topic: alike in everything but their values, and in when a producer wrote to which."""
    logs: dict[str, list[bytes]] = {}
    for partition in range(2):
        path = tmp_path / "twins" / f"t-{partition}"
        log = opened_log(path)
        for number in range(60):
            values = [b"value %d %d %d" % (partition, number, n) + b"." * 200 for n in range(10)]
            sequence = 1000 * partition + 10 * number
            log.append(
                [Record(value, b"key", START_MS + number) for value in values],
                producer=ProducerIdentity(70, 0, sequence) if producers else None,
            )
            if number % 20 == 19:
                log.roll()
        log.close()
        logs[path.name] = segments_of(path)
    return logs


def test_partitions_that_nothing_tells_apart_are_left_apart_and_called_undecided(tmp_path: Path) -> None:
    logs = twins(tmp_path, producers=False)
    found = carved(tmp_path, disk(logs, random.Random(1), (100, 100)), logs)
    assert [len(counts) for counts in found] == [1] * 6  # each segment by itself
    report = salvage(FS, CLOCK, [tmp_path / "disk.img"], tmp_path / "again", SalvageOptions(carve=True))
    assert report.undecided == 6


def test_partitions_of_one_topic_are_distinguished_by_their_producers_sequences(tmp_path: Path) -> None:
    logs = twins(tmp_path, producers=True)
    found = carved(tmp_path, disk(logs, random.Random(1), (100, 100)), logs)
    assert sorted(found, key=str) == [{"t-0": 60}, {"t-1": 60}]
    report = salvage(FS, CLOCK, [tmp_path / "disk.img"], tmp_path / "again", SalvageOptions(carve=True))
    assert report.undecided == 0


def test_what_a_partitions_files_lack_an_image_gives(tmp_path: Path, topics: dict[str, list[bytes]]) -> None:
    root = tmp_path / "left" / "payments-0"
    shutil.copytree(fixture_copy("4.3.0/clean", tmp_path / "again") / "payments-0", root)
    first = min(root.glob("*.log"))
    first.unlink()
    image = b"".join(topics["orders-none-0"] + topics["payments-0"])
    (tmp_path / "disk.img").write_bytes(image)
    options = SalvageOptions(carve=True)
    report = salvage(FS, CLOCK, [root, tmp_path / "disk.img"], tmp_path / "out", options)
    assert len(report.logs) == 2
    whole = next(log for log in report.logs if log.directory.name == "payments-0")
    assert whole.batches == sum(len(batches_of(segment)) for segment in topics["payments-0"])
    assert whole.missing == () and (whole.directory / "partition.metadata").exists()


def test_into_one_makes_one_log_and_counts_what_contradicts(tmp_path: Path, topics: dict[str, list[bytes]]) -> None:
    image = b"".join(topics["orders-none-0"] + topics["payments-0"])
    (tmp_path / "disk.img").write_bytes(image)
    report = salvage(FS, CLOCK, [tmp_path / "disk.img"], tmp_path / "out", SalvageOptions(carve=True, into_one=True))
    (log,) = report.logs
    assert log.directory == tmp_path / "out" and log.contradicting > 0
    assert log.batches + log.contradicting == report.sources[0].found


def test_different_partitions_are_not_joined_unless_that_is_wanted(tmp_path: Path) -> None:
    root = fixture_copy("4.3.0/clean", tmp_path / "kafka")
    paths = [root / "orders-none-0", root / "orders-lz4-0"]
    with pytest.raises(RefusedError, match="different partitions"):
        salvage(FS, CLOCK, paths, tmp_path / "out", SalvageOptions())
    assert not (tmp_path / "out").exists()
    salvage(FS, CLOCK, paths, tmp_path / "out", SalvageOptions(into_one=True))


def test_an_offset_that_may_be_another_files_counts_for_nothing(tmp_path: Path) -> None:
    image = bytearray(BLOCK - 5) + batch(7, 3)[:5].replace(b"\0", b"\x11") + batch(7, 3)[5:] + bytes(BLOCK)
    (tmp_path / "disk.img").write_bytes(image)
    with pytest.raises(NotALogError):
        salvage(FS, CLOCK, [tmp_path / "disk.img"], tmp_path / "out", SalvageOptions(carve=True))


def test_a_partition_metadata_that_cannot_be_read_does_not_go_along(source: Path, tmp_path: Path) -> None:
    (source / "partition.metadata").write_bytes(b"")
    salvaged([source], tmp_path / "out" / "mixed-0")
    assert not (tmp_path / "out" / "mixed-0" / "partition.metadata").exists()


@pytest.mark.parametrize(("time", "stays"), [(1500, True), (900, False), (2100, False)])
def test_the_time_of_a_batch_vouches_for_its_offset(tmp_path: Path, time: int, *, stays: bool) -> None:
    """A batch of a cleaned log in another segment's file: no checksum covers its offset, one covers its time."""
    source = tmp_path / "t-0"
    source.mkdir()
    stray = batch(40, 2, timestamp=time)
    (source / f"{0:020d}.log").write_bytes(batch(10, 2, timestamp=1000) + batch(70, 2, timestamp=2000))
    (source / f"{100:020d}.log").write_bytes(batch(110, 2, timestamp=3000) + stray)
    salvaged([source], tmp_path / "out" / "t-0")
    assert (stray in batches_in(tmp_path / "out" / "t-0")) == stays
