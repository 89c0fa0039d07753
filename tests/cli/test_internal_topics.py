"""Topics of MirrorMaker, Connect, registries and Streams: decoded by every command that shows records."""

from __future__ import annotations

import base64
import csv
import io
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import seglog
from tests.support.command_line import ended, json_lines, run
from tests.support.schema_registry import write_log

WRITTEN = Path(__file__).parents[1] / "golden" / "internal_topics.jsonl"
KAFKA = ("--key-as", "kafka", "--value-as", "kafka")
READ, DUMP, EXPORT = ("read", "--json"), ("dump", "--json", "-r"), ("export", "-o", "-", "--format", "jsonl")


@pytest.fixture(scope="module")
def topics() -> dict[str, list[dict[str, Any]]]:
    lines = [json.loads(line) for line in WRITTEN.read_text(encoding="utf-8").splitlines()]
    return {line["topic"]: [one for one in lines if one["topic"] == line["topic"]] for line in lines}


def log_of(directory: Path, rows: list[dict[str, Any]]) -> Path:
    data = [[None if row[name] is None else base64.b64decode(row[name]) for name in ("key_b64", "value_b64")]
            for row in rows]  # fmt: skip
    records = [seglog.Record(value, key=key, timestamp=1000) for key, value in data]
    return write_log(directory / f"{rows[0]['topic']}-0", records)


@pytest.mark.parametrize("words", [READ, DUMP, EXPORT])
def test_topics_whose_names_say_it_are_decoded(
    topics: dict[str, list[dict[str, Any]]], tmp_path: Path, words: tuple[str, ...]
) -> None:
    for topic in ("old.checkpoints.internal", "connect-configs", "shop-KSTREAM-OUTERSHARED-0000000016-store-changelog"):
        rows = topics[topic]
        log = log_of(tmp_path, rows)
        for form in (KAFKA, ("--decode",)):
            lines = [line for line in json_lines(run(*words, log, *form)) if line.get("type", "record") == "record"]
            assert [(line["key"], line["value"]) for line in lines] == [(row["key"], row["value"]) for row in rows]


def test_a_topic_of_another_name_is_decoded_as_what_it_is_said_to_hold(
    topics: dict[str, list[dict[str, Any]]], tmp_path: Path
) -> None:
    (row, *_) = topics["shop-sessions-changelog"]
    log = log_of(tmp_path, [row])
    (line,) = json_lines(run("read", "--json", log, "--key-as", "kafka:streams-session", "--value-as", "long"))
    assert (line["key"], line["value"]) == (row["key"], 1)
    assert json_lines(run("read", "--json", log, *KAFKA))[0]["value"] == "\0\0\0\0\0\0\0\1"  # as it is
    query = "select key->>'start' as start, value from \"shop-sessions-changelog\""
    answer = json_lines(
        run("sql", "--json", query, tmp_path, "--key-as", "kafka:streams-session", "--value-as", "long")
    )
    assert answer == [{"start": str(row["key"]["start"]), "value": "1"}]
    (latest,) = json_lines(run("latest", "--json", log, "--key-as", "kafka:streams-session"))
    assert latest["key"] == row["key"]
    for words, said in ((("read", log, "--value-as", "kafka:nothing"), "kafka: takes offsets, transactions"),
                        (("read", log, "--decode"), "internal topics, by their names")):  # fmt: skip
        asked = ended(*words)
        assert asked.code == 2 and said in asked.stderr.decode()


def test_bytes_that_no_decoder_takes_stay_beside_the_reason(
    topics: dict[str, list[dict[str, Any]]], tmp_path: Path
) -> None:
    (row,) = topics["old.checkpoints.internal"]
    bad = {**row, "key_b64": "AAU=", "value_b64": "AAEB"}
    log = log_of(tmp_path, [row, bad, {**row, "value_b64": None}])
    done = run("read", "--json", log, *KAFKA)
    good, line, tombstone = json_lines(done)
    assert good["value"] == row["value"] and "value_error" not in good
    assert (line["key_b64"], line["value_b64"]) == ("AAU=", "AAEB")
    assert line["value_error"] == "its version is 1, and only 0 is known" and "5 byte" in line["key_error"]
    assert tombstone["key"] == row["key"] and tombstone["value"] is None
    assert "1 value not decoded: its version is 1" in done.stderr
    table = list(csv.DictReader(io.StringIO(run("export", log, "-o", "-", "--format", "csv", "--decode").stdout)))
    assert table[1]["value"] == "AAEB" and table[1]["value_error"] == line["value_error"]
    assert table[0]["value_error"] == "" and json.loads(table[0]["value"]) == row["value"]
    out = tmp_path / "out.parquet"
    run("export", log, "-o", out, *KAFKA)
    assert pq.read_table(out)["value_bytes"].to_pylist() == [None, b"\0\1\1", None]
    query = 'select value_error from "old.checkpoints.internal" order by "offset"'
    rows = json_lines(run("sql", "--json", query, tmp_path, *KAFKA))
    assert [one["value_error"] for one in rows] == [None, line["value_error"], None]
    read = seglog.open_table(tmp_path, value_as="kafka").to_table().to_pylist()
    assert [one["value_error"] for one in read] == [None, line["value_error"], None]
