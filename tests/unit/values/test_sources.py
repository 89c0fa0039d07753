"""Where schemas are found: files, lists, logs, and a registry's REST API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import UUID

import pytest

from seglog.errors import ConfigError
from seglog.storage.local import LocalFileSystem
from seglog_ask.values.plain_forms import PLAIN
from seglog_ask.values.registry import Registry
from seglog_ask.values.schemas import NotDecodedError, Reference, closure
from seglog_ask.values.sources import forms_of, source_at
from tests.support.schema_registry import shop

FS = LocalFileSystem()


def test_names_of_files_tell_ids_guids_and_subjects(tmp_path: Path) -> None:
    guid = UUID(int=77)
    (tmp_path / "deep").mkdir()
    (tmp_path / "20.avsc").write_text('"int"')
    (tmp_path / f"{guid}.json").write_text("{}")
    (tmp_path / "deep" / "place.proto").write_text("// place")
    (tmp_path / "orders-value.proto").write_text(
        'import public "deep/place.proto";\nimport "google/protobuf/any.proto";'
    )
    (tmp_path / "README").write_text("no schema")
    source = source_at(FS, str(tmp_path))
    assert (source.by_id(20).type, source.by_id(guid).type) == ("AVRO", "JSON")
    orders = source.latest("orders-value")
    assert orders.references == (Reference("deep/place.proto", "deep/place.proto", 0),)
    assert [one.text for one in closure(orders, source).values()] == ["// place"]
    with pytest.raises(NotDecodedError, match="schema id 21 is not in"):
        source.by_id(21)


def test_a_list_names_files_or_has_the_texts(tmp_path: Path) -> None:
    (tmp_path / "a.avsc").write_text('"int"')
    lines = [
        {"type": "schema", "subject": "a", "version": 3, "id": 5, "schema_type": "AVRO", "file": "a.avsc"},
        {"type": "other"},
        {"type": "schema", "subject": "b", "version": 1, "id": 6, "schema_type": "JSON", "schema": "{}"},
    ]
    (tmp_path / "schemas.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    for where in (tmp_path, tmp_path / "schemas.jsonl"):
        source = source_at(FS, str(where))
        assert (source.by_id(5).text, source.version("a", 3).id, source.by_id(6).type) == ('"int"', 5, "JSON")


@pytest.mark.parametrize(
    "line", ["{", '{"type":"schema","file":"../x"}', '{"type":"schema","schema":"","version":"x"}']
)
def test_a_list_that_is_wrong_names_its_line(tmp_path: Path, line: str) -> None:
    (tmp_path / "schemas.jsonl").write_text(f"\n{line}\n")
    with pytest.raises(ConfigError, match="names no schema") as failure:
        source_at(FS, str(tmp_path))
    assert failure.value.line == 2


def test_logs_are_found_by_themselves_and_by_name(tmp_path: Path) -> None:
    logs = shop(tmp_path / "logs")
    for where in (logs, logs / "_schemas-0", logs / "_schemas-0" / "00000000000000000000.log"):
        assert source_at(FS, str(where)).by_id(2).type == "PROTOBUF"
    assert forms_of(FS, "auto", "registry", beside=[logs]).source is not None
    with pytest.raises(ConfigError, match="there is no _schemas-0 beside the logs"):
        forms_of(FS, "auto", "avro", beside=[tmp_path])
    for where, said in ((tmp_path / "nowhere", "no schemas"), (tmp_path, "no file in it")):
        with pytest.raises(ConfigError, match=said):
            source_at(FS, str(where))
    with pytest.raises(ConfigError, match="schemas are for the forms"):
        forms_of(FS, "string", "auto", schemas=str(logs))
    with pytest.raises(ConfigError, match="has no form 'yaml'"):
        forms_of(FS, "auto", "yaml")


class Answers(BaseHTTPRequestHandler):
    """A registry that knows a few paths, and notes what it was asked."""

    asked: list[tuple[str, str | None]]
    answers: dict[str, tuple[int, bytes]]

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers["Authorization"]))
        code, body = self.answers.get(self.path, (404, b'{"error_code":40403}'))
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def registry() -> Iterator[tuple[str, type[Answers]]]:
    handler = type("Handler", (Answers,), {"asked": [], "answers": {}})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}", handler
    server.shutdown()
    server.server_close()


def test_a_registry_is_asked_once_for_each_schema(registry: tuple[str, type[Answers]]) -> None:
    host, server = registry
    reference = {"name": "A", "subject": "a/b", "version": 2}
    known: dict[str, Any] = {
        "/x/schemas/ids/5": {"schema": '"int"'},
        f"/x/schemas/guids/{UUID(int=6)}": {"schema": "{}", "schemaType": "JSON", "references": [reference]},
        "/x/subjects/a%2Fb/versions/2?deleted=true": {"subject": "a/b", "version": 2, "id": 9, "schema": '"long"'},
        "/x/subjects/a%2Fb/versions/1?deleted=true": {"subject": "a/b", "version": 1, "id": 4, "schema": '"int"'},
        "/x/subjects/a%2Fb/versions/latest": {"subject": "a/b", "version": 3, "id": 10, "schema": '"long"'},
        "/x/subjects/a%2Fb/versions?deleted=true": [1, 2, "x"],
        "/x/schemas/ids/8": {"id": 8},
    }
    server.answers.update({path: (200, json.dumps(body).encode()) for path, body in known.items()})
    server.answers |= {"/x/schemas/ids/11": (500, b"down"), "/x/schemas/ids/12": (200, b"<html>")}
    source = source_at(FS, f"http://me:se%40cret@{host}/x/")
    assert source.by_id(5).text == source.by_id(5).text == '"int"'
    assert len(server.asked) == 1 and server.asked[0][1] == "Basic bWU6c2VAY3JldA=="
    other = source.by_id(UUID(int=6))
    assert [one.id for one in closure(other, source).values()] == [9]
    assert source.latest("a/b").id == 10
    assert [one.id for one in source.versions("a/b")] == [4, 9] and source.versions("c") == []
    for number, said in ((7, f"schema id 7 is not in http://{host}/x"), (8, "without a schema"), (12, "not JSON")):
        with pytest.raises(NotDecodedError, match=said):
            source.by_id(number)
    with pytest.raises(OSError, match="answers 500"):
        source.by_id(11)


def test_a_registry_that_does_not_answer_or_is_no_url_is_an_error() -> None:
    with pytest.raises(OSError, match=r"http://127\.0\.0\.1:1 does not answer"):
        Registry("http://user:secret@127.0.0.1:1").by_id(1)
    with pytest.raises(ConfigError, match="not the URL"):
        Registry("http://")


@pytest.mark.parametrize(
    ("form", "data", "shown"),
    [
        ("short", b"\xff\xfe", "-2"),
        ("int", b"\0\0\1\0", "256"),
        ("long", b"\x7f" + b"\xff" * 7, str(2**63 - 1)),
        ("float", b"\x3f\xc0\0\0", "1.5"),
        ("double", b"\x7f\xf8" + bytes(6), '"NaN"'),
        ("double", b"\xff\xf0" + bytes(6), '"-Infinity"'),
        ("uuid", bytes(15) + b"\1", '"00000000-0000-0000-0000-000000000001"'),
    ],
)
def test_plain_forms_are_those_of_kafkas_serializers(form: str, data: bytes, shown: str) -> None:
    assert PLAIN[form](data) == shown
    with pytest.raises(NotDecodedError, match=f"it has {len(data) + 1} bytes, not {len(data)}"):
        PLAIN[form](data + b"x")
