"""`spark.readStream.format("seglog")`: each record once, over restarts, torn tails, new partitions and lost data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException

from tests.support.naive import NaiveRecord, batch_v2

pytestmark = pytest.mark.spark


class Topic:
    """A log directory that a test appends to."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()

    def segment(self, partition: int, base: int) -> Path:
        folder = self.directory / f"t-{partition}"
        folder.mkdir(exist_ok=True)
        return folder / f"{base:020}.log"

    def append(self, partition: int, first: int, count: int, *, segment: int = 0, cut: int = 0) -> None:
        records = [NaiveRecord(i, i, b"k%d" % (first + i), b"v") for i in range(count)]
        data = batch_v2(first, records)
        with self.segment(partition, segment).open("ab") as file:
            file.write(data[: len(data) - cut])

    def high_watermark(self, **marks: int) -> None:
        lines = [f"t {name[1:]} {mark}" for name, mark in marks.items()]
        (self.directory / "replication-offset-checkpoint").write_text("\n".join(["0", str(len(lines)), *lines, ""]))


class Follower:
    """Runs the stream with AvailableNow from one checkpoint. Returns what each run delivered."""

    def __init__(self, spark, topic: Topic, home: Path) -> None:
        self.spark, self.topic, self.home = spark, topic, home
        self.seen: set[tuple[int, int]] = set()

    def run(self, *, once: bool = True, **options: object) -> list[tuple[int, int]]:
        reader = self.spark.readStream.format("seglog").option("startingOffsets", "earliest")
        for name, value in options.items():
            reader = reader.option(name, str(value))
        stream = reader.load(str(self.topic.directory)).select("partition", "offset").writeStream
        stream = stream.format("parquet").option("checkpointLocation", f"{self.home}/checkpoint")
        query = stream.trigger(availableNow=True).start(f"{self.home}/out")
        query.awaitTermination()
        after = self.delivered()
        assert not once or len(after) == len(set(after)), "a record was delivered twice"
        new, self.seen = set(after) - self.seen, set(after)
        return sorted(new)

    def delivered(self) -> list[tuple[int, int]]:
        if not (self.home / "out").exists():
            return []
        rows = self.spark.read.schema("partition int, offset bigint").parquet(f"{self.home}/out").collect()
        return [(row.partition, row.offset) for row in rows]

    def offsets(self) -> list[str]:
        files = (self.home / "checkpoint" / "offsets").glob("[0-9]*")
        return [file.read_text().splitlines()[-1] for file in sorted(files, key=lambda file: int(file.name))]


@pytest.fixture
def topic(tmp_path: Path) -> Topic:
    return Topic(tmp_path / "logs")


@pytest.fixture
def follower(spark, topic: Topic, tmp_path: Path) -> Follower:
    return Follower(spark, topic, tmp_path)


def pairs(partition: int, first: int, after: int) -> list[tuple[int, int]]:
    return [(partition, offset) for offset in range(first, after)]


def test_a_restart_reads_only_what_is_new(topic, follower):
    topic.append(0, 0, 10)
    assert follower.run() == pairs(0, 0, 10)
    topic.append(0, 10, 5)
    topic.append(0, 15, 5, segment=15)
    topic.append(1, 0, 3)  # a partition that was not there before begins at its start
    assert follower.run() == [*pairs(0, 10, 20), *pairs(1, 0, 3)]
    assert follower.run() == []
    assert json.loads(follower.offsets()[-1]) == {"t": {"0": 20, "1": 3}}


def test_a_limit_is_shared_in_proportion(topic, follower):
    topic.append(0, 0, 30)
    topic.append(1, 0, 60)
    assert follower.run(maxOffsetsPerTrigger=30) == [*pairs(0, 0, 30), *pairs(1, 0, 60)]
    assert follower.offsets() == [
        '{"t": {"0": 10, "1": 20}}',
        '{"t": {"0": 20, "1": 40}}',
        '{"t": {"0": 30, "1": 60}}',
    ]


def test_a_torn_tail_waits_until_it_is_whole(topic, follower):
    topic.append(0, 0, 10)
    topic.append(0, 10, 10, cut=5)
    assert follower.run() == pairs(0, 0, 10)
    path = topic.segment(0, 0)
    whole = batch_v2(10, [NaiveRecord(i, i, b"k%d" % (10 + i), b"v") for i in range(10)])
    path.write_bytes(path.read_bytes() + whole[-5:])
    assert follower.run() == pairs(0, 10, 20)


def test_the_high_watermark_bounds_the_stream(topic, follower):
    topic.append(0, 0, 10)
    topic.append(0, 10, 10)
    topic.high_watermark(p0=10)
    assert follower.run() == pairs(0, 0, 10)
    topic.high_watermark(p0=20)
    assert follower.run() == pairs(0, 10, 20)


def test_lost_segments_are_noticed(topic, follower):
    topic.append(0, 0, 10)
    assert follower.run() == pairs(0, 0, 10)
    topic.append(0, 10, 10)
    topic.append(0, 20, 10, segment=20)
    topic.segment(0, 0).unlink()
    with pytest.raises(StreamingQueryException, match="offsets 10 to 19 were deleted before they were read"):
        follower.run()
    assert follower.run(failOnDataLoss="false") == pairs(0, 20, 30)


def test_a_log_that_ends_before_what_was_read_is_noticed_and_read_again_only_where_loss_is_allowed(topic, follower):
    topic.append(0, 0, 10)
    size = topic.segment(0, 0).stat().st_size
    topic.append(0, 10, 10)
    assert follower.run() == pairs(0, 0, 20)
    with topic.segment(0, 0).open("r+b") as file:
        file.truncate(size)
    with pytest.raises(StreamingQueryException, match="now ends at 10: it was truncated or made anew"):
        follower.run()
    follower.run(once=False, failOnDataLoss="false")  # it may be a topic that was made anew
    assert sorted(follower.delivered()) == sorted([*pairs(0, 0, 20), *pairs(0, 0, 10)])
    assert json.loads(follower.offsets()[-1]) == {"t": {"0": 10}}


def test_a_stream_refuses_what_only_a_batch_has(topic, follower):
    topic.append(0, 0, 1)
    with pytest.raises(Exception, match="endingOffsets is not valid in streaming queries"):
        follower.run(endingOffsets="latest")
