"""`seglog serve`: real clients get what `seglog read` shows, over all fixtures."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from seglog.errors import UnsupportedError
from seglog.model import Compression, Isolation
from seglog_rescue.serve.catalog import Catalog, ServedPartition
from tests.support.consumers import (
    Row,
    aiokafka_rows,
    java_rows,
    kafka_python_rows,
    kcat_metadata,
    kcat_rows,
    librdkafka_rows,
)
from tests.support.fixtures import fixture_copy
from tests.support.serving import Serving, local_rows, open_catalog

FIXTURES = ("4.3.0/clean", "4.3.0/generated", "0.10.2", "0.8.2")
BY_PYTHON: dict[str, Callable[[str, str, int, str], list[Row]]] = {
    "kafka-python": kafka_python_rows,
    "aiokafka": aiokafka_rows,
}
# codecs that kafka-python has without packages that nothing else here needs
PLAIN_CODECS = {Compression.NONE, Compression.GZIP, Compression.ZSTD}


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    directory = tmp_path_factory.mktemp("served")
    return [fixture_copy(name, directory) for name in FIXTURES]


@pytest.fixture(scope="module")
def serving(logs: list[Path]) -> Iterator[Serving]:
    with Serving(*logs) as running:
        yield running


def can_be_read_by(client: str, partition: ServedPartition) -> bool:
    """Whether the client has all codecs; aiokafka refuses LZ4 in messages of magic 0, whoever serves them."""
    for segment in partition.log.segments:
        for chunk in segment.scan():
            codecs = chunk.batches["attributes"] & 7
            if client == "kafka-python" and not set(codecs.tolist()) <= PLAIN_CODECS:
                return False
            if client == "aiokafka" and ((codecs == Compression.LZ4) & (chunk.batches["magic"] == 0)).any():
                return False
    return True


@pytest.mark.parametrize("isolation", Isolation, ids=lambda each: each.label)
def test_librdkafka_reads_what_is_read_locally(isolation: Isolation, serving: Serving) -> None:
    assert_all_read(serving, isolation)


def assert_all_read(serving: Serving, isolation: Isolation) -> None:
    places = [(each.topic, each.number) for each in serving.catalog]
    found = librdkafka_rows(serving.bootstrap, places, isolation.label)
    for partition in serving.catalog:
        expected = local_rows(partition.log, isolation)
        assert found[partition.topic, partition.number] == expected, partition.directory.name


@pytest.mark.parametrize("isolation", Isolation, ids=lambda each: each.label)
@pytest.mark.parametrize("client", [pytest.param("kafka-python", marks=pytest.mark.slow), "aiokafka"])
def test_a_client_reads_what_is_read_locally(client: str, isolation: Isolation, serving: Serving) -> None:
    compared = 0
    for partition in serving.catalog:
        if not can_be_read_by(client, partition):
            continue
        rows = BY_PYTHON[client](serving.bootstrap, partition.topic, partition.number, isolation.label)
        assert rows == local_rows(partition.log, isolation), partition.directory.name
        compared += 1
    assert compared >= 19


def test_kcat_reads_and_lists_what_is_there(serving: Serving) -> None:
    if shutil.which("kcat") is None:
        pytest.skip("kcat is not installed, and no package brings it")
    topics = {name: max(partitions) + 1 for name, partitions in serving.catalog.topics.items()}
    assert kcat_metadata(serving.bootstrap) == topics
    for name in ("orders-lz4", "v0-none", "v1-gzip-createtime", "clicks"):
        partition = serving.catalog.topics[name][0]
        rows = local_rows(partition.log)
        sizes = [(offset, max(stamp, 0), _size(key), _size(value)) for offset, stamp, key, value, _ in rows]
        assert kcat_rows(serving.bootstrap, name, 0) == sizes, name


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


@pytest.mark.kafka
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("isolation", Isolation, ids=lambda each: each.label)
def test_the_java_client_reads_what_is_read_locally_with_a_group(
    isolation: Isolation, protocol: str, serving: Serving, tmp_path: Path
) -> None:
    expected = sorted(
        (str(offset), str(stamp), _text(key), _text(value))
        for partition in serving.catalog
        for offset, stamp, key, value, _ in local_rows(partition.log, isolation)
    )
    found = []
    for fields in java_rows(serving.bootstrap, ".*", isolation.label, tmp_path, len(expected), protocol=protocol):
        stamp, _, offset, _, key, value = fields
        found.append((offset.removeprefix("Offset:"), stamp.partition(":")[2] or "-1", key, value))
    assert sorted(found) == expected


def _text(data: bytes | None) -> str:
    return "null" if data is None else data.decode(errors="replace")


def test_the_0_7_log_is_refused_with_a_way_on(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="seglog append --create"):
        open_catalog([fixture_copy("0.7", tmp_path)])


def test_serving_changes_nothing(tmp_path: Path) -> None:
    directory = fixture_copy("4.3.0/killed", tmp_path)
    before = _state(directory)
    with Serving(directory) as serving:
        assert_all_read(serving, Isolation.READ_COMMITTED)
    assert _state(directory) == before


def _state(directory: Path) -> dict[str, tuple[int, int, bytes]]:
    found = {}
    for path in sorted(directory.rglob("*")):
        status = path.stat()
        data = b"" if path.is_dir() else path.read_bytes()
        found[str(path.relative_to(directory))] = (status.st_size, status.st_mtime_ns, data)
    return found


def test_times_and_ends_are_a_brokers(serving: Serving) -> None:
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": serving.bootstrap, "group.id": "times", "isolation.level": "read_uncommitted"}
    consumer = Consumer(settings)
    try:
        for partition in serving.catalog:
            log, place = partition.log, TopicPartition(partition.topic, partition.number)
            ends = consumer.get_watermark_offsets(place, timeout=30)
            assert ends == (log.log_start_offset, log.log_end_offset)
            stamps = sorted({row[1] for row in local_rows(log)} - {-1})
            for stamp in (stamps[0], stamps[len(stamps) // 2], stamps[-1] + 1) if stamps else ():
                asked = TopicPartition(partition.topic, partition.number, stamp)
                found = log.offset_for_timestamp(stamp)
                (answer,) = consumer.offsets_for_times([asked], timeout=30)
                assert answer.offset == (-1 if found is None else found.offset), partition.directory
    finally:
        consumer.close()


@pytest.mark.slow
def test_two_members_of_a_group_share_the_partitions_and_commits_carry_over(logs: list[Path]) -> None:
    from confluent_kafka import Consumer

    with Serving(logs[0]) as serving:
        settings = {"bootstrap.servers": serving.bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
        settings |= {"enable.auto.commit": False, "session.timeout.ms": 6000, "heartbeat.interval.ms": 100}
        first, second = Consumer(settings), Consumer(settings)
        try:
            for consumer in (first, second):
                consumer.subscribe(["customers"])
            owned: list[set[int]] = [set(), set()]
            offsets: dict[int, set[int]] = {0: set(), 1: set()}
            while not (owned[0] and owned[1]) or any(
                len(offsets[each.number]) < len(local_rows(each.log)) for each in _partitions(serving.catalog)
            ):
                for i, consumer in enumerate((first, second)):
                    message = consumer.poll(0.1)
                    owned[i] = {each.partition for each in consumer.assignment()}
                    if message is not None and message.error() is None:
                        offsets[message.partition()].add(message.offset())
            assert sorted(map(sorted, owned)) == [[0], [1]]
            for consumer in (first, second):
                consumer.commit(asynchronous=False)
        finally:
            first.close()
            second.close()
        ends = {p.partition: c.offset for p, c in serving.commits.of("readers").items() if p.topic == "customers"}
        assert ends == {each.number: each.log.log_end_offset for each in _partitions(serving.catalog)}


def _partitions(catalog: Catalog) -> list[ServedPartition]:
    return list(catalog.topics["customers"].values())
