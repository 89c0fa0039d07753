"""Plans and tasks over an object store: splits and rows equal those of files, with no needless request."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from seglog.errors import ConfigError, IncompleteError, NotALogError
from seglog.storage.filesystem import FileSystem
from seglog.storage.local import LocalFileSystem
from seglog_ask.spark.read_options import parse_read_options
from seglog_ask.spark.stream import FollowedLog
from seglog_ask.table.engines.arrow import record_batches
from seglog_ask.table.plan.files import files_of, sent_along
from seglog_ask.table.plan.options import ReadOptions
from seglog_ask.table.plan.schema import default_projection
from seglog_ask.table.plan.splits import Split, plan_splits
from seglog_stores.remote import filesystem
from seglog_stores.remote.settings import StoreSettings
from tests.support.manual_clock import ManualClock
from tests.support.naive import NaiveRecord, batch_v2
from tests.support.object_server import ObjectServer, object_server

LOCAL = LocalFileSystem()
COLUMNS = default_projection("records", None, False)


def batches(first: int, count: int = 3) -> bytes:
    return b"".join(
        batch_v2(at, [NaiveRecord(i, i, b"k", b"v" * 50) for i in range(10)])
        for at in range(first, first + 10 * count, 10)
    )


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Two topics of two partitions and two segments."""
    for name in ("a-0", "a-1", "b-0", "b-1"):
        (tmp_path / "kafka" / name).mkdir(parents=True)
        for base in (0, 30):
            (tmp_path / "kafka" / name / f"{base:020}.log").write_bytes(batches(base))
    return tmp_path / "kafka"


@pytest.fixture
def server(logs: Path) -> Iterator[ObjectServer]:
    with object_server() as served:
        for path in logs.rglob("*.log"):
            served.objects[f"bkt/kafka/{path.relative_to(logs)}"] = path.read_bytes()
        yield served


def options(server: ObjectServer, **given: str) -> ReadOptions:
    return parse_read_options({"path": "s3://bkt/kafka", **server.environment, **given})


def rows(fs: FileSystem, splits: list[Split], chosen: ReadOptions) -> list[tuple[object, ...]]:
    found = []
    for split in splits:
        for batch in record_batches(fs, split, COLUMNS, chosen):
            found += list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
    return found


@pytest.mark.parametrize("path", ["s3://bkt/kafka", "s3://bkt/kafka/[ab]-*", "s3://bkt/kafka/b-1", "s3://bkt/ka*/a-0"])
def test_rows_are_those_of_the_files(server: ObjectServer, logs: Path, path: str) -> None:
    chosen = options(server, path=path)
    local = parse_read_options({"path": path.replace("s3://bkt", str(logs.parent))})
    expected = rows(LOCAL, plan_splits(LOCAL, local), local)
    fs = files_of(chosen.store)
    assert rows(fs, plan_splits(fs, chosen), chosen) == expected and expected


def test_a_plan_is_one_listing_and_a_task_asks_for_bytes_alone(server: ObjectServer) -> None:
    chosen = options(server)
    splits = plan_splits(files_of(chosen.store), chosen)
    assert server.count("GET /bkt?") <= 2 and len(server.asked) <= 4
    server.asked.clear()
    pieces = sum(len(split.pieces) for split in splits)
    again = replace(chosen.store, values=(*chosen.store.values, ("SEGLOG_REMOTE_RETRIES", "4")))  # another process
    assert len(rows(files_of(again), splits, chosen)) == 240
    assert len(server.asked) == server.count("GET /bkt/kafka/") == pieces == 8


def test_a_task_fetches_its_pieces_in_as_few_requests_as_possible(server: ObjectServer) -> None:
    batch = batch_v2(0, [NaiveRecord(i, i, b"k", b"v" * 100_000) for i in range(10)])
    data = b"".join((10 * at).to_bytes(8, "big") + batch[8:] for at in range(16))
    server.objects[f"bkt/large/big-0/{0:020}.log"] = data
    whole, part = (
        options(server, path="s3://bkt/large", **given) for given in ({}, {"endingOffsets": '{"big":{"0":15}}'})
    )
    expected, asked = {whole: 160, part: 15}, {}
    for number, chosen in enumerate((whole, part)):
        splits = plan_splits(files_of(chosen.store), chosen)
        server.asked.clear()
        again = replace(chosen.store, values=(*chosen.store.values, ("SEGLOG_REMOTE_RETRIES", str(6 + number))))
        assert len(rows(files_of(again), splits, chosen)) == expected[chosen]
        asked[chosen] = server.count("GET /bkt/large/big-0/")
    assert len(data) > 15 << 20 and asked[whole] == -(-len(data) // (4 << 20)) == 4
    assert asked[part] <= 3  # what follows is hardly asked for


@pytest.mark.parametrize(
    "given", [{"subscribe": "topic7"}, {"assign": '{"topic7":[0,1]}'}, {"subscribe": "topic7,gone"}]
)
def test_a_plan_of_one_topic_lists_that_topic_alone(server: ObjectServer, given: dict[str, str]) -> None:
    server.objects.clear()
    data = batches(0, 1)
    for topic in range(100):
        for partition in range(100):  # a listing of all takes ten requests
            server.objects[f"bkt/kafka/topic{topic}-{partition}/{0:020}.log"] = data
    chosen = options(server, **given)
    if "gone" in given.get("subscribe", ""):
        with pytest.raises(ConfigError, match="gone: no such partition below s3://bkt/kafka"):
            plan_splits(files_of(chosen.store), chosen)
    else:
        found = [piece for split in plan_splits(files_of(chosen.store), chosen) for piece in split.pieces]
        assert {piece.topic for piece in found} == {"topic7"} and len(found) == (2 if "assign" in given else 100)
    assert server.count("GET /bkt?") <= (20 if "gone" in given.get("subscribe", "") else 6), server.asked


class HurryingClock(ManualClock):
    """More than a minute passes between any two readings."""

    def monotonic(self) -> float:
        self.advance(61_000)
        return super().monotonic()


def test_a_plan_that_takes_long_lists_once(server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filesystem, "SystemClock", lambda: HurryingClock(0))
    chosen = options(server, SEGLOG_REMOTE_RETRIES="3")  # a file system of its own
    assert len(plan_splits(files_of(chosen.store), chosen)) == 1
    assert server.count("GET /bkt?") <= 2 and len(server.asked) <= 4


def test_a_plan_sees_what_came_since_the_last_one(server: ObjectServer) -> None:
    chosen = options(server, path="s3://bkt/kafka/a-0")
    for count in (2, 3):
        fs = files_of(chosen.store)
        assert len(rows(fs, plan_splits(fs, chosen), chosen)) == count * 30
        server.objects[f"bkt/kafka/a-0/{60:020}.log"] = batches(60)


def test_a_stream_sees_what_came_since_its_last_trigger(server: ObjectServer) -> None:
    followed = FollowedLog(replace(options(server, subscribe="a"), starting=parse_read_options({"path": "-"}).starting))
    start = followed.starting_offsets()
    assert list(followed.ends().values()) == [60, 60]
    assert sum(len(split.pieces) for split in followed.splits(start, followed.ends())) == 4
    server.objects[f"bkt/kafka/a-0/{60:020}.log"] = batches(60)
    assert sorted(followed.ends().values()) == [60, 90]


def test_an_object_that_is_replaced_after_the_plan_is_read_as_it_is_now(server: ObjectServer) -> None:
    chosen = options(server, path="s3://bkt/kafka/a-0")
    splits = plan_splits(files_of(chosen.store), chosen)
    kept = batches(0, 1) + batches(20, 1)  # as a cleaner leaves it
    server.objects[f"bkt/kafka/a-0/{0:020}.log"] = kept
    offsets = [row[4] for row in rows(files_of(chosen.store), splits, chosen)]
    assert offsets == [*range(10), *range(20, 60)]


def test_an_object_that_is_gone_after_the_plan_is_data_loss(server: ObjectServer) -> None:
    chosen = options(server, path="s3://bkt/kafka/a-0")
    splits = plan_splits(files_of(chosen.store), chosen)
    del server.objects[f"bkt/kafka/a-0/{0:020}.log"]
    with pytest.raises(IncompleteError, match="a-0: offsets 0 to 29 are gone since the query was planned"):
        rows(files_of(chosen.store), splits, chosen)


def test_a_glob_that_fits_nothing_is_said(server: ObjectServer) -> None:
    chosen = options(server, path="s3://bkt/kafka/nothing-*")
    with pytest.raises(NotALogError, match=r"s3://bkt/kafka/nothing-\*: nothing matches"):
        plan_splits(files_of(chosen.store), chosen)


def test_secrets_are_not_among_what_options_and_splits_print(server: ObjectServer) -> None:
    chosen = options(server)
    for name, value in server.environment.items():
        assert value not in repr(chosen) + repr(plan_splits(files_of(chosen.store), chosen)), name


def test_tasks_receive_the_drivers_environment_for_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "mars-north-1")
    assert dict(sent_along(StoreSettings(), ["/a", "s3://b/c"]).values)["AWS_REGION"] == "mars-north-1"
    assert sent_along(StoreSettings(), ["/a", "http://b/c"]).values == ()
