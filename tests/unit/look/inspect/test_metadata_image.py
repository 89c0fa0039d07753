"""The image of a metadata log: what counts, what ends it, what stays secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.errors import NotALogError
from seglog.look.inspect.metadata_image import MetadataImage, differences, read_metadata_image
from seglog.storage.local import LocalFileSystem
from tests.support.metadata_records import (
    MetadataHistory,
    metadata_record,
    record_batches,
    topic_id,
    write_metadata_log,
)

FS = LocalFileSystem()


def image(path: Path, end: int | None = None) -> MetadataImage:
    return read_metadata_image(FS, path, end=end)


def topic(name: str, number: int = 1) -> bytes:
    return metadata_record("TOPIC_RECORD", name=name, topicId=topic_id(number))


def test_secrets_never_get_into_an_image(tmp_path: Path) -> None:
    secrets = {"salt": b"SALTSALT", "storedKey": b"STOREDKEY", "serverKey": b"SERVERKEY"}
    user = metadata_record("USER_SCRAM_CREDENTIAL_RECORD", name="alice", mechanism=2, iterations=4096, **secrets)
    password = metadata_record(
        "CONFIG_RECORD", resourceType=4, resourceName="1", name="listener.ssl.keystore.password", value="hunter2"
    )
    write_metadata_log(tmp_path, [user, password])
    tree = image(tmp_path).tree()
    assert tree["users"] == {"alice": {"SCRAM-SHA-512": {"iterations": 4096}}}
    assert tree["configs"] == {"broker": {"1": {"listener.ssl.keystore.password": "(hidden)"}}}
    assert "SALT" not in repr(tree) and "KEY'" not in repr(tree)


def test_an_end_gives_the_cluster_as_it_was(tmp_path: Path) -> None:
    write_metadata_log(tmp_path, [topic("a"), topic("b", 2), topic("c", 3)])
    assert list(image(tmp_path, end=2).topics) == ["a", "b"]
    assert image(tmp_path, end=2).end_offset == 2
    assert list(image(tmp_path).topics) == ["a", "b", "c"]


@pytest.mark.parametrize(("base", "end"), [(0, 9), (100, 50)])
def test_an_end_that_no_record_reaches_is_a_problem(tmp_path: Path, base: int, end: int) -> None:
    write_metadata_log(tmp_path, [topic("a")], base_offset=base)
    (problem,) = image(tmp_path, end=end).problems
    assert "are missing before this segment" in problem if base else f"offset {end - 1} was requested" in problem


def test_an_end_is_a_problem_of_a_log_without_a_record(tmp_path: Path) -> None:
    (tmp_path / "__cluster_metadata-0").mkdir()
    (tmp_path / "__cluster_metadata-0" / f"{0:020d}.log").touch()
    (problem,) = image(tmp_path, end=9).problems
    assert problem.endswith("offset 8 was requested, but there is no record")


def test_a_snapshot_counts_from_its_offset_and_older_ones_serve_older_ends(tmp_path: Path) -> None:
    directory = write_metadata_log(tmp_path, [topic("late", 9)], base_offset=10)
    (directory / f"{4:020d}-{1:010d}.checkpoint").write_bytes(record_batches([topic("old")]))
    newest = directory / f"{10:020d}-{2:010d}.checkpoint"
    newest.write_bytes(record_batches([topic("a"), topic("b", 2)]))
    assert (list(image(tmp_path).topics), image(tmp_path).snapshot) == (["a", "b", "late"], newest.name)
    assert (list(image(tmp_path, end=4).topics), image(tmp_path, end=4).problems) == (["old"], [])
    assert list(image(newest).topics) == ["a", "b"]


def test_damage_ends_the_replay_and_names_where(tmp_path: Path) -> None:
    directory = write_metadata_log(tmp_path, [topic("a"), topic("b", 2), topic("c", 3)])
    file = directory / f"{0:020d}.log"
    data = bytearray(file.read_bytes())
    data[len(record_batches([topic("a")])) + 70] ^= 1
    file.write_bytes(data)
    found = image(tmp_path)
    assert (list(found.topics), found.end_offset) == (["a"], 1)
    assert "the checksum of the batch is wrong; the rest was not read" in found.problems[0]


def test_records_about_what_nobody_named_are_problems(tmp_path: Path) -> None:
    lonely = metadata_record("PARTITION_CHANGE_RECORD", partitionId=0, topicId=topic_id(7), isr=[1])
    fenced = metadata_record("FENCE_BROKER_RECORD", id=5, epoch=1)
    write_metadata_log(tmp_path, [lonely, fenced, topic("a"), b"\x01"])
    found = image(tmp_path)
    assert list(found.topics) == ["a"]
    assert [problem.split(": ", 1)[1] for problem in found.problems[:2]] == [
        f"offset 0: PARTITION_CHANGE_RECORD is about topic id {topic_id(7)}, which no record before it names",
        "offset 1: FENCE_BROKER_RECORD is about broker 5, which no record before it names",
    ]
    assert "offset 3: Error while reading type" in found.problems[2]


def test_an_open_transaction_does_not_count_and_is_said(tmp_path: Path) -> None:
    write_metadata_log(tmp_path, [topic("a"), metadata_record("BEGIN_TRANSACTION_RECORD"), topic("b", 2)])
    found = image(tmp_path)
    assert (list(found.topics), found.open_transaction) == (["a"], 1)


@pytest.mark.parametrize("seed", range(3))
def test_an_image_differs_from_another_in_what_was_written_between(tmp_path: Path, seed: int) -> None:
    history = MetadataHistory(seed)
    records = list(history.records(80))
    write_metadata_log(tmp_path, records)
    assert differences(image(tmp_path), image(tmp_path)) == []
    write_metadata_log(tmp_path / "more", [*records, topic("new", 999)])
    assert [one.path for one in differences(image(tmp_path), image(tmp_path / "more"))] == [
        ("topics", "new", "configs"),
        ("topics", "new", "id"),
        ("topics", "new", "partitions"),
    ]


def test_what_is_no_metadata_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file.log").write_bytes(b"")
    for path in (tmp_path, tmp_path / "file.log", tmp_path / "nothing"):
        with pytest.raises(NotALogError):
            image(path)
