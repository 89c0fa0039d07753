"""`seglog groups`: table, JSON lines, Kafka's CSV, odd and damaged input."""

from __future__ import annotations

from pathlib import Path

from seglog.format.uuids import format_uuid
from seglog.model import TopicPartition
from seglog_cli.commands.groups import NOT_YET
from seglog_rescue.operations.groups import coordinator_partition
from tests.support.command_line import clean_logs, json_lines, run
from tests.support.group_records import (
    ORDERS,
    TOPIC_ID,
    classic_group,
    commit,
    share_snapshot,
    share_update,
    streams_group,
)
from tests.support.metadata_records import metadata_record, write_metadata_log
from tests.support.open_logs import opened_log


def offsets_topic(logs: Path, *groups: str, number: int = 0, offset: int = 5) -> Path:
    """Makes a partition of `__consumer_offsets` with one commit for each group."""
    directory = logs / f"__consumer_offsets-{number}"
    with opened_log(directory) as log:
        for group in groups:
            log.append([commit(group, offset)])
    return directory


def test_the_csv_names_groups_only_where_there_are_several(tmp_path: Path) -> None:
    logs = clean_logs(tmp_path)
    assert run("groups", "--csv", "--group", "group-1", logs).stdout == "orders-lz4,0,169\npayments,0,398\n"
    lines = run("groups", "--format", "reset-csv", "--group", "group-[01]", logs).stdout.splitlines()
    assert lines == [f"group-{n},{rest}" for n in (0, 1) for rest in ("orders-lz4,0,169", "payments,0,398")]
    said = run("groups", "--csv", "-v", "--group", "group-[01]", logs).stderr
    assert "--from-file FILE --group group-0 --group group-1 --execute" in said


def test_the_csv_leaves_out_a_partition_that_is_not_there_and_says_so(tmp_path: Path) -> None:
    logs = clean_logs(tmp_path)
    number = next(int(path.name[-1]) for path in sorted(logs.glob("__consumer_offsets-*")))
    with opened_log(logs / f"__consumer_offsets-{number}") as log:
        for topic, partition in (("no-such-topic", 0), ("orders-lz4", 77), ("orders-lz4", 0)):
            log.append([commit("gone", 5, partition=TopicPartition(topic, partition))])
    result = run("groups", "--csv", "--group", "gone", logs)
    assert result.stdout == "orders-lz4,0,5\n"
    assert "the cluster has no no-such-topic-0, orders-lz4-77; left out: for a partition" in result.stderr
    assert [row["topic"] for row in json_lines(run("groups", "--json", "--group", "gone", logs))[1:]] == [
        "no-such-topic",
        "orders-lz4",
        "orders-lz4",
    ]


def test_without_metadata_the_csv_has_every_commit_and_names_those_that_nothing_shows(tmp_path: Path) -> None:
    offsets_topic(tmp_path, "g")
    result = run("groups", "--csv", tmp_path)
    assert result.stdout == "orders,3,5\n"
    assert "nothing here shows whether orders-3 exists: take such lines out" in result.stderr
    (tmp_path / "orders-0").mkdir()
    assert "nothing here shows" not in run("groups", "--csv", tmp_path).stderr, "another broker may have the partition"


def test_a_time_before_any_commit_is_answered_with_a_sentence(tmp_path: Path) -> None:
    offsets_topic(tmp_path, "g")
    result = run("groups", "--at", "999", tmp_path)
    assert (result.stdout, result.stderr) == ("", f"{NOT_YET}\n")
    assert run("groups", "--at", "999", "--json", tmp_path).stdout == ""
    assert NOT_YET not in run("groups", "--at", "1000", tmp_path).stderr
    with opened_log(tmp_path / "empty" / "__consumer_offsets-0"):
        pass
    assert run("groups", tmp_path / "empty").stderr == "no group has committed an offset\n"


def test_lag_is_against_the_logs_that_are_there(tmp_path: Path) -> None:
    logs = clean_logs(tmp_path)
    found = json_lines(run("groups", "--json", "--group", "group-0", logs))
    assert [(one["type"], one["lag"]) for one in found] == [("group", 623), ("group_offset", 621), ("group_offset", 2)]
    assert found[0]["state"] == "Empty"


def test_the_most_advanced_of_several_replicas_counts(tmp_path: Path) -> None:
    one, two = offsets_topic(tmp_path / "1", "g"), offsets_topic(tmp_path / "2", "g", "g", offset=8)
    for paths in ((one, two), (two, one)):
        (group, row) = json_lines(run("groups", "--json", *paths))
        assert (group["group"], row["offset"], row["log_end_offset"], row["lag"]) == ("g", 8, None, None)


def test_what_was_committed_at_a_time_is_what_had_been_written_by_then(tmp_path: Path) -> None:
    with opened_log(tmp_path / "__consumer_offsets-0") as log:
        for offset, stamp in ((3, 1_000_000), (9, 2_000_000)):
            log.append([commit("g", offset, timestamp=stamp)])
        log.append([commit("later", 1, timestamp=3_000_000)])
    shown = {}
    for at in ("999999", "1000000", "1999999", "1970-01-01T00:33:20Z", "3000000"):
        rows = json_lines(run("groups", "--json", "--at", at, tmp_path))
        shown[at] = {one["group"]: one["offset"] for one in rows if one["type"] == "group_offset"}
    assert list(shown.values()) == [{}, {"g": 3}, {"g": 3}, {"g": 9}, {"g": 9, "later": 1}]


def test_a_commit_in_the_wrong_partition_is_said(tmp_path: Path) -> None:
    groups = [name for name in "abcdefgh" if coordinator_partition(name, 50) == coordinator_partition("a", 50)]
    right = coordinator_partition("a", 50)
    offsets_topic(tmp_path, *groups, number=right, offset=4)
    offsets_topic(tmp_path, "a", number=(right + 1) % 50, offset=9)
    offsets_topic(tmp_path, "b", number=coordinator_partition("b", 50))
    result = run("groups", "--json", tmp_path)
    assert f"1 commits of group a, for which Kafka looks in __consumer_offsets-{right}" in result.stderr
    assert [one["offset"] for one in json_lines(result) if one.get("offset")] == [4, 5]


def test_damage_is_reported_and_the_rest_is_shown(tmp_path: Path) -> None:
    directory = offsets_topic(tmp_path, "first", "second")
    (file,) = directory.glob("*.log")
    data = bytearray(file.read_bytes())
    data[70] ^= 1
    file.write_bytes(data)
    result = run("groups", "--csv", tmp_path)
    assert (result.exit_code, result.stdout) == (3, "orders,3,5\n")
    assert "position 0: the checksum" in result.stderr


def test_groups_say_what_they_belong_to(tmp_path: Path) -> None:
    (tmp_path / "counts-app-store-changelog-0").mkdir()
    records = [
        classic_group("connect-files", "consumer"),
        classic_group("own-name", "consumer", protocol="range", client="connector-consumer-files-0"),
        classic_group("connect-me", "consumer", protocol="range", client="a-consumer"),
        classic_group("workers", "connect", protocol="sessioned", client="connect-1"),
        classic_group("registry", "sr", protocol="v0", client="sr-1"),
        classic_group("shop", "consumer", protocol="stream", client="shop-StreamThread-1-consumer"),
        classic_group("counts-app", "consumer"),
        classic_group("counts", "consumer"),
        classic_group("plain", "consumer"),
        *streams_group("new-app"),
    ]
    with opened_log(tmp_path / "__consumer_offsets-0") as log:
        for record in records:
            log.append([record])
    rows = [row for row in json_lines(run("groups", "--json", tmp_path)) if row["type"] == "group"]
    assert {row["group"]: row["used_by"] for row in rows} == {
        "connect-files": "connect-sink",
        "own-name": "connect-sink",
        "connect-me": None,
        "workers": "connect-workers",
        "registry": "schema-registry",
        "shop": "streams",
        "counts-app": "streams",
        "counts": None,
        "plain": None,
        "new-app": "streams",
    }
    lines = run("groups", tmp_path).stdout.splitlines()
    assert [line.split()[-1] for line in lines if line.startswith(("GROUP", "plain", "workers"))] == [
        *("USED-BY", "-", "connect-workers", "CONSUMER-ID")
    ]


def test_a_streams_group_shows_its_topology_and_the_partitions_of_its_tasks(tmp_path: Path) -> None:
    for name in ("orders-2", "orders-3", "few-0", "app-by-city-repartition-3"):
        (tmp_path / name).mkdir()
    with opened_log(tmp_path / "__consumer_offsets-0") as log:
        for record in (*streams_group("app"), commit("app", 5, partition=TopicPartition("orders", 2))):
            log.append([record])
    group, *offsets = json_lines(run("groups", "--json", tmp_path))
    assert (group["group_type"], group["state"], group["epoch"]) == ("streams", "Stable", 4)
    assert group["members"][0]["tasks"] == ["0_2", "0_3", "1_3"]
    assert group["topology"] == {
        "epoch": 7,
        "subtopologies": [
            {"id": "0", "sources": ["orders", "few"]},
            {"id": "1", "sources": ["app-by-city-repartition"]},
        ],
        "changelogs": ["app-n-changelog"],
    }
    assert [(row["topic"], row["partition"], row["offset"], row["member_id"]) for row in offsets] == [
        ("app-by-city-repartition", 3, None, "m"),
        ("orders", 2, 5, "m"),
        ("orders", 3, None, "m"),
    ]


def test_a_groups_own_settings_are_those_of_the_clusters_metadata(tmp_path: Path) -> None:
    settings = [("app", "streams.num.standby.replicas", "1"), ("app", "gone", "1"), ("app", "gone", None)]
    write_metadata_log(
        tmp_path,
        [
            metadata_record("CONFIG_RECORD", resourceType=32, resourceName=group, name=name, value=value)
            for group, name, value in (*settings, ("other", "consumer.session.timeout.ms", "50000"))
        ],
    )
    with opened_log(tmp_path / "__consumer_offsets-0") as log:
        for record in streams_group("app"):
            log.append([record])
    (row,) = [row for row in json_lines(run("groups", "--json", tmp_path)) if row["type"] == "group"]
    assert row["settings"] == {"streams.num.standby.replicas": "1"}


def test_a_share_group_shows_what_is_acknowledged_out_of_order(tmp_path: Path) -> None:
    directory = tmp_path / str(ORDERS)
    directory.mkdir()
    (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {format_uuid(TOPIC_ID)}\n")
    with opened_log(tmp_path / "__share_group_state-0") as log:
        log.append([share_snapshot("g", start=10, delivered=3, batches=[(10, 14), (20, 20)])])
        log.append([share_update("g", start=12, delivered=4, batches=[(13, 16)])])
    (row,) = [one for one in json_lines(run("groups", "--json", tmp_path)) if one["type"] == "group_offset"]
    assert (row["topic"], row["partition"], row["offset"]) == ("orders", 3, 12)
    assert row["batches"] == [
        {"first_offset": first, "last_offset": last, "state": "acknowledged", "delivery_count": 1}
        for first, last in ((12, 16), (20, 20))
    ]
    alone = run("groups", "-v", "--format", "reset-csv", "--group", "g", tmp_path)
    assert alone.stdout == "orders,3,12\n"
    assert "kafka-share-groups --reset-offsets --from-file FILE --group g --execute" in alone.stderr
    with opened_log(tmp_path / "__share_group_state-0") as log:
        log.append([share_snapshot("h", start=7, delivered=0, batches=[])])
    both = run("groups", "--format", "reset-csv", tmp_path)
    assert both.stdout == ""
    assert "takes no share groups; left out: g, h" in both.stderr
