"""Which directories are copies of which partition."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from seglog.errors import NotALogError
from seglog.look.inspect.diff_view import ViewOptions
from seglog.operations.diff import LEVELS, copies_by_partition, differences
from tests.support.log_files import FS, batch, write_segment
from tests.support.lost_clusters import broker_directory


def test_a_topic_is_compared_partition_by_partition(tmp_path: Path) -> None:
    for name in ("a/t-0", "a/t-10", "b/t-0", "b/t-2", "b/tt-0"):
        write_segment(tmp_path / name, 0, batch(0))
    one, other = tmp_path / "a", tmp_path / "b"
    found = copies_by_partition(FS, [one / "t", other / "t"])
    assert found == [(name, [one / name, other / name]) for name in ("t-0", "t-10", "t-2")]
    with pytest.raises(NotALogError):
        copies_by_partition(FS, [one / "t", other / "t-3"])


@pytest.mark.parametrize("level", LEVELS)
def test_copies_that_are_all_gone_do_not_differ(level: str, tmp_path: Path) -> None:
    write_segment(tmp_path / "a" / "t-0", 0, batch(0))
    one, other, options = tmp_path / "a" / "t-0", tmp_path / "b" / "t-0", ViewOptions(1 << 20)
    assert [found.kind for found in differences(FS, [one, other], level, options)] == ["missing"]
    shutil.rmtree(one)
    with pytest.raises(NotALogError, match="a/t-0: no such directory any more"):
        list(differences(FS, [one, other], level, options))


def brokers(root: Path) -> list[Path]:
    """Two brokers of two log directories each: the same three partitions, spread in another way."""
    spread = {("1", 0): ["orders-0", "orders-1"], ("1", 1): ["clicks-0"], ("2", 0): ["orders-0"]}
    spread[("2", 1)] = ["clicks-0", "orders-1"]
    return [
        broker_directory(root / f"b{node}-{disk}", int(node), {name: [0] for name in names}, number=disk)
        for (node, disk), names in spread.items()
    ]


def test_the_log_directories_of_one_broker_are_one_copy(tmp_path: Path) -> None:
    a1, a2, b1, b2 = brokers(tmp_path)
    expected = [
        ("clicks-0", [a2 / "clicks-0", b2 / "clicks-0"]),
        ("orders-0", [a1 / "orders-0", b1 / "orders-0"]),
        ("orders-1", [a1 / "orders-1", b2 / "orders-1"]),
    ]
    assert copies_by_partition(FS, [a1, a2, b1, b2]) == expected
    assert [name for name, _ in copies_by_partition(FS, [a1, b1, a2, b2])] == [name for name, _ in expected]
    for name, places in copies_by_partition(FS, [a1, b2, b1, a2]):
        assert all(place.exists() for place in places), name
    with pytest.raises(ValueError, match="these are the log directories of one broker"):
        copies_by_partition(FS, [a1, a2])
    shutil.rmtree(b2 / "orders-1")
    assert dict(copies_by_partition(FS, [a1, a2, b1, b2]))["orders-1"] == [a1 / "orders-1", b1 / "orders-1"]


def test_copies_of_a_brokers_log_directories_are_other_copies(tmp_path: Path) -> None:
    a1, a2, *_ = brokers(tmp_path)
    for path in (a1, a2):
        shutil.copytree(path, path.with_name(f"{path.name}.killed"))
    copies = [path.with_name(f"{path.name}.killed") for path in (a1, a2)]
    found = dict(copies_by_partition(FS, [a1, a2, *copies]))
    assert found["clicks-0"] == [a2 / "clicks-0", copies[1] / "clicks-0"]
    assert found["orders-1"] == [a1 / "orders-1", copies[0] / "orders-1"]
    assert len(copies_by_partition(FS, [a1, copies[0]])) == 2
    (a1 / "meta.properties").unlink()
    assert dict(copies_by_partition(FS, [a1, copies[0]]))["orders-0"] == [a1 / "orders-0", copies[0] / "orders-0"]
