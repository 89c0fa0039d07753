"""Which partitions are served, out of which of the directories that were named."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from errno import EACCES, ENOENT
from pathlib import Path
from typing import Any

import pytest

from seglog.errors import NotALogError, RefusedError
from seglog.model import Record
from seglog.storage.local import LocalFileSystem
from seglog_rescue.serve.catalog import UnservedPartition
from tests.support.open_logs import opened_log
from tests.support.serving import Serving, open_catalog


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
        left: list[UnservedPartition] = []
        with open_catalog([tmp_path / name for name in order], left_out=left.append) as catalog:
            (served,) = catalog
            assert (served.leader_epoch, served.is_open, left) == (2, False, [])
            assert served.log.log_end_offset == 3 and served.directory == best
            assert sorted(each.directory.parent.name for each in left) == ["one", "three"]


def test_a_log_is_opened_when_it_is_first_read(tmp_path: Path) -> None:
    make(tmp_path / "logs" / "t-0", 3, epoch=7)
    make(tmp_path / "logs" / "t-1", 2)
    with open_catalog([tmp_path / "logs"]) as catalog:
        partitions = catalog.topics["t"]
        assert [each.leader_epoch for each in partitions.values()] == [7, 0]
        assert not any(each.is_open for each in partitions.values())
        with opened_log(tmp_path / "logs" / "t-0") as log:
            log.append([Record(b"later")])
        assert partitions[0].log.log_end_offset == 4 and partitions[0].is_open and not partitions[1].is_open
        with opened_log(tmp_path / "logs" / "t-0") as log:
            log.append([Record(b"too late")])
        assert partitions[0].log.log_end_offset == 4 == partitions[0].log.view.log_end_offset


def test_a_leader_epoch_that_no_checkpoint_names_is_the_last_batchs(tmp_path: Path) -> None:
    """librdkafka (2.16.0) asks with epoch 0 where metadata tell none: no partition's epoch may be unknown."""
    checkpoint = make(tmp_path / "logs" / "t-0", 3, epoch=7) / "leader-epoch-checkpoint"
    for spoil in (lambda: checkpoint.write_bytes(b"\0" * 20), checkpoint.unlink):
        spoil()
        with open_catalog([tmp_path / "logs"]) as catalog:
            (served,) = catalog
            assert served.leader_epoch == 7 and served.is_open


def test_the_leader_epoch_of_a_log_that_cannot_be_opened_is_0(tmp_path: Path) -> None:
    unreadable(tmp_path / "logs" / "t-0")
    with open_catalog([tmp_path / "logs"]) as catalog:
        (served,) = catalog
        assert served.leader_epoch == 0 and not served.is_open


def test_a_directory_that_this_user_cannot_read_or_that_is_gone_by_now_keeps_no_other_from_being_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("forbidden-0", "gone-0", "t-0"):
        make(tmp_path / name, 2)
    listed, read, asked = LocalFileSystem.list, LocalFileSystem.read_bytes, LocalFileSystem.status

    def forbid(path: Path) -> None:
        if "forbidden-0" in path.parts:
            raise PermissionError(EACCES, os.strerror(EACCES), str(path))
        if "gone-0" in path.parts:
            raise FileNotFoundError(ENOENT, os.strerror(ENOENT), str(path))

    def forbidding(ask: Callable[..., Any]) -> Callable[..., Any]:
        def answer(fs: LocalFileSystem, path: Path, *more: Any, **options: Any) -> Any:
            if (path != tmp_path and path.parent != tmp_path) or ask is listed:
                forbid(path)
            return ask(fs, path, *more, **options)

        return answer

    for name, ask in (("list", listed), ("read_bytes", read), ("status", asked)):
        monkeypatch.setattr(LocalFileSystem, name, forbidding(ask))
    with open_catalog([tmp_path]) as catalog:
        assert sorted(catalog.topics) == ["forbidden", "gone", "t"]
        assert catalog.topics["t"][0].log.log_end_offset == 2
        with pytest.raises(OSError, match="Permission denied"):
            assert catalog.topics["forbidden"][0].log is None


def unreadable(directory: Path) -> Path:
    directory.mkdir(parents=True)
    os.mkfifo(directory / "00000000000000000000.log")
    return directory


def test_a_copy_that_cannot_be_opened_is_left_out_where_damage_is_skipped(tmp_path: Path) -> None:
    """It might be the better copy: so without the request to skip damage the partition is not read at all."""
    bad, good = unreadable(tmp_path / "one" / "t-0"), make(tmp_path / "two" / "t-0", 3)
    roots, left = [bad.parent, good.parent], list[UnservedPartition]()
    for order in (roots, roots[::-1]):
        with open_catalog(order) as catalog:
            for _ in range(2):
                with pytest.raises(OSError, match=r"00000000000000000000\.log"):
                    assert catalog.topics["t"][0].log is None
        with open_catalog(order, skip_damage=True, left_out=left.append) as catalog:
            assert catalog.topics["t"][0].log.directory == good
        assert [each.directory for each in left] == [bad]
        left.clear()


def test_of_copies_the_one_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    roots = [make(tmp_path / name / "t-0", 3).parent for name in ("one", "two")]
    with Serving(*roots) as running:
        (served,) = running.catalog
        shutil.rmtree(roots[1] / "t-0")
        assert running.endpoint.log_of(served) is None
        assert [str(each) for each in running.observer.damages] == [
            f"{roots[1] / 't-0'}: cannot be read: no such directory"
        ]
        unreadable(roots[1] / "t-0")
        assert running.endpoint.log_of(served) is None
        told = running.observer.damages[1]
        assert told.path.is_relative_to(roots[1] / "t-0") and "cannot be read" in str(told)


def test_a_copy_that_is_gone_is_left_out_where_damage_is_skipped(tmp_path: Path) -> None:
    roots, left = [make(tmp_path / name / "t-0", 3).parent for name in ("one", "two")], list[UnservedPartition]()
    with open_catalog(roots, skip_damage=True, left_out=left.append) as catalog:
        shutil.rmtree(roots[1] / "t-0")
        assert catalog.topics["t"][0].log.directory == roots[0] / "t-0"
    assert [each.directory for each in left] == [roots[1] / "t-0"]


def test_of_copies_that_are_named_and_cannot_be_opened_each_is_left_out_once(tmp_path: Path) -> None:
    bad, left = [unreadable(tmp_path / name / "t-0") for name in ("one", "two")], list[UnservedPartition]()
    with open_catalog([*bad, make(tmp_path / "u-0", 1)], skip_damage=True, left_out=left.append) as catalog:
        assert list(catalog.topics) == ["u"]
    assert [each.directory for each in left] == bad


def test_a_partition_that_is_named_is_opened_at_once(tmp_path: Path) -> None:
    bad = unreadable(tmp_path / "logs" / "bad-0")
    named = [bad, make(tmp_path / "logs" / "t-0", 1)]
    with open_catalog([bad.parent]) as catalog:
        assert sorted(catalog.topics) == ["bad", "t"]
    with pytest.raises(OSError, match=r"00000000000000000000\.log"):
        open_catalog(named)
    left: list[UnservedPartition] = []
    with open_catalog(named, skip_damage=True, left_out=left.append) as catalog:
        assert [each.directory for each in left] == [bad]
        assert list(catalog.topics) == ["t"] and catalog.topics["t"][0].is_open
    with pytest.raises(NotALogError, match="no partition that could be served"):
        open_catalog([bad], skip_damage=True)


def test_a_topic_comes_together_out_of_several_directories(tmp_path: Path) -> None:
    make(tmp_path / "one" / "t-0", 1)
    make(tmp_path / "two" / "t-1", 1)
    make(tmp_path / "backup" / "t-2", 1)
    with open_catalog([tmp_path / "one", tmp_path / "two", tmp_path / "backup" / "t-2"]) as catalog:
        assert sorted(catalog.topics["t"]) == [0, 1, 2]


def test_a_path_named_twice_is_served_once(tmp_path: Path) -> None:
    make(tmp_path / "logs" / "t-0", 1)
    with open_catalog([tmp_path / "logs", tmp_path / "logs" / "t-0"]) as catalog:
        (served,) = catalog
        assert len(served.copies) == 1


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


def test_a_log_directory_that_can_no_longer_be_opened_has_no_losses_to_tell(tmp_path: Path) -> None:
    path = make(tmp_path / "t-0", 2) / "00000000000000000000.log"
    path.write_bytes(path.read_bytes() + b"\0" * 30)
    with open_catalog([tmp_path]) as catalog:
        assert [each.truncated_bytes for each in catalog.losses(lambda: None)] == [30]
        (tmp_path / "recovery-point-offset-checkpoint").mkdir()
        assert list(catalog.losses(lambda: None)) == []
