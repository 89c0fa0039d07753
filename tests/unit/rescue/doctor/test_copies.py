"""What doctor says of partitions with several directories. `FATES` holds what a real broker did with them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from seglog.verification.codes import Severity
from seglog_rescue.doctor.doctor import Diagnosis
from tests.support.moved_partitions import FATES, beside_its_future, emptied, moved_partitions
from tests.unit.rescue.doctor.test_doctor import diagnose


@pytest.fixture
def moved(tmp_path: Path) -> tuple[Path, Path]:
    return moved_partitions(tmp_path)


def grave(*directories: Path) -> list[Diagnosis]:
    return [row for row in diagnose(*directories) if row.gravity is not Severity.NOTE]


def test_records_that_a_broker_cuts_or_deletes_with_one_of_several_directories_are_a_danger(
    moved: tuple[Path, Path],
) -> None:
    rows = grave(*moved)
    for name, fate in FATES.items():
        mine = [row for row in rows if row.partition.split(".")[0] == name]
        assert {row.code for row in mine} == fate.codes, name
        lost = {offset for row in mine for offset in range(row.first_offset or 0, (row.last_offset or -1) + 1)}
        assert len(lost) == fate.end - fate.served_end, name
    assert all(row.gravity is Severity.DANGER for row in rows)


def test_a_future_copy_in_the_recorded_directory_beside_its_partition_keeps_a_broker_from_starting(
    moved: tuple[Path, Path],
) -> None:
    future = beside_its_future(moved[0] / "payments-compact-0")
    (row,) = [row for row in grave(*moved) if row.gravity is Severity.BLOCKER]
    assert (row.code, row.partition) == ("FUTURE_BESIDE_PARTITION", future.name)
    assert row.command == f"mv {future} SOMEWHERE-OUTSIDE-LOG.DIRS"


def test_of_two_copies_in_one_directory_the_one_with_fewer_records_is_moved_away(moved: tuple[Path, Path]) -> None:
    partition = moved[0] / "payments-compact-0"
    future = partition.with_name(f"{partition.name}.{'a' * 32}-future")
    shutil.copytree(partition, future)
    emptied(partition)
    (row,) = [row for row in grave(*moved) if row.gravity is Severity.BLOCKER]
    assert row.command == f"mv {partition} SOMEWHERE-OUTSIDE-LOG.DIRS && mv {future} {partition}"


def test_a_deleted_directory_of_a_topic_that_is_gone_is_no_danger(moved: tuple[Path, Path]) -> None:
    old = moved[0] / f"payments-compact-0.{'b' * 32}-delete"
    shutil.copytree(moved[0] / "payments-compact-0", old)
    (old / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAZQ\n")
    assert not [row for row in grave(*moved) if row.partition == old.name]


def test_an_empty_future_copy_does_not_stand_for_a_partition_that_held_records(moved: tuple[Path, Path]) -> None:
    partition = moved[0] / "payments-compact-0"
    beside_its_future(partition)
    shutil.rmtree(partition)
    (row,) = [row for row in grave(*moved) if row.file == "payments-compact-0"]
    assert (row.code, row.first_offset, row.last_offset) == ("PARTITION_MISSING", 0, 399)
