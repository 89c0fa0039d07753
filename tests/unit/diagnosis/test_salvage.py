"""Salvage: all good batches, from wherever they lie, in a new log; sources stay as they are."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from seglog.clock import FixedClock
from seglog.diagnosis.examine import examination
from seglog.diagnosis.salvage import SalvageOptions, SalvageReport, salvage
from seglog.errors import NotALogError, RefusedError
from seglog.format.message_07 import walk_messages
from seglog.storage.filesystem import LocalFileSystem
from tests.support.damage import batches_of
from tests.support.fixtures import fixture_copy, fixture_now_ms

FS = LocalFileSystem()
NAME = "4.3.0/generated"
CLOCK = FixedClock(fixture_now_ms(NAME))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return fixture_copy(NAME, tmp_path / "kafka") / "mixed-0"


def batches_in(directory: Path) -> list[bytes]:
    return [batch for path in sorted(directory.glob("*.log")) for batch in batches_of(path.read_bytes())]


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


def test_nothing_good_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(random.Random(1).randbytes(100_000))
    with pytest.raises(NotALogError, match="no good batch"):
        salvage(FS, CLOCK, [tmp_path / "x.bin"], tmp_path / "out", SalvageOptions(carve=True))
    assert not (tmp_path / "out").exists()


def test_the_target_may_not_be_the_source_or_hold_anything(source: Path, tmp_path: Path) -> None:
    for target in (source, source / "below", source.parent / "keyed-0"):
        with pytest.raises(RefusedError):
            salvage(FS, CLOCK, [source], target, SalvageOptions())
