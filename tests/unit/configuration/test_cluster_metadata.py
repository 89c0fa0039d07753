"""Configuration out of a controller's metadata log: snapshots, removals, transactions, damage."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from seglog.configuration.cluster_metadata import (
    CONFIG_RECORD,
    REMOVE_TOPIC_RECORD,
    TOPIC_RECORD,
    ClusterMetadata,
    read_cluster_metadata,
)
from seglog.configuration.metadata_log import (
    ABORT_TRANSACTION_RECORD,
    BEGIN_TRANSACTION_RECORD,
    END_TRANSACTION_RECORD,
)
from seglog.configuration.precedence import Settings
from seglog.configuration.settings import DirectorySettings
from seglog.errors import ConfigError, RefusedError
from seglog.format.builder import BatchOptions, columns_of, encode_all
from seglog.model import Record
from seglog.storage.local import LocalFileSystem
from tests.support.metadata_records import record_batches


def compact(text: str | None) -> bytes:
    return b"\x00" if text is None else bytes([len(text) + 1]) + text.encode()


def config(topic: str, key: str, value: str | None, resource: int = 2) -> bytes:
    body = bytes([resource]) + compact(topic) + compact(key) + compact(value) + b"\x00"
    return bytes([1, CONFIG_RECORD, 0]) + body


def topic_record(name: str, identity: int) -> bytes:
    return bytes([1, TOPIC_RECORD, 0]) + compact(name) + bytes([identity]) * 16 + b"\x00"


def remove(identity: int) -> bytes:
    return bytes([1, REMOVE_TOPIC_RECORD, 0]) + bytes([identity]) * 16 + b"\x00"


def marker(kind: int) -> bytes:
    return bytes([1, kind, 0, 0, 0])


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "__cluster_metadata-0").mkdir()
    return tmp_path / "__cluster_metadata-0"


def replayed(directory: Path) -> ClusterMetadata:
    found = read_cluster_metadata(LocalFileSystem(), directory.parent)
    assert found is not None
    return found


def values(directory: Path, topic: str) -> dict[str, str]:
    return {key: stored.value for key, stored in replayed(directory).topic_values(topic).items()}


def log(directory: Path, *records: bytes, base_offset: int = 0) -> Path:
    path = directory / f"{base_offset:020d}.log"
    path.write_bytes(record_batches(records, base_offset))
    return path


def test_a_directory_without_a_metadata_log_has_no_answer(tmp_path: Path) -> None:
    assert read_cluster_metadata(LocalFileSystem(), tmp_path) is None


def test_the_last_value_of_a_key_counts_and_names_its_record(directory: Path) -> None:
    path = log(directory, config("a", "segment.bytes", "1"), config("b", "x", "y"), config("a", "segment.bytes", "2"))
    stored = replayed(directory).topic_values("a")["segment.bytes"]
    assert (stored.value, stored.path, stored.offset) == ("2", path, 2)


def test_a_null_value_takes_the_key_back(directory: Path) -> None:
    log(directory, config("a", "segment.bytes", "1"), config("a", "segment.bytes", None))
    assert values(directory, "a") == {}


def test_removing_a_topic_takes_its_configuration_and_a_new_topic_starts_afresh(directory: Path) -> None:
    log(
        directory,
        topic_record("a", 7),
        config("a", "k", "1"),
        remove(7),
        topic_record("a", 8),
        config("a", "l", "2"),
    )
    assert values(directory, "a") == {"l": "2"}


@pytest.mark.parametrize("name", ["a\0", "a/b", "..", ""])
def test_a_topic_of_a_name_that_no_topic_has_is_left_out_and_told(directory: Path, name: str) -> None:
    """Names of directories are made of it; damage within a good checksum is a controller's, or its memory's."""
    path = log(directory, topic_record("good", 7), topic_record(name, 8))
    found = replayed(directory)
    assert list(found.topic_ids) == ["good"] and not found.knows_topics
    (problem,) = found.problems
    assert problem.startswith(f"{path}: offset 1: ") and "topic" in problem


def test_a_broker_inherits_the_cluster_default_and_overrides_it(directory: Path) -> None:
    log(
        directory,
        config("", "log.retention.ms", "1", resource=4),
        config("", "log.segment.bytes", "2", resource=4),
        config("3", "log.retention.ms", "9", resource=4),
    )
    found = replayed(directory)
    assert {k: v.value for k, v in found.broker_values(3).items()} == {"log.retention.ms": "9"}
    assert {k: v.value for k, v in found.broker_values().items()} == {"log.retention.ms": "1", "log.segment.bytes": "2"}
    assert found.broker_values(4) == {}
    settings = DirectorySettings(LocalFileSystem(), directory.parent, Settings())
    assert settings("t").retention_ms == 1
    (directory.parent / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=3\n")
    settings = DirectorySettings(LocalFileSystem(), directory.parent, Settings())
    assert (settings("t").retention_ms, settings("t").segment_bytes) == (9, 2)


def test_an_aborted_metadata_transaction_leaves_nothing_and_a_finished_one_all(directory: Path) -> None:
    log(
        directory,
        marker(BEGIN_TRANSACTION_RECORD),
        config("a", "k", "lost"),
        marker(ABORT_TRANSACTION_RECORD),
        marker(BEGIN_TRANSACTION_RECORD),
        config("a", "l", "kept"),
        marker(END_TRANSACTION_RECORD),
        marker(BEGIN_TRANSACTION_RECORD),
        config("a", "m", "open"),
    )
    assert values(directory, "a") == {"l": "kept"}


def test_the_log_continues_the_newest_finished_snapshot(directory: Path) -> None:
    log(directory, config("a", "old", "1"), config("a", "k", "old"))
    log(directory, config("a", "k", "replayed twice"), config("a", "l", "new"), base_offset=2)
    snapshot = record_batches([config("a", "k", "snapshot")])
    (directory / "00000000000000000003-0000000001.checkpoint").write_bytes(snapshot)
    (directory / "00000000000000000009-0000000001.checkpoint.part").write_bytes(b"unfinished")
    assert values(directory, "a") == {"k": "snapshot", "l": "new"}
    assert replayed(directory).end_offset == 4


def test_damage_ends_the_replay_and_is_reported(directory: Path) -> None:
    path = log(directory, config("a", "k", "good"), config("a", "k", "damaged"), config("a", "l", "after"))
    data = bytearray(path.read_bytes())
    second = len(record_batches([config("a", "k", "good")]))
    data[second + 70] ^= 1
    path.write_bytes(data)
    found = replayed(directory)
    assert values(directory, "a") == {"k": "good"}
    assert found.problems == [f"{path}: position {second}: the checksum of the batch is wrong; the rest was not read"]


def test_a_torn_tail_keeps_what_came_before(directory: Path) -> None:
    path = log(directory, config("a", "k", "good"), config("a", "k", "torn"))
    path.write_bytes(path.read_bytes()[:-3])
    assert values(directory, "a") == {"k": "good"}
    replay = replayed(directory)
    assert replay.problems == [] and "not a whole batch; the log ends at offset 1" in replay.torn[0]


def test_a_record_cut_short_is_reported_and_the_next_one_counts(directory: Path) -> None:
    log(directory, config("a", "k", "v")[:6], config("a", "l", "w"))
    assert values(directory, "a") == {"l": "w"}
    assert "offset 0: Failed to deserialize record with type 4" in replayed(directory).problems[0]


def test_offsets_missing_before_a_segment_end_the_replay_and_are_reported(directory: Path) -> None:
    log(directory, topic_record("a", 7))
    log(directory, config("a", "cleanup.policy", "compact"), base_offset=5)
    assert values(directory, "a") == {}
    assert "offsets 1 to 4 are missing" in replayed(directory).problems[0]


def test_files_that_cannot_be_read_are_reported_without_an_exception(directory: Path) -> None:
    log(directory, topic_record("a", 7))
    (directory / "00000000000000000001-0000000000.checkpoint").mkdir()
    assert "Is a directory" in replayed(directory).problems[0]


def test_a_listed_topic_has_the_brokers_policy_only_where_all_of_the_metadata_was_read(directory: Path) -> None:
    path = log(directory, topic_record("a", 7), config("b", "x", "y"))
    settings = DirectorySettings(LocalFileSystem(), directory.parent, Settings())
    assert settings.resolve("a").policy_known and not settings.resolve("b").policy_known
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    assert not DirectorySettings(LocalFileSystem(), directory.parent, Settings()).resolve("a").policy_known


def test_a_torn_end_leaves_the_policy_known_wherever_it_is_cut(directory: Path) -> None:
    """A full disk tears the log that says what may be deleted: a broker cuts that off, and goes on by what is left."""
    path = log(directory, topic_record("a", 7))
    whole = path.read_bytes()
    both = log(directory, topic_record("a", 7), config("a", "cleanup.policy", "compact")).read_bytes()
    cuts = [both[:end] for end in range(len(whole) + 1, len(both))]
    for data in (*cuts, whole + bytes(1), whole + bytes(5000)):
        path.write_bytes(data)
        settings = DirectorySettings(LocalFileSystem(), directory.parent, Settings())
        assert settings.problems == () and settings.resolve("a").policy_known, len(data)
        assert len(settings.remarks) == 1 and "the log ends at offset 1" in settings.remarks[0]


def test_damage_before_whole_batches_is_missing_knowledge_and_no_torn_end(directory: Path) -> None:
    path = log(directory, topic_record("a", 7), config("b", "x", "y"), config("b", "x", "z"))
    data = path.read_bytes()
    first = 12 + int.from_bytes(data[8:12], "big")
    for replaced in (bytes(20), b"\xff" * 12):
        path.write_bytes(data[:first] + replaced + data[first + len(replaced) :])
        settings = DirectorySettings(LocalFileSystem(), directory.parent, Settings())
        assert len(settings.problems) == 1 and settings.remarks == ()
        assert not settings.resolve("a").policy_known


# --- a torn end, as a full disk and a kill leave it: complete knowledge up to there


KNOWN = (topic_record("a", 7), config("a", "k", "good"))


def with_tail(directory: Path, tail: bytes, *, base_offset: int = 0) -> Path:
    path = log(directory, *KNOWN, base_offset=base_offset)
    path.write_bytes(path.read_bytes() + tail)
    return path


def test_a_metadata_log_cut_at_any_byte_of_its_last_batch_is_known_whole_up_to_there(directory: Path) -> None:
    last = record_batches([config("a", "k", "torn")], 2)
    for size in range(len(last)):
        with_tail(directory, last[:size])
        found = replayed(directory)
        assert (values(directory, "a"), found.problems, found.end_offset) == ({"k": "good"}, [], 2), size
        assert found.knows_topics


@pytest.mark.parametrize("zeros", [1, 11, 12, 61, 4096, 1 << 20])
def test_zeros_after_the_last_batch_are_no_damage(directory: Path, zeros: int) -> None:
    with_tail(directory, bytes(zeros))
    assert (values(directory, "a"), replayed(directory).problems) == ({"k": "good"}, [])


def test_a_batch_after_the_torn_one_shows_that_knowledge_is_missing(directory: Path) -> None:
    lost, after = record_batches([config("a", "k", "lost")], 2), record_batches([config("b", "k", "after")], 3)
    path = with_tail(directory, lost[:30] + after)
    (problem,) = replayed(directory).problems
    assert (
        problem.startswith(f"{path}: position {len(record_batches(KNOWN))}: ") and not replayed(directory).knows_topics
    )


def test_a_last_batch_with_a_wrong_checksum_may_have_been_acknowledged_and_is_missing_knowledge(
    directory: Path,
) -> None:
    last = bytearray(record_batches([config("a", "k", "rotten")], 2))
    last[-3] ^= 1
    with_tail(directory, bytes(last))
    assert "checksum" in replayed(directory).problems[0] and not replayed(directory).knows_topics


@pytest.mark.parametrize("lost", ["all but the header", "one sector", "the header", "the end", "all"])
def test_a_last_batch_of_which_a_power_cut_left_zeros_was_never_acknowledged(directory: Path, lost: str) -> None:
    last = bytearray(encode_all(columns_of([Record(config("a", "k", "v" * 100), timestamp=1)] * 20), 2, BatchOptions()))
    begin = len(record_batches(KNOWN))
    sector = 1024 - begin
    places = {
        "all but the header": slice(61, None),
        "one sector": slice(sector, sector + 512),
        "the header": slice(0, 512 - begin % 512),
        "the end": slice(-64, None),
        "all": slice(None),
    }
    place = places[lost]
    last[place] = bytes(len(last[place]))
    for data in (bytes(last), bytes(last) + bytes(700)):
        path = with_tail(directory, data)
        found = replayed(directory)
        assert (values(directory, "a"), found.problems, found.end_offset) == ({"k": "good"}, [], 2)
        assert f"position {begin}: " in found.torn[0] and found.knows_topics
    path.write_bytes(path.read_bytes()[: begin + len(last)] + record_batches([config("b", "k", "after")], 3))
    assert not replayed(directory).knows_topics, "a whole batch follows"


def test_an_index_that_leads_past_the_end_shows_that_the_log_was_longer(directory: Path) -> None:
    last = record_batches([config("a", "k", "torn")], 2)
    path = with_tail(directory, last[:40])
    end = len(record_batches(KNOWN))
    path.with_suffix(".index").write_bytes((2).to_bytes(4, "big") + end.to_bytes(4, "big") + bytes(64))
    assert replayed(directory).problems == []  # the torn batch itself
    path.with_suffix(".index").write_bytes((3).to_bytes(4, "big") + (end + 90).to_bytes(4, "big") + bytes(64))
    assert len(replayed(directory).problems) == 1


def test_a_segment_after_the_torn_one_counts_only_where_it_goes_on(directory: Path) -> None:
    with_tail(directory, bytes(20))
    (directory / f"{2:020}.log").touch()
    assert (values(directory, "a"), replayed(directory).problems) == ({"k": "good"}, [])
    (directory / f"{2:020}.log").rename(directory / f"{4:020}.log")
    assert "offsets 2 to 3 are missing" in replayed(directory).problems[0]


def test_a_torn_log_after_a_snapshot_is_known_whole_and_a_torn_snapshot_is_not(directory: Path) -> None:
    whole = record_batches([*KNOWN, config("a", "l", "kept")])
    snapshot = directory / f"{2:020}-{1:010}.checkpoint"
    snapshot.write_bytes(whole)
    path = directory / f"{2:020}.log"
    path.write_bytes(record_batches([config("a", "k", "newer")], 2) + bytes(40))
    assert (values(directory, "a"), replayed(directory).problems) == ({"k": "newer", "l": "kept"}, [])
    path.write_bytes(b"\0\0\0")
    assert (values(directory, "a"), replayed(directory).problems) == ({"k": "good", "l": "kept"}, [])
    snapshot.write_bytes(whole[:-3])
    assert replayed(directory).problems and not replayed(directory).knows_topics


def test_an_empty_metadata_log_knows_no_topic_and_has_no_damage(directory: Path) -> None:
    (directory / f"{0:020}.log").touch()
    assert (replayed(directory).problems, replayed(directory).knows_topics) == ([], False)
    settings = DirectorySettings(LocalFileSystem(), directory.parent, Settings())
    assert not settings.resolve("a").policy_known


# --- a broker with several log directories


IDENTITY = "version=1\ncluster.id={}\nnode.id={}\ndirectory.id={}\n"


def broker_disk(path: Path, directory_id: str, *, cluster: str = "c", node: int = 1, metadata: bool = False) -> Path:
    path.mkdir(parents=True)
    (path / "meta.properties").write_text(IDENTITY.format(cluster, node, directory_id))
    if metadata:
        (path / "__cluster_metadata-0").mkdir()
        log(path / "__cluster_metadata-0", topic_record("a", 7), config("a", "cleanup.policy", "compact"))
    return path


def test_a_directory_that_was_named_comes_before_its_neighbours(tmp_path: Path) -> None:
    broker_disk(tmp_path / "A0", "one", metadata=True)
    copy, other = broker_disk(tmp_path / "a", "one", metadata=True), broker_disk(tmp_path / "b", "two")
    (other / "t-0").mkdir()
    fs = LocalFileSystem()
    for named in ([copy], [other / "t-0", copy], [copy / "a-0"], [copy / "a-0" / f"{0:020}.log"]):
        settings = DirectorySettings(fs, other, Settings(), named=named)
        assert settings.metadata_directory == copy and settings.resolve(None).warnings == (), named
    configured = {"log.dirs": str(tmp_path / "A0")}
    assert DirectorySettings(fs, other, Settings(), configured, named=[copy]).metadata_directory == copy
    assert DirectorySettings(fs, other, Settings(), configured).metadata_directory == tmp_path / "A0"


def test_two_neighbours_that_could_answer_are_both_named(tmp_path: Path) -> None:
    for name in ("A0", "a"):
        broker_disk(tmp_path / name, "one", metadata=True)
    other = broker_disk(tmp_path / "b", "two")
    (warning,) = DirectorySettings(LocalFileSystem(), other, Settings()).resolve("t").warnings
    assert warning == (
        f"2 directories may have the cluster's metadata for {other}, copies of each other: {tmp_path / 'A0'},"
        f" {tmp_path / 'a'}; the first counts, unless --metadata-dir names another one"
    )
    said = DirectorySettings(LocalFileSystem(), other, Settings(), {"metadata.log.dir": tmp_path / "a"}).resolve("t")
    assert said.warnings == ()


def policy_of(path: Path, **options: object) -> str:
    found = DirectorySettings(LocalFileSystem(), path, Settings(), {k.replace("_", "."): v for k, v in options.items()})
    policy = found.resolve("a").settings["cleanup.policy"]
    return f"{policy.text} {policy.origin}"


@pytest.mark.parametrize("where", ["data-b", "other/data-a"])
def test_metadata_is_found_in_the_same_brokers_other_log_directory(tmp_path: Path, where: str) -> None:
    disk = broker_disk(tmp_path / "one" / "data-a", "A")
    place = tmp_path / "one" / where if "/" not in where else tmp_path / where
    holder = broker_disk(place, "B", metadata=True)
    assert policy_of(disk) == f"compact {holder}/__cluster_metadata-0/{0:020d}.log offset 1"


@pytest.mark.parametrize(
    "other",
    [
        {"directory_id": "B", "cluster": "another"},
        {"directory_id": "B", "node": 2},
        {"directory_id": "A"},  # a copy of this very directory
    ],
)
def test_another_brokers_metadata_beside_it_is_ignored(tmp_path: Path, other: dict[str, str]) -> None:
    disk = broker_disk(tmp_path / "data-a", "A")
    broker_disk(tmp_path / "data-b", **other, metadata=True)
    assert policy_of(disk) == "delete default"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_metadata_that_another_user_put_beside_it_is_ignored(tmp_path: Path) -> None:
    disk = broker_disk(tmp_path / "data-a", "A")
    holder = broker_disk(tmp_path / "data-b", "B", metadata=True)
    os.chown(holder, 12345, 12345)
    assert policy_of(disk) == "delete default"
    assert policy_of(disk, metadata_log_dir=holder).startswith("compact ")


def test_metadata_is_taken_from_where_it_is_stated_to_be(tmp_path: Path) -> None:
    disk = broker_disk(tmp_path / "data-a", "A")
    holder = broker_disk(tmp_path / "x" / "y" / "z", "B", metadata=True)
    assert policy_of(disk) == "delete default"
    assert policy_of(disk, metadata_log_dir=holder).startswith("compact ")
    assert policy_of(disk, metadata_log_dir=holder / "__cluster_metadata-0").startswith("compact ")
    assert policy_of(disk, log_dirs=[disk, holder]).startswith("compact ")
    with pytest.raises(ConfigError, match="no __cluster_metadata-0"):
        policy_of(disk, metadata_log_dir=disk)
    (holder / "meta.properties").write_text(IDENTITY.format("another", 1, "B"))
    with pytest.raises(RefusedError, match="cluster another"):
        policy_of(disk, metadata_log_dir=holder)
