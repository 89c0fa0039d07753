"""`seglog schemas`: a registry's log as a list, as files, and as requests that a new registry takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

import seglog
from tests.support.command_line import ended, json_lines, run
from tests.support.schema_registry import ITEM, ORDER, entry, framed, registered, shop, write_log


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A registry with references, a deleted version, settings, names that no file has, and a context."""
    return write_log(
        tmp_path / "logs" / "_schemas-0",
        [
            entry({"keytype": "CONFIG", "subject": None, "magic": 0}, {"compatibilityLevel": "FULL"}),
            entry({"keytype": "CONFIG", "subject": "a/b", "magic": 0}, {"compatibilityLevel": "NONE"}),
            entry({"keytype": "MODE", "subject": "a/b", "magic": 0}, {"mode": "READONLY"}),
            registered("order", 1, 3, {**ORDER, "fields": [{"name": "item", "type": "shop.Item"}]}, "AVRO", [ITEM_REF]),
            registered("shop.Item", 4, 9, {"type": "record", "name": "shop.Item", "fields": []}),
            registered("a/b", 1, 5, ITEM, "PROTOBUF"),
            registered("a/b", 2, 6, ITEM + "// 2", "PROTOBUF", deleted=True),
            registered("../x", 1, 7, '"int"'),
        ],
    )


ITEM_REF = ("shop.Item", "shop.Item", 4)


class NewRegistry:
    """A registry of Confluent's rules as far as an import meets them: ids and references must fit, in this order."""

    def __init__(self) -> None:
        self.mode, self.settings = "READWRITE", dict[str, Any]()
        self.ids: dict[int, str] = {}
        self.versions: dict[tuple[str, int], dict[str, Any]] = {}

    def take(self, method: str, path: str, body: Any) -> None:
        parts = [unquote(part) for part in urlsplit(path).path.split("/")[1:]]
        if parts == ["mode"]:
            self.mode = body["mode"]
        elif method == "POST":
            assert self.mode == "IMPORT" and parts[0] == "subjects"
            for one in body.get("references", []):
                assert (one["subject"], one["version"]) in self.versions
            assert self.ids.setdefault(body["id"], body["schema"]) == body["schema"]
            self.versions[parts[1], body["version"]] = {**body, "deleted": False}
        elif method == "DELETE":
            self.versions[parts[1], int(parts[3])]["deleted"] = True
        else:
            self.settings[path] = body


def test_the_list_has_ids_references_and_what_is_deleted(log: Path) -> None:
    lines = run("schemas", log.parent).stdout.splitlines()
    assert [line.split()[:4] for line in lines[1:]] == [
        ["3", "order", "1", "AVRO"],
        ["5", "a/b", "1", "PROTOBUF"],
        ["6", "a/b", "2", "PROTOBUF"],
        ["7", "../x", "1", "AVRO"],
        ["9", "shop.Item", "4", "AVRO"],
    ]
    assert "shop.Item 4" in lines[1] and "deleted" in lines[3]
    (one,) = json_lines(run("schemas", "--json", log, "--subject", "order"))
    assert (one["id"], one["references"]) == (3, [{"name": "shop.Item", "subject": "shop.Item", "version": 4}])
    assert [schema.id for schema in seglog.schemas(log.parent)] == [3, 5, 6, 7, 9]


def test_a_new_registry_that_takes_the_requests_knows_the_same(log: Path) -> None:
    registry = NewRegistry()
    for request in json_lines(run("schemas", "--requests", log)):
        registry.take(request["method"], request["path"], request["body"])
    assert registry.mode == "READWRITE"
    assert registry.settings == {
        "/config": {"compatibility": "FULL"},
        "/config/a%2Fb": {"compatibility": "NONE"},
        "/mode/a%2Fb": {"mode": "READONLY"},
    }
    known = {
        (place, one["id"], one["schema"], one.get("schemaType", "AVRO"), one["deleted"])
        for place, one in registry.versions.items()
    }
    assert known == {((s.subject, s.version), s.id, s.text, s.type, s.deleted) for s in seglog.schemas(log)}
    only = json_lines(run("schemas", "--requests", log, "--subject", "order"))
    assert [one["body"]["id"] for one in only if one["method"] == "POST"] == [9, 3]


def test_metadata_and_rules_come_to_the_new_registry_and_to_a_copy_of_the_log(tmp_path: Path) -> None:
    metadata, rules = {"tags": {"Order.city": ["PII"]}, "properties": {"owner": "Ä"}}, {"domainRules": [{"name": "r"}]}
    records = [
        registered("a", 1, 1, ORDER, metadata=metadata, ruleSet=rules),
        registered("b", 1, 2, ORDER, metadata=None, ruleSet=None),
    ]
    write_log(tmp_path / "logs" / "_schemas-0", records)
    requests = json_lines(run("schemas", "--requests", tmp_path / "logs"))
    first, second = (one["body"] for one in requests if one["method"] == "POST")
    assert (first["metadata"], first["ruleSet"]) == (metadata, rules)
    assert "metadata" not in second and "ruleSet" not in second
    (listed,) = json_lines(run("schemas", "--json", tmp_path / "logs", "--subject", "a"))
    assert (listed["metadata"], listed["ruleSet"]) == (metadata, rules)
    lines, copy = tmp_path / "schemas.jsonl", tmp_path / "new" / "_schemas-0"
    assert run("export", tmp_path / "logs" / "_schemas-0", "-o", lines).exit_code == 0
    copy.parent.mkdir()
    assert run("append", "--create", copy, lines).exit_code == 0
    assert json_lines(run("schemas", "--requests", copy)) == requests


def test_files_decode_what_the_registry_decoded(tmp_path: Path) -> None:
    logs = shop(tmp_path / "logs")
    beside = json_lines(run("read", "--json", logs / "orders-0", "--value-as", "registry"))
    assert run("schemas", logs, "-o", tmp_path / "files").exit_code == 0
    listed = run("schemas", "--json", logs).stdout
    (tmp_path / "list.jsonl").write_text(listed)
    (logs / "_schemas-0").rename(tmp_path / "elsewhere-0")
    for where in (tmp_path / "files", tmp_path / "list.jsonl", tmp_path / "elsewhere-0"):
        lines = json_lines(run("read", "--json", logs / "orders-0", "--value-as", "registry", "--schemas", where))
        assert [line.get("value") for line in lines] == [line.get("value") for line in beside]
        assert "schema id 20 is not in" in lines[3]["value_error"]


def test_subjects_that_no_file_may_be_called_stay_in_the_directory(log: Path, tmp_path: Path) -> None:
    assert run("schemas", log, "-o", tmp_path / "out").exit_code == 0
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == [
        "%2E.%2Fx-v1-id7.avsc",
        "a%2Fb-v1-id5.proto",
        "a%2Fb-v2-id6.proto",
        "order-v1-id3.avsc",
        "schemas.jsonl",
        "shop.Item-v4-id9.avsc",
    ]
    again = ended("schemas", log, "-o", tmp_path / "out")
    assert again.code != 0 and b"something is there" in again.stderr
    record = seglog.Record(framed(9, b""), timestamp=1)
    data = write_log(tmp_path / "t-0", [record])
    (line,) = json_lines(run("read", "--json", data, "--value-as", "registry", "--schemas", tmp_path / "out"))
    assert line["value"] == {} and line["value_schema"] == 9


def test_damage_is_told_with_exit_code_1(tmp_path: Path) -> None:
    log = write_log(tmp_path / "_schemas-0", [registered("a", 1, 1, '"int"'), seglog.Record(b"{", key=b"{")])
    done = run("schemas", "--json", tmp_path)
    assert done.exit_code == 1 and "the record at offset 1 is left out" in done.stderr
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [1]
    assert run("schemas", log).exit_code == 1


def test_wrong_usage_says_so(log: Path, tmp_path: Path) -> None:
    for words, code, said in (
        (("schemas", tmp_path / "logs" / "nowhere"), 10, "no Kafka log there"),
        (("schemas", tmp_path), 10, "no log of a schema registry"),
        (("schemas", log, "--subject", "nobody"), 2, "has no subject nobody"),
        (("schemas", log, "--requests", "-o", tmp_path / "x"), 2, "give one of them"),
    ):
        done = ended(*words)
        assert said in done.stderr.decode() and done.code == code, done
