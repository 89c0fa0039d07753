"""What a log of `_schemas` tells, whole and damaged."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from uuid import UUID

import pytest

import seglog
from seglog.storage.local import LocalFileSystem
from seglog_ask.values.schemas import MOST_REFERENCES, KnownSchemas, NotDecodedError, Reference, Schema, closure
from seglog_ask.values.schemas_topic import SchemasTopic, read_schemas
from tests.support.schema_registry import ORDER, entry, registered, write_log


def read(directory: Path, *records: seglog.Record) -> SchemasTopic:
    return read_schemas(LocalFileSystem(), write_log(directory / "_schemas-0", records))


def test_the_newest_record_of_a_version_counts(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        registered("a-value", 1, 1, '"int"'),
        registered("a-value", 1, 7, '"string"'),
        registered("a-value", 2, 8, "{}", "JSON", [("b", "b-value", 3)]),
    )
    assert [(one.subject, one.version, one.id, one.type, one.text) for one in found.schemas] == [
        ("a-value", 1, 7, "AVRO", '"string"'),
        ("a-value", 2, 8, "JSON", "{}"),
    ]
    assert found.schemas[1].references == (Reference("b", "b-value", 3),)
    assert found.known.by_id(8) == found.known.latest("a-value") == found.schemas[1]
    with pytest.raises(NotDecodedError, match="schema id 1 is not in"):
        found.known.by_id(1)


def test_deleted_versions_still_decode(tmp_path: Path) -> None:
    key = {"keytype": "SCHEMA", "subject": "c-value", "version": 1, "magic": 1}
    found = read(
        tmp_path,
        registered("a-value", 1, 1, '"int"'),
        registered("a-value", 2, 2, '"long"'),
        registered("b-value", 1, 3, '"int"', deleted=True),
        registered("c-value", 1, 4, '"int"'),
        registered("d-value", 1, 5, '"int"'),
        entry({"keytype": "DELETE_SUBJECT", "subject": "a-value", "magic": 0}, {"subject": "a-value", "version": 1}),
        entry({"keytype": "CLEAR_SUBJECT", "subject": "d-value", "magic": 0}, {"subject": "d-value"}),
        entry(key, None),
    )
    assert {one.id: one.deleted for one in found.schemas} == {1: True, 2: False, 3: True, 4: True, 5: True}
    assert found.known.by_id(4).text == '"int"'
    assert found.known.latest("a-value").version == 2


def test_of_two_schemas_with_one_id_a_topic_has_that_of_its_subject(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        registered("a-value", 1, 5, '"int"'),
        registered("b-value", 1, 5, '"string"'),
        registered("c-value", 3, 5, '"string"'),  # as a registry keeps one schema of two subjects
        registered("d-value", 1, 6, '"int"', deleted=True),
        registered("e-value", 1, 6, '"long"'),
        registered("a-value", 2, 7, '"long"'),
        registered("b-value", 2, 7, '"long"'),
        registered(":.lab:a", 1, 7, '"string"'),
    )
    known = found.known
    assert [known.by_id(5, f"{one}-value").text for one in "abc"] == ['"int"', '"string"', '"string"']
    assert known.by_id(5, "a-value").label == (
        "schema 5 (a-value version 1; b-value version 1 and c-value version 3 have this id, too)"
    )
    with pytest.raises(
        NotDecodedError, match="id 5 is of a-value version 1 and b-value version 1 and c-value version 3"
    ):
        known.by_id(5, "x-value")
    assert [known.by_id(6, one).text for one in ("d-value", "e-value", "x-value")] == ['"int"', '"long"', '"long"']
    assert known.by_id(7, "x-value").text == '"long"' and 7 not in known.twins
    assert [problem.partition(": ")[2] for problem in found.problems] == [
        "schema id 5 is of a-value version 1 and b-value version 1 and c-value version 3, which differ: "
        "a topic has that of its subject",
        "schema id 6 is of d-value version 1 and e-value version 1, which differ: a topic has that of its subject",
    ]
    assert "damaged" not in known.where


def test_settings_guids_and_contexts_are_read(tmp_path: Path) -> None:
    digest = hashlib.md5(b"x").digest()
    found = read(
        tmp_path,
        entry({"keytype": "CONFIG", "subject": None, "magic": 0}, {"compatibilityLevel": "FULL"}),
        entry({"keytype": "MODE", "subject": "a", "magic": 0}, {"mode": "IMPORT"}),
        registered("a", 1, 1, '"int"', md5=base64.b64encode(digest).decode()),
        registered(":.lab:a", 1, 1, '"string"'),
        registered("b", 1, 2, '"long"', guid=str(UUID(int=5))),
    )
    assert found.settings == {("CONFIG", ""): "FULL", ("MODE", "a"): "IMPORT"}
    assert found.known.by_id(UUID(bytes=digest)).id == 1
    assert found.known.by_id(UUID(int=5)).id == 2
    assert found.known.by_id(1).text == '"int"'


def test_what_is_broken_is_told_and_left_out(tmp_path: Path) -> None:
    broken = [
        seglog.Record(b"{}", key=b"{"),
        seglog.Record(b"\xff", key=b"{}"),
        seglog.Record(b"[]", key=b"[]"),
        seglog.Record(b"1", key=b"[" * 100_000),
        registered("a", 1, "x", '"int"'),  # type: ignore[arg-type]
        registered("a", "1", 1, '"int"'),  # type: ignore[arg-type]
        entry({"keytype": "SCHEMA", "subject": "a", "version": 1}, {"id": 1}),
        registered("a", 3, 9, '"int"', kind="AVRO", schemaType=7),
    ]
    found = read(tmp_path, *broken, registered("a", 2, 2, '"int"'), seglog.Record(None, key=None))
    assert [one.id for one in found.schemas] == [2]
    assert len(found.problems) == len(broken)


def test_damage_hides_only_what_it_hits(tmp_path: Path) -> None:
    with seglog.open_log(tmp_path / "_schemas-0", create=True) as log:
        for number in range(1, 4):
            log.append([registered("a", number, number, ORDER)])
    (segment,) = (tmp_path / "_schemas-0").glob("*.log")
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    found = read_schemas(LocalFileSystem(), tmp_path / "_schemas-0")
    assert [one.id for one in found.schemas] == [1, 3]
    assert len(found.problems) == 1
    assert [one.id for one in read_schemas(LocalFileSystem(), segment).schemas] == [1, 3]
    with pytest.raises(NotDecodedError, match=r"schema id 2 is not in .*, where something is damaged"):
        found.known.by_id(2)


def known(*schemas: Schema) -> KnownSchemas:
    source = KnownSchemas("the test")
    for one in schemas:
        source.add(one)
    return source


def test_references_are_followed_those_that_others_need_first() -> None:
    c = Schema("AVRO", "c", 1, "c", 1)
    b = Schema("AVRO", "b", 2, "b", 1, (Reference("C", "c", 1),))
    a = Schema("AVRO", "a", 3, "a", 1, (Reference("B", "b", 1), Reference("C", "c", 1)))
    assert list(closure(a, known(a, b, c))) == ["C", "B"]
    with pytest.raises(NotDecodedError, match="version 1 of subject c is not in the test"):
        closure(a, known(a, b))


def test_references_in_a_circle_or_without_end_are_refused() -> None:
    a = Schema("AVRO", "a", 1, "a", 1, (Reference("B", "b", 1),))
    b = Schema("AVRO", "b", 2, "b", 1, (Reference("A", "a", 1),))
    with pytest.raises(NotDecodedError, match="itself"):
        closure(a, known(a, b))
    chain = [
        Schema("AVRO", "x", i, f"s{i}", 1, (Reference(f"n{i}", f"s{i + 1}", 1),)) for i in range(2 * MOST_REFERENCES)
    ]
    with pytest.raises(NotDecodedError, match="too deeply"):
        closure(chain[0], known(*chain))
