"""Committed offsets: out of `__consumer_offsets`, transactions included, and out of the file that keeps them."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

import pytest

from seglog.errors import InputError
from seglog.log.append import ProducerIdentity, encode_end_txn_marker
from seglog.log.validator import AppendOrigin
from seglog.model import Record, TopicPartition
from seglog.storage.local import LocalFileSystem
from seglog_rescue.serve.committed import Commit, CommittedOffsets, GroupKind, OffsetsFile, load_offsets_topic
from tests.support.group_records import classic_group, group_key, group_record, streams_group
from tests.support.open_logs import opened_log

PARTITION = TopicPartition("orders", 3)
FS = LocalFileSystem()


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def key(group: str, partition: TopicPartition = PARTITION) -> bytes:
    return struct.pack(">h", 1) + text(group) + text(partition.topic) + struct.pack(">i", partition.partition)


def value(offset: int, epoch: int = -1, metadata: str = "") -> bytes:
    return struct.pack(">hqi", 3, offset, epoch) + text(metadata) + struct.pack(">q", 1000)


def commit(group: str, offset: int) -> Record:
    return Record(value(offset), key(group), 1000)


def found(directory: Path) -> Mapping[str, Mapping[TopicPartition, Commit]]:
    commits = CommittedOffsets()
    with opened_log(directory, writable=False) as log:
        load_offsets_topic([log.view], commits)
    return {group: dict(commits.of(group)) for group in commits.groups}


def test_the_last_commit_counts_and_a_deleted_one_is_gone(tmp_path: Path) -> None:
    directory = tmp_path / "__consumer_offsets-0"
    with opened_log(directory) as log:
        log.append([commit("g", 3), commit("gone", 4)])
        log.append([Record(value(9, 2, "note"), key("g"), 1000), Record(None, key("gone"), 1000)])
        log.append([Record(b"\0\3", struct.pack(">h", 2) + text("g"), 1000), Record(b"?", key("odd"), 1000)])
    assert found(directory) == {"g": {PARTITION: Commit(9, 2, "note")}}


def test_the_directories_say_what_each_group_is_and_damage_of_one_hides_no_other(tmp_path: Path) -> None:
    directory, commits = tmp_path / "__consumer_offsets-0", CommittedOffsets()
    with opened_log(directory) as log:
        log.append([commit("simple", 3), classic_group("sink", "connect", client="worker"), *streams_group("counting")])
        log.append(
            [group_record(3, "new", {"epoch": 5, "metadataHash": 0}), Record(b"\0\3", group_key(2, "torn"), 1000)]
        )
        log.append([group_record(3, "gone", {"epoch": 5, "metadataHash": 0}), Record(None, group_key(3, "gone"), 1000)])
        load_offsets_topic([log.view], commits)
    assert sorted(commits.groups) == ["counting", "new", "simple", "sink"]
    assert commits.kind_of("simple") == commits.kind_of("nobody") == GroupKind("classic", "")
    assert commits.kind_of("sink") == GroupKind("classic", "connect", 1)
    assert (commits.kind_of("new").group_type, commits.kind_of("new").epoch) == ("consumer", 5)
    streams = commits.kind_of("counting")
    assert (streams.group_type, streams.protocol_type) == ("streams", "streams")


@pytest.mark.parametrize(("committed", "offset"), [(True, 7), (False, 5)])
def test_what_a_transaction_commits_counts_from_its_marker_on(tmp_path: Path, committed: bool, offset: int) -> None:
    directory = tmp_path / "__consumer_offsets-0"
    with opened_log(directory) as log:
        log.append([commit("g", 5), commit("h", 1)])
        producer = ProducerIdentity(9, 0, 0, transactional=True)
        log.append([commit("g", 7)], producer=producer)
        log.append([commit("h", 2)])  # not of the transaction, which still is open
        assert found(directory) == {"g": {PARTITION: Commit(5)}, "h": {PARTITION: Commit(2)}}
        marker = encode_end_txn_marker(producer, committed, 0, 1000)
        log.append_batches(marker, origin=AppendOrigin.COORDINATOR)
    assert found(directory)["g"] == {PARTITION: Commit(offset)}


def test_the_file_keeps_what_was_appended_and_passes_over_a_torn_line(tmp_path: Path) -> None:
    file = OffsetsFile(FS, tmp_path / "offsets")
    file.open(CommittedOffsets())
    kinds = {"g": GroupKind("consumer", "consumer", 4), "h": GroupKind("classic", "connect")}
    for offset in range(5):
        file.append([("g", PARTITION, Commit(offset, 1, "é\n")), ("h", PARTITION, Commit(offset))], kinds.__getitem__)
    file.path.write_bytes(file.path.read_bytes() + b'{"type":')
    again, commits = OffsetsFile(FS, file.path), CommittedOffsets()
    again.open(commits)
    assert sorted(commits) == [("g", PARTITION, Commit(4, 1, "é\n")), ("h", PARTITION, Commit(4))]
    assert file.path.read_bytes().count(b"\n") == 2
    assert [commits.kind_of(each) for each in "gh"] == [GroupKind("consumer", "consumer"), kinds["h"]]
    again.append([("g", PARTITION, Commit(8))], kinds.__getitem__)
    assert file.path.read_bytes().count(b"\n") == 3


LINE = b'{"type":"commit","group":"g","topic":"orders","partition":3,"offset":7,"leader_epoch":0,"metadata":""'


def test_a_file_of_an_earlier_release_says_nothing_of_groups(tmp_path: Path) -> None:
    path, commits = tmp_path / "offsets", CommittedOffsets()
    path.write_bytes(LINE + b"}\n")
    commits.set_kind("g", GroupKind("streams", "streams", 3))
    OffsetsFile(FS, path).open(commits)
    assert commits.of("g") == {PARTITION: Commit(7, 0)}
    assert commits.kind_of("g") == GroupKind("streams", "streams", 3)


@pytest.mark.parametrize("rest", [b'"group_type":"classic"}', b'"group_type":"x","protocol_type":""}'])
def test_a_line_with_a_wrong_kind_of_group_is_refused(tmp_path: Path, rest: bytes) -> None:
    path = tmp_path / "offsets"
    path.write_bytes(LINE + b"," + rest + b"\n")
    with pytest.raises(InputError, match="line 1"):
        OffsetsFile(FS, path).open(CommittedOffsets())


def test_a_file_of_something_else_is_refused_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "offsets"
    path.write_bytes(b"precious\n")
    with pytest.raises(InputError, match="line 1"):
        OffsetsFile(FS, path).open(CommittedOffsets())
    assert path.read_bytes() == b"precious\n"
