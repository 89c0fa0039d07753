"""The leader epochs that clients are told: consumers wait, or begin anew, where one is lower than what they know."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from seglog.model import Record
from seglog_rescue.serve.endpoint import Endpoint
from seglog_rescue.serve.topics import offsets_for_leader_epochs
from tests.support.open_logs import opened_log
from tests.support.serving import Serving, open_catalog

END = 6


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """A log with records of the leader epochs 1 and 3, two offsets each and four."""
    directory = tmp_path / "logs" / "t-0"
    with opened_log(directory) as log:
        for epoch, count in ((1, 2), (3, END - 2)):
            log.append([Record(b"value")] * count, leader_epoch=epoch)
    return directory


def note_epochs(partition: Path, *entries: tuple[int, int]) -> None:
    lines = ["0", str(len(entries)), *(f"{epoch} {start}" for epoch, start in entries)]
    (partition / "leader-epoch-checkpoint").write_text("\n".join(lines) + "\n")


def end_of(endpoint: Endpoint, epoch: int) -> tuple[int, int]:
    asked = SimpleNamespace(partition=0, leader_epoch=epoch, current_leader_epoch=-1)
    body = SimpleNamespace(topics=[SimpleNamespace(topic="t", partitions=[asked])])
    (entry,) = offsets_for_leader_epochs(endpoint, body, 4)["topics"][0]["partitions"]
    return entry["leader_epoch"], entry["end_offset"]


def test_a_checkpoint_behind_the_log_counts_until_the_log_is_opened(partition: Path) -> None:
    note_epochs(partition, (1, 0))
    with open_catalog([partition.parent]) as catalog:
        (served,) = catalog
        assert served.leader_epoch == 1 and not served.is_open
        assert served.log.log_end_offset == END
        assert served.leader_epoch == 3


def test_the_epoch_of_a_commit_is_told_from_the_start(partition: Path, tmp_path: Path) -> None:
    """Java's consumer (4.3.0) otherwise waits for ever for metadata that are as new as its commit."""
    commit = {"type": "commit", "group": "g", "topic": "t", "partition": 0, "offset": 4, "metadata": ""}
    offsets = tmp_path / "offsets"
    offsets.write_text("".join(json.dumps(commit | {"leader_epoch": epoch}) + "\n" for epoch in (9, -1)))
    with Serving(partition.parent, offsets=offsets) as running:
        (served,) = running.catalog
        assert served.leader_epoch == 3  # the last commit counts
    offsets.write_text(json.dumps(commit | {"leader_epoch": 9}) + "\n")
    with Serving(partition.parent, offsets=offsets) as running:
        (served,) = running.catalog
        assert served.leader_epoch == 9 and not served.is_open
        assert [end_of(running.endpoint, epoch) for epoch in (2, 3, 8, 9, 10)] == [
            (1, 2),
            (3, END),
            (3, END),
            (9, END),
            (-1, -1),
        ]


def test_an_epoch_without_records_ends_with_the_log(partition: Path) -> None:
    """Every start of a broker leaves one in an idle partition; a consumer at the end has committed with it."""
    note_epochs(partition, (1, 0), (3, 2), (7, END))
    with Serving(partition.parent) as running:
        answers = {epoch: end_of(running.endpoint, epoch) for epoch in (-1, 0, 1, 2, 3, 5, 7, 8)}
    assert answers == {
        -1: (-1, -1),
        0: (0, 0),
        1: (1, 2),
        2: (1, 2),
        3: (3, END),
        5: (3, END),
        7: (7, END),
        8: (-1, -1),
    }


def test_without_a_checkpoint_no_epoch_counts_as_cut_off(partition: Path) -> None:
    (partition / "leader-epoch-checkpoint").unlink()
    with Serving(partition.parent) as running:
        assert [end_of(running.endpoint, epoch) for epoch in (-1, 1, 3, 4)] == [(-1, -1), (1, END), (3, END), (-1, -1)]
