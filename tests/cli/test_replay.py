"""`seglog replay`: the plan, what it leaves out, and the offsets that it sets; the cluster is in memory."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from seglog.model import TopicPartition
from tests.support.command_line import clean_logs, json_lines, run
from tests.support.log_files import transactional
from tests.support.memory_cluster import MemoryCluster


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> MemoryCluster:
    made = MemoryCluster({"payments": 1, "orders-lz4": 1, "t": 1})
    monkeypatch.setattr("seglog_rescue.serve.replay.target.TargetCluster", lambda *_: made)
    return made


def test_what_groups_committed_is_shown_and_set_a_group_at_a_time(cluster: MemoryCluster, tmp_path: Path) -> None:
    logs, chosen = clean_logs(tmp_path), tmp_path / "chosen"
    for name in ("payments-0", "orders-lz4-0", "__consumer_offsets-0", "__consumer_offsets-1"):
        shutil.copytree(logs / name, chosen / name)
    arguments = ["--to", cluster.bootstrap, "--state", tmp_path / "state", "--map", tmp_path / "map.csv", "--groups"]
    result = run("replay", *arguments, chosen)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[:6] == [
        "orders-lz4-0 → orders-lz4-0: from offset 0 to 789",
        "payments-0 → payments-0: from offset 0 to 399",
        "orders-lz4-0 → orders-lz4-0: 790 records replayed in all",
        "payments-0 → payments-0: 231 records replayed in all",
        "group group-0: orders-lz4-0 offset 169 → orders-lz4-0 169",
        "group group-0: payments-0 offset 398 → payments-0 231",
    ]
    expected = [(TopicPartition("orders-lz4", 0), 169), (TopicPartition("payments", 0), 231)]
    assert cluster.commits == {f"group-{number}": expected for number in range(3)}
    again = run("replay", *arguments, chosen).stdout.splitlines()
    assert again[0] == "orders-lz4-0 → orders-lz4-0: nothing left from offset 790 on"
    cluster.commits.clear()
    rows = json_lines(run("replay", "--json", *arguments, chosen))
    assert [row["type"] for row in rows] == ["replay_plan"] * 2 + ["replayed"] * 2 + ["group_offset"] * 6
    assert (rows[1]["from_offset"], rows[1]["to_offset"]) == (395, 400)
    assert (rows[3]["records"], rows[3]["next_offset"], rows[3]["target_end_offset"]) == (231, 395, 231)
    assert rows[5] == {
        "type": "group_offset",
        "group": "group-0",
        "partition": "payments-0",
        "offset": 398,
        "target": "payments-0",
        "new_offset": 231,
    }


@pytest.mark.parametrize("name", ["payments-0", "../payments-0", "."])
def test_groups_of_named_partitions_are_those_of_their_log_directory(
    cluster: MemoryCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    logs, partition = clean_logs(tmp_path), Path(name)
    monkeypatch.chdir(logs if name == "payments-0" else logs / "payments-0")
    arguments = ["--to", cluster.bootstrap, "--state", tmp_path / "state", "--map", tmp_path / "map.csv", "--groups"]
    result = run("replay", *arguments, partition)
    assert result.exit_code == 0, result.output
    expected = [(TopicPartition("payments", 0), 231)]  # of what is replayed: of orders-lz4 they have committed, too
    assert cluster.commits == {f"group-{number}": expected for number in range(3)}


def test_groups_where_none_have_committed_are_wrong_usage_before_anything_is_sent(
    cluster: MemoryCluster, tmp_path: Path
) -> None:
    partition = tmp_path / "alone" / "payments-0"
    shutil.copytree(clean_logs(tmp_path) / "payments-0", partition)
    arguments = ["--to", cluster.bootstrap, "--state", tmp_path / "state", "--groups", partition]
    for more, said in (
        ((), "--groups needs --map"),
        (("--map", tmp_path / "map.csv"), f"there is none in {partition.parent}; name its log directory"),
    ):
        result = run("replay", *arguments, *more)
        assert (result.exit_code, said in result.stderr) == (2, True)
    assert cluster.records == {}
    assert not (tmp_path / "state").exists()


def test_what_cannot_be_replayed_is_named_and_the_exit_code_is_three(cluster: MemoryCluster, tmp_path: Path) -> None:
    partition = tmp_path / "t-0"
    partition.mkdir()
    (partition / f"{0:020d}.log").write_bytes(transactional(0, 7, 0) + transactional(1, 7, 1) + b"\1" * 20)
    result = run("replay", "--to", cluster.bootstrap, "--state", tmp_path / "state", "--dry-run", partition)
    assert result.exit_code == 3
    hanging, torn = result.stderr.splitlines()
    assert hanging.startswith("warning: t-0: offsets 0 to 1 are not replayed, because a transaction begins there")
    assert "so 20 bytes cannot be read (offset 2)" in torn
