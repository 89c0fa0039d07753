"""`seglog rebuild`: its output and files, exit codes, and log directories that stay unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.format.uuids import format_uuid
from seglog_rescue.rebuild.metadata_snapshot import metadata_snapshot
from tests.support.broken.wounded_starts import snapshot_name, voter
from tests.support.command_line import json_lines, run
from tests.support.lost_clusters import CLUSTER, TOPIC_IDS, broker_directory, directory_id, registration, topic_records
from tests.support.metadata_records import write_metadata_log
from tests.support.target_directories import everything


def test_a_dry_run_shows_the_cluster_and_writes_nothing(tmp_path: Path) -> None:
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0, 0], "orders-1": [4]})
    before = everything(tmp_path)
    done = run("rebuild", "--dry-run", one, "-o", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert f"cluster {CLUSTER}\nbroker 1: {one}\n" in done.stdout
    (row,) = [line.split() for line in done.stdout.splitlines() if line.startswith("orders-1 ")]
    assert row == ["orders-1", "1", "1", "5", "1", "directories"]
    assert f"{tmp_path / 'out'} would get 2 files\n" in done.stdout
    assert "warning: the configuration of orders is not known" in done.stderr
    assert everything(tmp_path) == before


def test_what_is_written_is_a_snapshot_that_metadata_shows_and_sources_stay(tmp_path: Path) -> None:
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0, 0]})
    two = broker_directory(tmp_path / "2", 2, {"orders-0": [0]})
    (two / "orders-0" / "partition.metadata").unlink()
    before = everything(one), everything(two)
    rows = json_lines(run("rebuild", "--json", one, two, "-o", tmp_path / "out"))
    assert (everything(one), everything(two)) == before
    written = [Path(row["file"]) for row in rows if row["type"] == "written"]
    metadata = tmp_path / "out" / "node-2" / (two / "orders-0" / "partition.metadata").relative_to("/")
    snapshots = [Path("bootstrap.checkpoint"), Path("__cluster_metadata-0", f"{0:020}-{0:010}.checkpoint")]
    assert written == [*(tmp_path / "out" / place for place in snapshots), metadata]
    assert written[0].read_bytes() == written[1].read_bytes()
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in written)
    assert metadata.read_bytes() == (one / "orders-0" / "partition.metadata").read_bytes()
    assert any(step == f"cp {metadata} {two / 'orders-0' / 'partition.metadata'}" for step in rows[-1]["next"])
    shown = run("metadata", written[0])
    assert shown.exit_code == 0, shown.output
    assert "      0: replicas 1,2, isr 1, leader 1, leader_recovery recovered, leader_epoch 1," in shown.stdout
    assert "orders" in TOPIC_IDS and "retention.ms -1" in shown.stdout
    again = run("rebuild", one, two, "-o", tmp_path / "out")
    assert (again.exit_code, "is there already and not empty" in again.stderr) == (12, True)


def test_a_controllers_directory_without_meta_properties_gets_one(tmp_path: Path) -> None:
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0]})
    write_metadata_log(tmp_path / "controller", topic_records("orders", [[1]]))
    done = run(
        "rebuild", one, tmp_path / "controller", "--node", f"{tmp_path / 'controller'}=3000", "-o", tmp_path / "out"
    )
    assert done.exit_code == 0, done.output
    (made,) = (tmp_path / "out" / "node-3000").rglob("meta.properties")
    (tmp_path / "controller" / "meta.properties").write_bytes(made.read_bytes())
    inside = run("rebuild", one, tmp_path / "controller", "-o", tmp_path / "controller" / "new")
    assert (inside.exit_code, "lies in the log directory" in inside.stderr) == (12, True)
    assert "node.id=3000\n" in made.read_text() and f"cluster.id={CLUSTER}\n" in made.read_text()


def test_metadata_that_is_damaged_is_three_and_still_used(tmp_path: Path) -> None:
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0]})
    log = write_metadata_log(one, topic_records("orders", [[1], [1]])) / f"{0:020}.log"
    log.write_bytes(log.read_bytes()[:-3])
    done = run("rebuild", one, "-o", tmp_path / "out")
    assert done.exit_code == 3
    assert f"warning: {log}: position " in done.stderr and "up to offset 1\n" in done.stdout
    assert (tmp_path / "out" / "bootstrap.checkpoint").exists()


def test_places_and_options_that_cannot_be_are_refused(tmp_path: Path) -> None:
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0]})
    inside = run("rebuild", one, "-o", one / "out")
    assert (inside.exit_code, "lies in the log directory" in inside.stderr) == (12, True)
    for option, value in (("--node", "x"), ("--node", f"{one}=-1"), ("--feature", "metadata.version=x")):
        assert run("rebuild", one, "-o", tmp_path / "out", option, value).exit_code == 2
    assert run("rebuild", tmp_path / "nothing", "-o", tmp_path / "out").exit_code == 10
    (tmp_path / "file.txt").write_text("no snapshot")
    assert run("rebuild", one, "--metadata", tmp_path / "file.txt", "-o", tmp_path / "out").exit_code == 10
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("voters", "joins"), [((), ""), ((1,), ""), ((1, 2), " --no-initial-controllers")])
def test_a_broker_whose_disks_are_lost_gets_new_ones_by_a_step_that_is_filled_in(
    voters: tuple[int, ...], joins: str, tmp_path: Path
) -> None:
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0, 0]})
    log = write_metadata_log(one, [registration(1), registration(2), *topic_records("orders", [[1, 2]])])
    if voters:
        first = metadata_snapshot([], 1000, [voter(node, format_uuid(directory_id(node))) for node in voters])
        (log / snapshot_name(0, 0)).write_bytes(first)
    done = run("rebuild", "--json", "--without", "2", one, "-o", tmp_path / "out")
    assert done.exit_code == 0, done.output
    steps = json_lines(done)[-1]["next"]
    (step,) = [step for step in steps if "kafka-storage format --ignore-formatted" in step]
    assert step.startswith("on broker 2, make new, empty directories in place of the lost ones")
    assert f"format --ignore-formatted{joins} --cluster-id={CLUSTER} -c FILE" in step
