"""`seglog dump` and `dump-log`: formats, filters, damage."""

from __future__ import annotations

import base64
import csv
import json
import re
import shutil
from pathlib import Path

import pytest

from tests.support.broken.wounded_starts import METADATA, made, snapshot_name, sound
from tests.support.command_line import clean_logs, ended, json_lines, run
from tests.support.fixtures import expected
from tests.support.log_files import CONTROL, write_segment
from tests.support.naive import NaiveRecord, batch_v2


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return clean_logs(tmp_path)


def damage(partition: Path, position: int) -> Path:
    """Flips a bit of the first segment."""
    path = sorted(partition.glob("*.log"))[0]
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)
    return path


def test_json_batches_have_the_contracts_fields_in_its_order(logs: Path) -> None:
    first = json_lines(run("dump", "--json", "--limit", "1", logs / "payments-0"))[0]
    names = (
        "type partition file position size magic base_offset last_offset count codec timestamp_type base_timestamp"
        " max_timestamp delete_horizon producer_id producer_epoch base_sequence last_sequence transactional control"
        " leader_epoch crc valid"
    )
    assert " ".join(first) == names


def test_records_are_those_that_kafka_lists(logs: Path) -> None:
    listed = [one for one in expected("4.3.0/clean", "orders-snappy-0", "list") if one["t"] == "record"]
    shown = json_lines(run("dump", "--records", "--json", logs / "orders-snappy-0"))
    records = [one for one in shown if one["type"] == "record"]
    assert len(records) > 700
    wanted = [(one["offset"], one["timestamp"], one["sequence"]) for one in listed]
    assert [(one["offset"], one["timestamp"], one["sequence"]) for one in records] == wanted


def test_base64_can_be_had_for_all(logs: Path) -> None:
    (plain,) = json_lines(run("dump", "--json", "--records", "--limit", "1", logs / "customers-0"))[1:]
    (coded,) = json_lines(
        run("dump", "--json", "--records", "--limit", "1", "--bytes", "base64", logs / "customers-0")
    )[1:]
    assert base64.b64decode(coded["key_b64"]).decode() == plain["key"]
    assert "key" not in coded


def test_filters_narrow_it_down(logs: Path) -> None:
    log = logs / "customers-0"
    everything = [r for r in json_lines(run("dump", "--records", "--json", log)) if r["type"] == "record"]
    some = everything[3]
    asked = run("dump", "--records", "--json", "--key", some["key"], "--from-offset", str(some["offset"]), log)
    found = [r["offset"] for r in json_lines(asked) if r["type"] == "record"]
    assert found == [r["offset"] for r in everything if r["key"] == some["key"] and r["offset"] >= some["offset"]]
    later = run("dump", "--records", "--json", "--since", str(some["timestamp"] + 1), log)
    times = [r["timestamp"] for r in json_lines(later) if r["type"] == "record"]
    assert times and min(times) > some["timestamp"]


def test_dump_reports_damage_and_shows_the_rest(logs: Path) -> None:
    log = logs / "orders-none-0"
    whole = json_lines(run("dump", "--json", log))
    damage(log, whole[1]["position"] + 100)
    done = run("dump", "--records", "--json", log)
    lines = json_lines(done)
    assert done.exit_code == 1
    assert [one["code"] for one in lines if one["type"] == "finding"] == ["CRC_MISMATCH"]
    assert [one["base_offset"] for one in lines if one["type"] == "batch"] == [one["base_offset"] for one in whole]
    hidden = range(whole[1]["base_offset"], whole[1]["last_offset"] + 1)
    assert not {one["offset"] for one in lines if one["type"] == "record"} & set(hidden)
    untrusted = json_lines(run("dump", "--records", "--json", "--untrusted", log))
    assert {one["offset"] for one in untrusted if one.get("trusted") is False} == set(hidden)


def test_every_file_of_a_log_directory_can_be_dumped(logs: Path) -> None:
    done = run("dump", "--all", "--json", logs)
    assert done.exit_code == 0, done.stderr
    of_segments = {"batch", "offset_index_entry", "time_index_entry", "aborted_transaction", "producer"}
    beside_them = {"checkpoint", "leader_epoch", "meta_properties", "partition_metadata"}
    assert {one["type"] for one in json_lines(done)} == of_segments | beside_them


@pytest.mark.parametrize("partition", ["orders-zstd-0", "payments-0", "customers-0"])
def test_dump_log_prints_kafkas_text(partition: str, logs: Path) -> None:
    files = ",".join(str(path) for path in sorted((logs / partition).glob("*.log")))
    shown = run("dump-log", "--print-data-log", "--files", files).stdout.replace(f"{logs / partition}/", "")
    wanted = expected("4.3.0/clean", partition, "dump")
    assert _without_places(shown) == _without_places(wanted)


def _without_places(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("Dumping ")]


def test_dump_log_ignores_a_file_of_another_kind_with_kafkas_words(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    done = run("dump-log", "--files", tmp_path / "notes.txt")
    assert (done.exit_code, done.stdout) == (0, f"Dumping {tmp_path}/notes.txt\n")
    assert done.stderr == f"Ignoring unknown file {tmp_path}/notes.txt\n"


def test_gaps_that_compaction_leaves_are_named_and_are_no_damage(logs: Path) -> None:
    done = run("dump-log", "--deep-iteration", "--files", logs / "customers-0" / f"{0:020d}.log")
    assert done.exit_code == 0
    assert "Non-consecutive offsets" in done.stderr


def test_dump_log_exits_with_1_where_kafkas_tool_hides_damage(logs: Path) -> None:
    path = damage(logs / "orders-none-0", 200)
    done = run("dump-log", "--deep-iteration", "--files", path)
    assert done.exit_code == 1
    assert "isvalid: false" in done.stdout
    assert "CRC_MISMATCH" in done.stderr


@pytest.mark.parametrize(("files", "code", "said"), [
    ("{logs}/{name},{logs}/gone/{name}", 10, "gone/{name}: no such file or directory"),
    (",", 2, "--files: name at least one file"),
    ("", 2, "--files: name at least one file"),
])  # fmt: skip
def test_dump_log_without_its_files_is_wrong_usage_or_no_log(files: str, code: int, said: str, tmp_path: Path) -> None:
    logs, name = clean_logs(tmp_path) / "both-0", f"{0:020d}.log"
    result = run("dump-log", "--files", files.format(logs=logs, name=name))
    assert (result.exit_code, result.stderr.count("error: ")) == (code, 1)
    assert said.format(name=name) in result.stderr
    assert ("Log starting offset: 0" in result.stdout) == (code == 10)


def test_a_records_json_says_whose_it_is(tmp_path: Path) -> None:
    log = clean_logs(tmp_path) / "payments-0"
    lines = json_lines(run("dump", "--json", "--records", log))
    of_batch = ("producer_id", "producer_epoch", "leader_epoch")
    wanted, batch = {}, {}
    for line in lines:
        if line["type"] == "batch":
            batch = line
            continue
        assert list(line)[:8] == [
            *("type", "partition", "offset", "timestamp"),
            *("producer_id", "producer_epoch", "sequence", "leader_epoch"),
        ]
        assert line["partition"] == "payments-0"
        assert [line[name] for name in of_batch] == [batch[name] for name in of_batch]
        if not batch["control"]:
            wanted[line["offset"]] = line
    assert len({line["producer_id"] for line in wanted.values()}) > 1
    assert json_lines(run("read", "--json", log)) == list(wanted.values())
    assert json_lines(run("export", log, "-o", "-", "--format", "jsonl")) == list(wanted.values())


# What kafka-dump-log prints of a record, held equal to Kafka's by `tests/interop/test_dump_log.py`.
DUMPED = re.compile(r"^\| offset: (\d+) .*? headerKeys: \[[^]]*\](?: key: (.*?))?(?: payload: (.*))?$")
DECODED = {
    "__consumer_offsets-0": "--offsets-decoder",
    "__transaction_state-1": "--transaction-log-decoder",
    "__cluster_metadata-0": "--cluster-metadata-decoder",
}


@pytest.mark.parametrize("partition", DECODED)
def test_records_of_internal_topics_are_decoded_as_kafkas_tool_decodes_them(partition: str, logs: Path) -> None:
    log = logs / partition
    (segment,) = log.glob("*.log")
    told = {}
    for line in ended("dump-log", "--files", segment, DECODED[partition]).stdout.decode().splitlines():
        found = DUMPED.match(line)
        if found is not None and " endTxnMarker" not in line:
            told[int(found[1])] = (found[2], None if found[3] == "<DELETE>" else found[3])
    shown = [one for one in json_lines(run("dump", "-r", "--json", "--decode", log)) if one["type"] == "record"]
    control = {one["base_offset"] for one in json_lines(run("dump", "--json", log)) if one["control"]}
    data = [one for one in shown if one["offset"] not in control]
    assert len(data) > 10 and any(isinstance(one["value"], dict) for one in data)
    for one in data:
        key, value = (None if one[part] is None else json.dumps(one[part]) for part in ("key", "value"))
        theirs = (None if text is None else json.dumps(json.loads(text)) for text in told[one["offset"]])
        assert (key, value) == tuple(theirs)
    read = json_lines(run("read", "--json", "--decode", log))
    assert [one for one in read if one["offset"] not in control] == data
    run("export", "--decode", log, "-o", logs / "out.jsonl")
    exported = map(json.loads, (logs / "out.jsonl").read_text().splitlines())
    assert list(exported) == data
    run("export", "--decode", log, "-o", logs / "out.csv")
    with (logs / "out.csv").open(newline="") as file:
        cells = [(int(row["offset"]), row["key"] or None, row["value"] or None) for row in csv.DictReader(file)]
    assert cells == [(one["offset"], *told[one["offset"]]) for one in data]


def test_decoding_what_is_not_encoded_is_wrong_usage(logs: Path) -> None:
    for words, said in (
        (("read", "--decode", logs / "payments-0"), "internal topics"),
        (("dump", "--decode", logs / "__consumer_offsets-0"), "--records"),
        (("dump", "-r", "--decode", "--bytes", "base64", logs), "one of them"),
        (("export", "--decode", logs / "payments", "-o", "-", "--format", "csv"), "internal topics"),
    ):
        asked = ended(*words)
        assert asked.code == 2 and said in asked.stderr.decode()


def test_a_record_that_no_decoder_takes_says_so_and_keeps_its_value(tmp_path: Path) -> None:
    log = tmp_path / "__consumer_offsets-3"
    write_segment(log, 0, batch_v2(0, [NaiveRecord(0, 0, b"\x7f\x00", b"\xff"), NaiveRecord(1, 0, None, b'{"a":1}')]))
    first, second = json_lines(run("read", "--json", "--decode", log))
    assert first["key"] == "Unknown record type 32512 at offset 0, skipping." and first["value_b64"] == "/w=="
    assert second["key"] is None and second["value"] == '{"a":1}'  # not decoded: as it is


def test_control_records_of_a_quorum_are_decoded(tmp_path: Path) -> None:
    (logs,) = made(sound("dynamic"), tmp_path)
    path = logs / METADATA / snapshot_name(0, 0)
    rows = [row for row in json_lines(run("dump", "-r", "--decode", "--json", path)) if row["type"] == "record"]
    kinds = [row["key"]["type"] for row in rows]
    assert kinds == ["SNAPSHOT_HEADER", "KRAFT_VERSION", "KRAFT_VOTERS", "SNAPSHOT_FOOTER"]
    assert [row["value"]["type"] for row in rows] == kinds
    assert rows[1]["value"] == {"type": "KRAFT_VERSION", "version": 0, "data": {"kRaftVersion": 1}}
    (voter,) = rows[2]["value"]["data"]["voters"]
    assert voter["voterId"] == 1 and voter["voterDirectoryId"] in (logs / "meta.properties").read_text()
    shown = json_lines(run("dump", "-r", "--decode", "--json", logs / METADATA))
    leaders = [row for row in shown if row["type"] == "record" and row["key"] == {"type": "LEADER_CHANGE"}]
    assert leaders and leaders[0]["value"]["data"]["leaderId"] == 1


def test_a_control_record_that_is_not_known_or_not_whole_is_bytes(tmp_path: Path) -> None:
    log = tmp_path / "__cluster_metadata-0"
    unknown, broken = NaiveRecord(0, 0, b"\0\0\0\x63", b"\xff"), NaiveRecord(1, 0, b"\0\0\0\6", b"\0\0")
    write_segment(log, 0, batch_v2(0, [unknown, broken], attributes=CONTROL))
    first, second = (row for row in json_lines(run("dump", "-r", "--decode", "--json", log)) if row["type"] == "record")
    assert (first["key"], first["value_b64"]) == ({"type": 99}, "/w==")
    assert (second["key_b64"], second["value_b64"]) == ("AAAABg==", "AAA=")


def test_a_topic_is_all_its_partitions_by_number(logs: Path) -> None:
    (logs / "customers-1").rename(logs / "customers-10")
    shutil.copytree(logs / "customers-0", logs / "customers-2")
    run("export", logs / "customers", "-o", logs / "out.csv", "--limit", "700")
    with (logs / "out.csv").open(newline="") as file:
        numbers = [int(row["partition"]) for row in csv.DictReader(file)]
    assert (numbers, len(numbers)) == (sorted(numbers), 700)
    assert set(numbers) == {0, 2, 10}
    dumped = {one["partition"] for one in json_lines(run("dump", "--json", logs / "customers"))}
    assert dumped == {"customers-0", "customers-2", "customers-10"}
    assert ended("export", logs / "custom", "-o", "-", "--format", "csv").code != 0


@pytest.mark.parametrize("options", [("--records",), ("--from-offset", "3"), ("--isolation", "read_committed")])
def test_what_chooses_records_is_wrong_usage_where_no_file_is_a_log(logs: Path, options: tuple[str, ...]) -> None:
    index = logs / "customers-0" / "00000000000000000000.index"
    done = run("dump", *options, index, logs / "meta.properties")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "are for logs: none of these files is a log" in done.stderr
    assert run("dump", *options, index, logs / "customers-0" / "00000000000000000000.log").exit_code == 0
