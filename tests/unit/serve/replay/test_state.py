"""A replay's state: what is saved comes back, and nothing else is taken for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.errors import RefusedError
from seglog.model import TopicPartition
from seglog.storage.local import LocalFileSystem
from seglog_rescue.serve.replay.state import PartitionProgress, ReplayState

FS = LocalFileSystem()


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "state"
    assert ReplayState.load(FS, path) is None
    state = ReplayState("cluster", in_order=False, map_bytes=17)
    state.partitions[TopicPartition("a", 3)] = PartitionProgress("/d/a-3", TopicPartition("b", 3), 10, 20, 5)
    state.save(FS, path)
    assert ReplayState.load(FS, path) == state


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": 2}', '{"format": 1, "cluster_id": 1}', "\xff"])
def test_another_file_is_refused_by_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "state"
    path.write_text(text)
    with pytest.raises(RefusedError, match="state is not the state of a replay"):
        ReplayState.load(FS, path)


def test_a_replay_into_another_cluster_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="belongs to a replay into cluster one, but this is two"):
        ReplayState("one").require_cluster("two", tmp_path)
