"""The file-system cost of a plan or a trigger depends on the wanted data, not on the data next to it."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from seglog.errors import IncompleteError
from seglog.model import TopicPartition
from seglog_ask.spark import stream
from seglog_ask.spark.read_options import parse_read_options
from seglog_ask.table.plan.splits import plan_splits
from tests.support.naive import NaiveRecord, batch_v2
from tests.support.watched_files import CountingFileSystem, routed

TOPICS, PARTITIONS, SEGMENTS = 50, 10, 4


def batch(first: int) -> bytes:
    return batch_v2(first, [NaiveRecord(i, i, b"k", b"v") for i in range(10)])


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """500 partitions of four segments each, as a broker keeps them."""
    path = tmp_path_factory.mktemp("many") / "logs"
    for topic in range(TOPICS):
        for partition in range(PARTITIONS):
            directory = path / f"topic{topic}-{partition}"
            directory.mkdir(parents=True)
            for base in range(0, SEGMENTS * 10, 10):
                (directory / f"{base:020}.log").write_bytes(batch(base))
                for suffix in ("index", "timeindex", "snapshot"):
                    (directory / f"{base:020}.{suffix}").write_bytes(b"")
            (directory / "leader-epoch-checkpoint").write_text("0\n0\n")
    (path / "replication-offset-checkpoint").write_text("0\n0\n")
    (path / "log-start-offset-checkpoint").write_text("0\n0\n")
    return path


def planned(logs: Path, **given: str) -> CountingFileSystem:
    fs = CountingFileSystem()
    assert plan_splits(fs, parse_read_options({"path": str(logs), **given}))
    return fs


def test_a_query_for_one_topic_looks_at_that_topics_partitions_alone(logs: Path) -> None:
    for given in ({"subscribe": "topic7"}, {"subscribePattern": "topic7"}, {"assign": '{"topic7":[0,1,2]}'}):
        fs = planned(logs, **given)
        wanted = 3 if "assign" in given else PARTITIONS
        assert {name for name in fs.listed if name != "logs"} == {f"topic7-{n}" for n in range(wanted)}
        assert fs.listed["logs"] <= 2
        assert set(fs.listed.values()) <= {1, 2}
        # a look at each segment's log, and a few at the log directory
        assert fs.calls["status"] <= wanted * SEGMENTS + 10
        assert fs.calls["open"] <= 2 + wanted * SEGMENTS


def test_a_query_for_the_end_of_a_log_looks_at_its_end_alone(logs: Path) -> None:
    fs = planned(logs, assign='{"topic7":[0]}', startingOffsets='{"topic7":{"0":35}}')
    assert fs.calls["status"] <= 2 + 10  # the segment, the one in front of it, and the log directory
    assert fs.calls["list"] <= 3


def test_an_hour_of_triggers_costs_a_listing_each(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fs = CountingFileSystem()
    monkeypatch.setattr(stream, "files_of", lambda _: routed(fs))
    options = parse_read_options(
        {"path": str(logs), "subscribe": "topic3", "startingOffsets": "earliest"}, streaming=True
    )
    reader = stream.SeglogStreamReader(options, ())
    start = reader.initialOffset()
    grown = logs / "topic3-4" / f"{30:020}.log"
    for trigger in range(5):
        fs.__init__()  # type: ignore[misc]
        if trigger:
            with grown.open("ab") as file:
                file.write(batch(30 + 10 * trigger))
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        assert reader.reportLatestOffset() == end
        splits = reader.partitions(start, end)
        assert end["topic3"]["4"] == 40 + 10 * trigger and splits
        first = trigger == 0  # everything there is; afterwards one partition has grown
        listed = {name: count for name, count in fs.listed.items() if name != "logs"}
        assert first or listed == {f"topic3-{n}": 1 for n in range(PARTITIONS)}
        assert fs.listed["logs"] <= 1
        looked_at = PARTITIONS * (SEGMENTS if first else 1)
        assert fs.calls["status"] <= 2 * looked_at + 10  # the log and its index
        start = end


def test_with_available_now_a_listing_serves_the_first_batch_too(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fs = CountingFileSystem()
    monkeypatch.setattr(stream, "files_of", lambda _: routed(fs))
    given = {"path": str(logs), "subscribe": "topic5", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "100"}
    reader = stream.SeglogStreamReader(parse_read_options(given, streaming=True), ())
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    batches = 0
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        reader.partitions(start, end)
        start, batches = end, batches + 1
    assert batches == 4
    assert fs.listed["topic5-0"] <= batches + 1
    assert sum(start["topic5"].values()) == 400


def test_a_subscribed_topic_that_is_gone_is_data_loss_and_not_a_wrong_option(tmp_path: Path) -> None:
    for name in ("a-0", "b-0"):
        (tmp_path / "logs" / name).mkdir(parents=True)
        (tmp_path / "logs" / name / f"{0:020}.log").write_bytes(batch(0))
    given = {"path": str(tmp_path / "logs"), "subscribe": "a,b", "startingOffsets": "earliest"}
    a, b = TopicPartition("a", 0), TopicPartition("b", 0)
    strict, relaxed = (
        stream.FollowedLog(parse_read_options({**given, "failOnDataLoss": fail}, streaming=True))
        for fail in ("true", "false")
    )
    for log in (strict, relaxed):
        assert (log.starting_offsets(), log.ends()) == ({a: 0, b: 0}, {a: 10, b: 10})
    (tmp_path / "logs" / "b-0" / f"{0:020}.log").unlink()
    (tmp_path / "logs" / "b-0").rmdir()
    with pytest.raises(IncompleteError, match="b-0: the partition is gone; offsets 0 to 9 were not read"):
        strict.splits({a: 0, b: 0}, {a: 10, b: 10})  # listed when it was there
    assert len(relaxed.splits({a: 0, b: 0}, {a: 10, b: 10})) == 1
    ends = strict.ends()
    assert ends == relaxed.ends() == {a: 10}
    with pytest.raises(IncompleteError, match="b-0: the partition is gone"):
        strict.reached({a: 10, b: 10}, ends)
    assert relaxed.reached({a: 10, b: 10}, ends) == {a: 10, b: 10}
