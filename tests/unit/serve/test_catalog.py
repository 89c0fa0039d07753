"""Which partitions are served, out of which of the directories that were named."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.errors import NotALogError, RefusedError
from seglog.model import Record
from tests.support.open_logs import opened_log
from tests.support.serving import open_catalog


def make(directory: Path, records: int, epoch: int = 0) -> Path:
    with opened_log(directory) as log:
        for i in range(records):
            log.append([Record(b"value %d" % i)], leader_epoch=epoch)
    return directory


def test_of_replicas_the_one_that_could_lead_is_served(tmp_path: Path) -> None:
    make(tmp_path / "one" / "t-0", 5, epoch=1)
    best = make(tmp_path / "two" / "t-0", 3, epoch=2)
    make(tmp_path / "three" / "t-0", 2, epoch=2)
    for order in (("one", "two", "three"), ("three", "two", "one")):
        with open_catalog([tmp_path / name for name in order]) as catalog:
            (served,) = catalog
            assert served.directory == best
            assert (served.leader_epoch, served.log.log_end_offset) == (2, 3)
            left = sorted(each.directory.parent.name for each in catalog.left_out)
            assert left == ["one", "three"]


def test_a_topic_comes_together_out_of_several_directories(tmp_path: Path) -> None:
    make(tmp_path / "one" / "t-0", 1)
    make(tmp_path / "two" / "t-1", 1)
    make(tmp_path / "backup" / "t-2", 1)
    with open_catalog([tmp_path / "one", tmp_path / "two", tmp_path / "backup" / "t-2"]) as catalog:
        assert sorted(catalog.topics["t"]) == [0, 1, 2]


def test_a_path_named_twice_is_served_once(tmp_path: Path) -> None:
    make(tmp_path / "logs" / "t-0", 1)
    with open_catalog([tmp_path / "logs", tmp_path / "logs" / "t-0"]) as catalog:
        assert len(list(catalog)) == 1 and catalog.left_out == []


@pytest.mark.parametrize("suffix", ["delete", "stray", "future"])
def test_what_a_deletion_or_a_move_left_is_served_where_it_is_named(tmp_path: Path, suffix: str) -> None:
    name = f"t-3.0123456789abcdef0123456789abcdef-{suffix}"
    make(tmp_path / "logs" / "u-0", 1)
    make(tmp_path / "logs" / "t-3", 4).rename(tmp_path / "logs" / name)
    with open_catalog([tmp_path / "logs"]) as catalog:
        assert list(catalog.topics) == ["u"]
    with open_catalog([tmp_path / "logs" / name]) as catalog:
        assert catalog.topics["t"][3].log.log_end_offset == 4


def test_any_other_name_is_a_topic_of_its_own(tmp_path: Path) -> None:
    make(tmp_path / "t-0", 2).rename(tmp_path / "rescued")
    with open_catalog([tmp_path / "rescued"]) as catalog:
        assert list(catalog.topics) == ["rescued"]


@pytest.mark.parametrize("name", ["not a topic", "t-65537"])
def test_a_name_that_clients_cannot_take_is_refused(tmp_path: Path, name: str) -> None:
    make(tmp_path / "x-0", 2).rename(tmp_path / name)
    with pytest.raises(NotALogError):
        open_catalog([tmp_path / name])


def test_where_nothing_is_nothing_is_served(tmp_path: Path) -> None:
    make(tmp_path / "t-0", 1)
    with pytest.raises(NotALogError, match="a file"):
        open_catalog([tmp_path / "t-0" / "00000000000000000000.log"])
    with pytest.raises(NotALogError):
        open_catalog([tmp_path / "nowhere"])


def test_a_part_of_what_a_run_makes_is_not_served(tmp_path: Path) -> None:
    """Consumers would take the end of what is there for the end of the log."""
    make(tmp_path / "t-0", 2)
    (tmp_path / ".seglog-run").write_text("/somewhere\n")
    with pytest.raises(RefusedError, match=f"{tmp_path}: a run of seglog was cut short here"):
        open_catalog([tmp_path / "t-0"])
