"""The manifest of logs below a prefix: what was written is read, and nothing else is believed."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from seglog.errors import CorruptTierError
from seglog.format.checkpoint import EpochEntry
from seglog.format.filenames import FileKind
from seglog.model import TopicPartition
from seglog_stores.formats.log_manifest import (
    LogManifest,
    ManifestPartition,
    ManifestSegment,
    StoredObject,
    StreamEntry,
    format_log_manifest,
    latest_number,
    manifest_name,
    parse_log_manifest,
    place_name,
)

PLACE = place_name(UUID(int=7))
MANIFEST = LogManifest(
    3,
    "a" * 32,
    1_700_000_000_000,
    (
        ManifestPartition(
            TopicPartition("orders", 2),
            "AAECAwQFBgcICQoLDA0ODw",
            5,
            100,
            (EpochEntry(0, 0), EpochEntry(4, 60)),
            (
                ManifestSegment(
                    0,
                    99,
                    PLACE,
                    {FileKind.LOG: StoredObject(4096, 0xDEADBEEF), FileKind.TIME_INDEX: StoredObject(0, 0)},
                ),
                ManifestSegment(100, 99, PLACE, {FileKind.LOG: StoredObject(0, 0)}),
            ),
        ),
        ManifestPartition(
            TopicPartition("t", 0),
            None,
            0,
            None,
            (),
            (ManifestSegment(0, 0, PLACE, {FileKind.LOG: StoredObject(7, 1)}),),
        ),
    ),
    {"11111111-2222-3333-4444-555555555555": StreamEntry(12, "ab")},
)


def test_what_was_written_is_read() -> None:
    assert parse_log_manifest(format_log_manifest(MANIFEST), "m") == MANIFEST
    assert MANIFEST.partitions[0].log_end_offset == 100


def test_the_bytes_are_those_of_the_format_page() -> None:
    document = json.loads(format_log_manifest(MANIFEST))
    assert list(document) == ["version", "number", "commit", "writtenMs", "streams", "partitions"]
    assert document["partitions"][0]["segments"][0] == {
        "baseOffset": 0,
        "endOffset": 99,
        "place": "seglog-AAAAAAAAAAAAAAAAAAAABw",
        "objects": {"log": {"size": 4096, "crc32c": "deadbeef"}, "timeindex": {"size": 0, "crc32c": "00000000"}},
    }


def test_fields_of_a_later_version_are_passed_over() -> None:
    document = json.loads(format_log_manifest(MANIFEST))
    document["partitions"][1] |= {"colour": "blue"}
    assert parse_log_manifest(json.dumps(document | {"more": [1]}).encode(), "m") == MANIFEST


def test_the_highest_number_counts_and_other_names_do_not() -> None:
    names = [manifest_name(9), manifest_name(10), "manifest-11.json", manifest_name(12) + ".tmp", "staged"]
    assert latest_number(names) == 10
    assert latest_number(["staged"]) is None


@pytest.mark.parametrize("end", range(0, len(format_log_manifest(MANIFEST)) - 1, 13))
def test_a_manifest_that_is_cut_short_is_damage(end: int) -> None:
    with pytest.raises(CorruptTierError, match="m: the manifest is not JSON"):
        parse_log_manifest(format_log_manifest(MANIFEST)[:end], "m")


FIRST = ("partitions", 0)
SEGMENT = (*FIRST, "segments", 0)
WRONG: list[tuple[tuple[str | int, ...], Any, str]] = [
    (("version",), 2, "version: 2 is not 1"),
    (("number",), 0, "number: 0 is not between"),
    (("number",), "1", "is not an integer"),
    (("partitions",), [], "there is none"),
    (("partitions",), {}, "is not a list"),
    (("partitions",), [3], r"partitions\[0\]: it is not an object"),
    ((*FIRST, "topic"), "../../etc", "characters other than"),
    ((*FIRST, "topic"), "..", "cannot be named"),
    ((*FIRST, "topic"), "a/b", "characters other than"),
    ((*FIRST, "partition"), -1, "not between"),
    ((*FIRST, "partition"), 1 << 31, "not between"),
    ((*FIRST, "topicId"), "x", "is not a UUID"),
    ((*FIRST, "logStartOffset"), 101, "not between 0 and 100"),
    ((*FIRST, "cleanedOffset"), 101, "not between 0 and 100"),
    ((*FIRST, "segments"), [], "there is none"),
    ((*FIRST, "leaderEpochs"), [{"epoch": 1, "startOffset": 0}, {"epoch": 1, "startOffset": 9}], "does not ascend"),
    ((*SEGMENT, "place"), "../seglog-AAAAAAAAAAAAAAAAAAAABw", "not a directory of seglog's"),
    ((*SEGMENT, "place"), "seglog-AAAAAAAAAAAAAAAAAAAAB/", "not a directory of seglog's"),
    ((*SEGMENT, "place"), "seglog-AAAAAAAAAAAAAAAAAAAABw\n", "not a directory of seglog's"),
    ((*SEGMENT, "place"), "/etc/passwd", "not a directory of seglog's"),
    ((*SEGMENT, "place"), None, "is not a text"),
    ((*SEGMENT, "baseOffset"), -1, "not between"),
    ((*SEGMENT, "baseOffset"), True, "is not an integer"),
    ((*SEGMENT, "endOffset"), 98, "ends at 98, and the next one begins at 100"),
    ((*SEGMENT, "endOffset"), 100, "ends at 100, and the next one begins at 100"),
    ((*SEGMENT, "endOffset"), 1 << 63, "not between"),
    ((*SEGMENT, "objects"), {}, r"segments\[0\].objects.log: it is missing"),
    ((*SEGMENT, "objects", "log"), None, r"objects.log: it is missing"),
    ((*SEGMENT, "objects", "log"), "x", "is not an object"),
    ((*SEGMENT, "objects", "log", "size"), 1 << 31, "not between"),
    ((*SEGMENT, "objects", "log", "crc32c"), "DEADBEEF", "is not 8 hexadecimal digits"),
    ((*SEGMENT, "objects", "log", "crc32c"), "deadbeef0", "is not 8 hexadecimal digits"),
    (("streams",), [], "is not an object"),
    (("streams", "11111111-2222-3333-4444-555555555555"), 3, "is not an object"),
]


@pytest.mark.parametrize(("where", "value", "message"), WRONG, ids=lambda one: str(one)[:60])
def test_a_field_that_cannot_be_is_named(where: tuple[str | int, ...], value: Any, message: str) -> None:
    document = json.loads(format_log_manifest(MANIFEST))
    place = document
    for step in where[:-1]:
        place = place[step]
    place[where[-1]] = value
    with pytest.raises(CorruptTierError, match=message):
        parse_log_manifest(json.dumps(document).encode(), "m")


def test_a_partition_that_is_there_twice_is_damage() -> None:
    document = json.loads(format_log_manifest(MANIFEST))
    document["partitions"].append(document["partitions"][1])
    with pytest.raises(CorruptTierError, match="t-0 is there twice"):
        parse_log_manifest(json.dumps(document).encode(), "m")


@pytest.mark.parametrize("name", ["version", "number", "commit", "writtenMs", "streams", "partitions"])
def test_a_field_that_is_missing_is_named(name: str) -> None:
    document = json.loads(format_log_manifest(MANIFEST))
    del document[name]
    with pytest.raises(CorruptTierError, match=f"{name}: it is missing|{name}: .*is not"):
        parse_log_manifest(json.dumps(document).encode(), "m")


@pytest.mark.parametrize("data", [b"[" * 100_000, b"\xff{}", b"[]", b"null", b'{"version":' + b"9" * 5000 + b"}"])
def test_what_is_no_manifest_is_damage(data: bytes) -> None:
    with pytest.raises(CorruptTierError, match="m: the manifest"):
        parse_log_manifest(data, "m")
