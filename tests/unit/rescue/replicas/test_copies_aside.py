"""Copies that have another name than their partition's: what a move has filled, strays, and deleted ones."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.lost_clusters import broker_directory, broker_meta
from tests.unit.rescue.replicas.test_comparison import assigned, brokers, losses, report_of, verdict_of, watermark

FUTURE, STRAY = (f"orders-0.6b9f2c7d3e5a4f0c8d1b2a3c4d5e6f70-{state}" for state in ("future", "stray"))


@pytest.mark.parametrize("name", [FUTURE, STRAY])
def test_a_copy_that_no_broker_serves_is_said_and_not_chosen_until_it_has_its_name_back(
    tmp_path: Path, name: str
) -> None:
    one, two = brokers(tmp_path, [0] * 9, [0] * 4)
    (one / "orders-0").rename(one / name)
    broker_meta(one, 1, number=7)  # the controller knows of another directory
    assigned(two, [1, 2])
    verdict = verdict_of(one, two)
    assert (verdict.choice, len(verdict.choices), len(verdict.aside)) == (2, 1, 1)
    assert "offsets 0 to 8" in verdict.remarks[0] and "cannot be chosen" in verdict.remarks[0]
    assert f"mv {one / name} {one / 'orders-0'}," in verdict.remarks[0]
    (one / name).rename(one / "orders-0")
    assert verdict_of(one, two).choice == 1


def test_a_copy_that_a_move_has_filled_is_served_from_the_directory_that_the_controller_has_recorded(
    tmp_path: Path,
) -> None:
    one, two = brokers(tmp_path, [0] * 9, [0] * 4)
    other = broker_directory(tmp_path / "1b", 1, {"orders-0": [0] * 12}, number=1)
    (one / "orders-0").rename(one / FUTURE)
    watermark(one, 9)
    assigned(two, [1, 2])
    verdict = verdict_of(one, other, two)
    assert [copy.copy.facts.directory for copy in verdict.copies] == [str(one / FUTURE), str(two / "orders-0")]
    assert (verdict.choice, losses(verdict, 2)) == (1, [(1, 4, 9, "beyond the end", "yes")])
    (said,) = verdict.remarks
    assert said.startswith(f"only {other / 'orders-0'} holds offsets 9 to 11, and broker 1 deletes it")
    shutil.copytree(other / "orders-0", one / "orders-0")  # now it cannot have its name
    shutil.rmtree(other / "orders-0")
    (said,) = [each for each in report_of(one, other, two).cluster.remarks if "does not start" in each]
    assert said.startswith(f"{one / FUTURE} lies beside the partition of that name")


@pytest.mark.parametrize(
    ("state", "does"), [("future", "cuts it"), ("stray", "does not serve it"), ("delete", "deletes it soon")]
)
def test_offsets_that_only_a_copy_aside_holds_are_said(tmp_path: Path, state: str, does: str) -> None:
    one, two = brokers(tmp_path, [0] * 9, [0] * 9)
    aside = tmp_path / "1b" / f"orders-0.6b9f2c7d3e5a4f0c8d1b2a3c4d5e6f70-{state}"
    other = broker_directory(aside.parent, 1, {"orders-0": [0] * 12}, number=1)
    (other / "orders-0").rename(aside)
    assigned(two, [1, 2])
    (said,) = verdict_of(one, other, two).remarks
    assert said.startswith(f"only {aside} holds offsets 9 to 11, and broker 1 {does}")


def test_a_replica_whose_directory_was_removed_is_in_none_of_its_brokers_log_directories(tmp_path: Path) -> None:
    one, two = brokers(tmp_path, [0] * 9, [0] * 4)
    shutil.rmtree(one / "orders-0")
    assigned(two, [1, 2])
    report = report_of(one, two)
    (said,) = [each for each in report.cluster.remarks if "in sync" in each]
    assert said.startswith("none of the given log directories of broker 1 holds 1 replica in sync (orders-0)")
