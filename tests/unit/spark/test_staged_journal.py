"""The journal of an append, and the record of streams' batches: what they keep, and what is not believed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from seglog.errors import CorruptCheckpointError, RefusedError
from seglog.model import TopicPartition
from seglog.storage.local import LocalFileSystem
from seglog_ask.spark import staged_journal
from seglog_ask.spark.staged_journal import (
    AppendJournal,
    Placement,
    StagedFile,
    StreamBatch,
    last_batch,
    read_journal,
    record_batch,
    remove_journal,
    write_journal,
)

FS = LocalFileSystem()
NAME = TopicPartition("a-topic.x", 7)
FILES = (StagedFile(NAME, "x.batches", 3, 100, None, 2), StagedFile(NAME, "y.batches", 1, 61, 2**62, 2**62))
JOURNAL = AppendJournal("staging", (Placement(NAME, 5, 2, FILES, 61),), StreamBatch("q", 4, "e"), forward=True)


@pytest.mark.parametrize("journal", [JOURNAL, AppendJournal("s", ())])
def test_a_journal_returns_what_was_written_until_it_is_removed(tmp_path: Path, journal: AppendJournal) -> None:
    assert read_journal(FS, tmp_path) is None
    write_journal(FS, tmp_path, journal)
    assert read_journal(FS, tmp_path) == journal
    remove_journal(FS, tmp_path)
    assert read_journal(FS, tmp_path) is None


def test_the_last_batch_of_each_stream_is_kept_and_the_streams_that_wrote_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staged_journal, "MOST_STREAMS", 3)
    for query, number in (("a", 0), ("b", 0), ("c", 0), ("a", 1), ("d", 0)):
        record_batch(FS, tmp_path, StreamBatch(query, number))
    found = {query: last_batch(FS, tmp_path, query) for query in "abcd"}
    assert found == {
        "a": StreamBatch("a", 1), "b": None, "c": StreamBatch("c", 0), "d": StreamBatch("d", 0),
    }  # fmt: skip


def mutated(value: object) -> list[object]:
    """The value with one thing in it replaced, by everything that can be in its place."""
    others: list[object] = [None, True, -1, 2**63, 1.5, "", "..", "a/b", "x\0", [], {}, [None]]
    found = [other for other in others if other != value]
    if isinstance(value, dict):
        found += [{**value, key: part} for key in value for part in mutated(value[key])]
        found += [{name: part for name, part in value.items() if name != key} for key in value]
    if isinstance(value, list):
        found += [[part, *value[1:]] for one in value[:1] for part in mutated(one)]
    return found


def test_whatever_is_in_a_journal_it_is_read_or_refused_by_name(tmp_path: Path) -> None:
    write_journal(FS, tmp_path, JOURNAL)
    path = tmp_path / ".seglog-append"
    refused = 0
    for value in mutated(json.loads(path.read_bytes())):
        path.write_text(json.dumps(value))
        try:
            found = read_journal(FS, tmp_path)
        except CorruptCheckpointError as error:
            refused += 1
            assert str(error).startswith(f"{path}: not a journal of seglog's")
        else:
            assert found is not None and "/" not in found.staging
            assert not any("/" in name for name in found.file_names)
    assert refused > 150
    for raw in (b"", b"\xff", b"[" * 100_000, b"{}"):
        path.write_bytes(raw)
        with pytest.raises(CorruptCheckpointError, match="not a journal"):
            read_journal(FS, tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_what_another_user_wrote_is_not_believed(tmp_path: Path) -> None:
    write_journal(FS, tmp_path, JOURNAL)
    record_batch(FS, tmp_path, StreamBatch("q", 4))
    for name in (".seglog-append", ".seglog-streams"):
        os.chown(tmp_path / name, 65534, 65534)
    with pytest.raises(RefusedError, match=r"seglog-append belongs to .*65534"):
        read_journal(FS, tmp_path)
    with pytest.raises(RefusedError, match=r"seglog-streams belongs to .*65534"):
        last_batch(FS, tmp_path, "q")
