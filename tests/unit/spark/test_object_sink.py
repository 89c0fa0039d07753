"""The sink below a prefix, without Spark: all of a write is committed once, or nothing is."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from seglog.errors import (
    AppendError,
    CorruptRecordError,
    IncompleteError,
    OffsetsOutOfOrderError,
    RefusedError,
    UnsupportedError,
)
from seglog.format.checkpoint import EpochEntry
from seglog.format.filenames import FileKind
from seglog.locations import parse_location
from seglog.model import TopicPartition
from seglog.scan.listing import resolve_paths
from seglog.storage.routing import machine_files
from seglog.verification.verify import Level, Verification, VerifyOptions
from seglog_ask.spark.sinks import ObjectSink, sink_of
from seglog_ask.spark.staged_journal import StreamBatch
from seglog_ask.spark.write_options import WriteOptions, parse_write_options
from seglog_ask.table.plan.files import files_of
from seglog_stores.formats.log_manifest import ManifestPartition, StreamEntry
from seglog_stores.formats.tier_names import COMMITTED
from seglog_stores.operations.fetch import fetch
from seglog_stores.tiers.manifests import CommittedLogs, orphans, read_committed
from seglog_stores.tiers.publishing import commit
from seglog_stores.tiers.view import see_tiers
from tests.support.compacted_directories import opened
from tests.support.fixtures import CLEAN
from tests.support.log_files import FS
from tests.support.manual_clock import ManualClock
from tests.support.object_server import Fault, ObjectServer, object_server
from tests.support.open_logs import START_MS
from tests.support.published import published

CLOCK = ManualClock(START_MS)
URL = "s3://bkt/logs"
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def server() -> Iterator[ObjectServer]:
    with object_server() as served:
        yield served


def options(server: ObjectServer, **given: str) -> WriteOptions:
    return parse_write_options({"path": URL, "SEGLOG_REMOTE_RETRIES": "0", **server.environment, **given})


def rows(values: Sequence[str], partition: int = 0, first: int | None = None) -> pa.RecordBatch:
    """Returns rows of the topic t, with offsets from `first` on."""
    columns: dict[str, pa.Array] = {
        "value": pa.array([value.encode() for value in values], pa.binary()),
        "topic": pa.array(["t"] * len(values), pa.string()),
        "partition": pa.array([partition] * len(values), pa.int32()),
    }
    if first is not None:
        columns["offset"] = pa.array(range(first, first + len(values)), pa.int64())
    return pa.record_batch(columns)


def write(sink: ObjectSink, *batches: pa.RecordBatch, owner: str = "job", stream: StreamBatch | None = None) -> int:
    """Each batch comes from a task of its own."""
    return sink.commit(owner, [file for batch in batches for file in sink.stage(owner, [batch])], stream)


def committed(chosen: WriteOptions) -> CommittedLogs | None:
    return read_committed(files_of(chosen.store), chosen.path)


def partition(chosen: WriteOptions, name: TopicPartition = T0) -> ManifestPartition:
    found = committed(chosen)
    assert found is not None
    one = found.manifest.partition(name)
    assert one is not None
    return one


def values(chosen: WriteOptions, home: Path, name: TopicPartition = T0) -> list[tuple[int | None, str]]:
    """Returns the records of the fetched partition, after checking that the verifier has no findings."""
    target = home / "fetched" / str(name)
    if target.parent.exists():
        shutil.rmtree(target.parent)
    fs, (seen,) = see_tiers(files_of(chosen.store), [chosen.path / str(name)])
    fetch(fs, seen, FS, target)
    checked = Verification(FS, resolve_paths(FS, [target]), VerifyOptions(level=Level.SEMANTIC, jobs=1), CLOCK)
    assert [one for one in checked if one.severity.value != "info"] == []
    with opened(target.parent, writable=False) as directory:
        return [(one.offset, (one.value or b"").decode()) for one in directory.log(name).records()]


def left_behind(chosen: WriteOptions) -> list[str]:
    """Returns the objects that the manifest does not name."""
    logs = committed(chosen)
    assert logs is not None
    return [str(remark.path) for remark in orphans(files_of(chosen.store), logs)]


def test_rows_of_several_tasks_and_partitions_are_committed_and_a_later_write_goes_on(
    server: ObjectServer, tmp_path: Path
) -> None:
    chosen = options(server, compression="zstd")
    sink = ObjectSink(chosen)
    assert write(sink, rows(["a", "b"]), rows(["c"]), rows(["x"], 1)) == 4
    assert write(sink, rows(["d"])) == 1
    assert values(chosen, tmp_path) == [(0, "a"), (1, "b"), (2, "c"), (3, "d")]
    assert values(chosen, tmp_path, T1) == [(0, "x")]
    assert partition(chosen).epochs == (EpochEntry(0, 0),)
    assert not [name for name in server.objects if "/staged/" in name or "/probe-" in name]


def test_without_rows_nothing_is_asked(server: ObjectServer) -> None:
    assert ObjectSink(options(server)).commit("job", []) == 0
    assert server.count("PUT") == 0 and not server.objects


def test_offsets_of_their_own_are_kept_and_must_ascend(server: ObjectServer, tmp_path: Path) -> None:
    chosen = options(server)
    sink = ObjectSink(chosen)
    write(sink, rows(["a", "b"], first=7))
    write(sink, rows(["c"], first=20))
    assert [offset for offset, _ in values(chosen, tmp_path)] == [7, 8, 20]
    before = dict(server.objects)
    with pytest.raises(OffsetsOutOfOrderError, match=r"s3://bkt/logs/t-0: rows begin at offset 5, .* ends at 21"):
        write(sink, rows(["x"], 1), rows(["late"], first=5))
    with pytest.raises(OffsetsOutOfOrderError, match="two tasks with one partition must not overlap"):
        write(sink, rows(["x", "y"], first=30), rows(["z"], first=31))
    assert [name for name in before if "manifest" in name] == [name for name in server.objects if "manifest" in name]


def test_segments_are_rolled_by_their_size_and_small_ones_are_joined(tmp_path: Path) -> None:
    chosen = parse_write_options({"path": str(tmp_path / "prefix"), "segmentBytes": "2000", "batchSize": "200"})
    sink = ObjectSink(chosen)
    expected = []
    for i in range(40):
        batch = [f"value {i}.{j}" * 3 for j in range(5)]
        write(sink, rows(batch))
        expected += batch
    assert values(chosen, tmp_path) == list(enumerate(expected))
    sizes = [one.objects[FileKind.LOG].size for one in partition(chosen).segments]
    assert max(sizes) <= 2000 and len(sizes) <= 2 * sum(sizes) // 2000 + 3
    assert all(FileKind.PRODUCER_SNAPSHOT in one.objects for one in partition(chosen).segments)


def test_segments_are_not_rolled_by_the_time_of_their_records(tmp_path: Path) -> None:
    """Otherwise a joined segment would be cut where its parts were, and each append would rewrite all of them."""
    sink = ObjectSink(parse_write_options({"path": str(tmp_path / "prefix"), "topic": "t"}))
    for week in (1, 3):
        times = pa.array([week * 604_800_000_000], pa.timestamp("us", "UTC"))
        write(sink, pa.record_batch({"value": pa.array([b"v"], pa.binary()), "timestamp": times}))
    assert len(partition(sink.options).segments) == 1


def test_a_streams_batch_is_there_once(server: ObjectServer, tmp_path: Path) -> None:
    chosen = options(server)
    sink = ObjectSink(chosen)
    for number, value in [(0, "a"), (0, "a"), (1, "b"), (1, "b")]:
        write(sink, rows([value]), owner="query", stream=StreamBatch("query", number, f"entry {number}"))
    write(sink, rows(["other"]), owner="other", stream=StreamBatch("other", 0))
    assert values(chosen, tmp_path) == [(0, "a"), (1, "b"), (2, "other")]
    logs = committed(chosen)
    assert logs is not None
    assert logs.manifest.streams == {"query": StreamEntry(1, "entry 1"), "other": StreamEntry(0)}
    assert list(logs.manifest.streams) == ["query", "other"]


def test_a_checkpoint_that_was_set_back_is_refused(server: ObjectServer) -> None:
    sink = ObjectSink(options(server))
    write(sink, rows(["a"]), stream=StreamBatch("query", 4, "one"))
    for batch in (StreamBatch("query", 4, "another"), StreamBatch("query", 3, "one")):
        with pytest.raises(RefusedError, match="its checkpoint was set back or copied"):
            write(sink, rows(["b"]), stream=batch)


def test_of_two_writers_one_gets_an_error_and_its_rows_are_not_there(server: ObjectServer, tmp_path: Path) -> None:
    chosen = options(server)
    sink = ObjectSink(chosen)
    write(sink, rows(["a"]))
    files = sink.stage("slow", [rows(["slow"])])
    met = []

    def meanwhile(method: str, path: str) -> Fault | None:
        if method == "PUT" and path.endswith(".log") and not met:
            met.append(path)
            write(sink, rows(["fast"]), owner="fast")
        return None

    server.fault = meanwhile
    with pytest.raises(RefusedError, match="another writer has committed meanwhile, so nothing was committed"):
        sink.commit("slow", files)
    assert met
    assert values(chosen, tmp_path) == [(0, "a"), (1, "fast")]


@pytest.mark.parametrize("scheme", ["gs", "az"])
def test_other_clouds_are_written_as_amazons_is(scheme: str, server: ObjectServer, tmp_path: Path) -> None:
    """Covers new objects, a manifest created only if its number is free, and the removal of staged objects."""
    given = {"path": URL.replace("s3", scheme), "SEGLOG_REMOTE_RETRIES": "0", **server.environments[scheme]}
    chosen = parse_write_options(given)
    sink = ObjectSink(chosen)
    assert write(sink, rows(["a", "b"]), rows(["x"], 1)) == 3
    for number, value in [(0, "c"), (0, "c"), (1, "d")]:
        write(sink, rows([value]), owner="query", stream=StreamBatch("query", number, f"entry {number}"))
    files = sink.stage("slow", [rows(["slow"])])
    met = []

    def meanwhile(method: str, path: str) -> Fault | None:
        if method == "PUT" and ".log" in path.replace("%2E", ".") and not met:
            met.append(path)
            write(sink, rows(["fast"]), owner="fast")
        return None

    server.fault = meanwhile
    with pytest.raises(RefusedError, match="another writer has committed meanwhile, so nothing was committed"):
        sink.commit("slow", files)
    assert met
    assert values(chosen, tmp_path) == [(0, "a"), (1, "b"), (2, "c"), (3, "d"), (4, "fast")]
    assert values(chosen, tmp_path, T1) == [(0, "x")]
    assert not [name for name in server.objects if "/staged/" in name and "/slow/" not in name]


@pytest.mark.parametrize("scheme", ["gs", "az"])
def test_other_clouds_that_would_replace_an_object_are_found_out(scheme: str, server: ObjectServer) -> None:
    """A store that ignores the condition would let two writers commit the same manifest."""
    chosen = parse_write_options({"path": URL.replace("s3", scheme), **server.environments[scheme]})
    server.keeps_conditions = False
    with pytest.raises(UnsupportedError, match="bkt/logs"):
        write(ObjectSink(chosen), rows(["a"]))
    assert not [name for name in server.objects if "manifest" in name]


def failing(method: str, nth: int) -> Fault:
    """The ways a request fails: it is refused, or its answer is lost. It is not retried here."""
    return Fault(reset=True) if nth % 2 else Fault(500 if method in ("GET", "HEAD") else 403, "AccessDenied")


@pytest.mark.parametrize("nth", range(22))
def test_each_request_fails_once_and_each_batch_is_there_exactly_once(
    nth: int, server: ObjectServer, tmp_path: Path
) -> None:
    chosen = options(server)
    sink = ObjectSink(chosen)
    write(sink, rows(["a", "b"]), owner="query", stream=StreamBatch("query", 0))
    asked: list[str] = []

    def fault(method: str, path: str) -> Fault | None:
        if method in ("BODY", "LISTING"):  # of an answer that was let through
            return None
        asked.append(f"{method} {path}")
        return failing(method, nth) if len(asked) == nth + 1 else None

    server.fault = fault
    for attempt in range(2):
        try:
            write(sink, rows(["c", "d"]), rows(["x"], 1), owner="query", stream=StreamBatch("query", 1))
            break
        except OSError:
            assert attempt == 0
    assert len(asked) > nth
    server.fault = lambda _method, _path: None
    assert values(chosen, tmp_path) == [(0, "a"), (1, "b"), (2, "c"), (3, "d")]
    assert values(chosen, tmp_path, T1) == [(0, "x")]
    logs = committed(chosen)
    assert logs is not None and logs.manifest.number == 2
    assert all(path.startswith(f"{URL}/") for path in left_behind(chosen))


def test_a_writer_needs_no_permission_to_remove(
    server: ObjectServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.fault = lambda method, _: Fault(403, "AccessDenied") if method == "POST" else None
    chosen = options(server)
    assert write(ObjectSink(chosen), rows(["a"]), rows(["b"])) == 2
    assert values(chosen, tmp_path) == [(0, "a"), (1, "b")]
    assert caplog.text.count("staged objects remain") == 1
    assert f"{URL}/{COMMITTED}/staged/job" in left_behind(chosen)


def test_staged_rows_that_are_gone_or_damaged_are_named_and_nothing_is_committed(server: ObjectServer) -> None:
    chosen = options(server)
    sink = ObjectSink(chosen)
    for spoil in (b"", b"x", None):
        files = sink.stage("job", [rows(["a", "b"])])
        (name,) = [one for one in server.objects if "/staged/" in one]
        if spoil is None:
            del server.objects[name]
        else:
            server.objects[name] = spoil + server.objects[name][len(spoil) or 1 :]
        with pytest.raises((IncompleteError, CorruptRecordError), match=files[0].name):
            sink.commit("job", files)
        assert committed(chosen) is None


def test_a_segment_that_is_to_be_joined_and_was_changed_ends_the_write(server: ObjectServer) -> None:
    chosen = options(server)
    sink = ObjectSink(chosen)
    write(sink, rows(["a", "b"]))
    (name,) = [one for one in server.objects if one.endswith(".log")]
    whole = server.objects[name]
    server.objects[name] = whole[:-1] + bytes([whole[-1] ^ 1])
    with pytest.raises(Exception, match=r"checksum|was changed since"):
        write(sink, rows(["c"]))
    server.objects[name] = whole[:-1]
    with pytest.raises(IncompleteError, match=r"\.log: 0 bytes of batches.*it was changed after it was committed"):
        write(sink, rows(["c"]))


def test_a_prefix_that_holds_something_else_is_refused(server: ObjectServer) -> None:
    server.objects["bkt/logs/t-0/00000000000000000000.log"] = b"x"
    with pytest.raises(RefusedError, match="it already holds something else"):
        write(ObjectSink(options(server)), rows(["a"]))


# --- segments that tasks make ----------------------------------------------------------------------------------


def made_by_tasks(server: ObjectServer, **given: str) -> ObjectSink:
    return ObjectSink(options(server, **given), made_bytes=1)


def test_what_one_task_alone_has_never_passes_the_driver(server: ObjectServer, tmp_path: Path) -> None:
    sink = made_by_tasks(server)
    expected = []
    for number in range(3):
        files = sink.stage("job", [rows([f"a{number}", f"b{number}"]), rows([f"c{number}"])])
        server.asked.clear()
        assert sink.commit("job", files) == 3
        assert not [one for one in server.asked if one.startswith("GET") and one.endswith((".log", ".batches"))]
        expected += [f"a{number}", f"b{number}", f"c{number}"]
    assert values(sink.options, tmp_path) == list(enumerate(expected))
    assert left_behind(sink.options) == []
    assert all(FileKind.PRODUCER_SNAPSHOT in one.objects for one in partition(sink.options).segments)
    assert partition(sink.options).epochs == (EpochEntry(0, 0),)


def test_a_task_that_is_not_alone_or_was_overtaken_loses_no_row(server: ObjectServer, tmp_path: Path) -> None:
    sink = made_by_tasks(server)
    two_tasks = [sink.stage("job", [rows(["a"]), rows(["x"], 1)]), sink.stage("job", [rows(["b", "c"])])]
    sink.commit("job", [file for files in two_tasks for file in files])
    late = sink.stage("late", [rows(["late"])])
    write(sink, rows(["first"]))
    sink.commit("late", late)
    assert [value for _, value in values(sink.options, tmp_path)] == ["a", "b", "c", "first", "late"]
    assert values(sink.options, tmp_path, T1) == [(0, "x")]
    in_vain = [one.made.segment.place for one in (*two_tasks[1], *late) if one.made is not None]
    assert len(in_vain) == 2
    assert not [one for one in server.objects if Path(one).parent.name in in_vain]


def test_rows_of_a_task_become_segments_of_their_size(server: ObjectServer, tmp_path: Path) -> None:
    sink = made_by_tasks(server, segmentBytes="2000", batchSize="200")
    batches = [rows([f"value {i}.{j}" * 3 for j in range(5)]) for i in range(40)]
    files = sink.stage("job", batches)
    assert sink.commit("job", files) == 200
    sizes = [one.objects[FileKind.LOG].size for one in partition(sink.options).segments]
    assert len(sizes) > 3 and max(sizes) <= 2000
    assert [offset for offset, _ in values(sink.options, tmp_path)] == list(range(200))
    assert all(file.made is not None for file in files)


def test_offsets_of_their_own_are_kept_by_tasks_too(server: ObjectServer, tmp_path: Path) -> None:
    sink = made_by_tasks(server, segmentBytes="300", batchSize="100")
    files = sink.stage("job", [rows(["a" * 50, "b" * 50], first=7), rows(["c" * 200], first=20)])
    assert len(files) == 2
    sink.commit("job", files)
    assert [offset for offset, _ in values(sink.options, tmp_path)] == [7, 8, 20]
    with pytest.raises(AppendError, match="offset 20 comes after offset 21"):
        sink.stage("job", [rows(["a" * 50, "b" * 150], first=20), rows(["c" * 200], first=20)])
    with pytest.raises(OffsetsOutOfOrderError, match="rows begin at offset 20, and the log ends at 21"):
        sink.commit("job", sink.stage("job", [rows(["late"], first=20)]))


def test_a_commit_whose_answer_was_lost_keeps_what_its_manifest_may_name(server: ObjectServer, tmp_path: Path) -> None:
    sink = made_by_tasks(server)
    files = sink.stage("query", [rows(["a"])])

    def late(method: str, path: str) -> Fault | None:
        return Fault(500, "InternalError") if method == "PUT" and "manifest-" in path else None

    server.fault = late
    with pytest.raises(OSError, match="manifest-"):
        sink.commit("query", files, StreamBatch("query", 0))
    made = files[0].made
    assert made is not None
    assert {f"bkt/logs/t-0/{made.segment.place}/{made.segment.name_of(kind)}" for kind in made.segment.objects} <= set(
        server.objects
    )


def test_producers_of_a_broker_stand_after_a_segment_of_a_task_as_before(tmp_path: Path) -> None:
    prefix, store, name = tmp_path / "prefix", machine_files(), TopicPartition("payments", 0)
    commit(store, prefix, None, [published(FS, store, prefix, CLEAN / "payments-0")], CLOCK)
    sink = ObjectSink(parse_write_options({"path": str(prefix), "topic": "payments"}), made_bytes=1)
    before = partition(sink.options, name).segments[-1].objects[FileKind.PRODUCER_SNAPSHOT]
    write(sink, pa.record_batch({"value": pa.array([b"one"], pa.binary())}))
    assert partition(sink.options, name).segments[-1].objects[FileKind.PRODUCER_SNAPSHOT] == before
    assert values(sink.options, tmp_path, name)[-1][1] == "one"


# --- logs that others have committed --------------------------------------------------------------------------


def test_rows_go_after_a_brokers_log_with_producers_and_epochs(tmp_path: Path) -> None:
    """payments-0 has transactions and idempotent producers: their state must not be lost."""
    prefix, store = tmp_path / "prefix", machine_files()
    commit(store, prefix, None, [published(FS, store, prefix, CLEAN / "payments-0")], CLOCK)
    name = TopicPartition("payments", 0)
    chosen = parse_write_options({"path": str(prefix), "topic": "payments"})
    before = partition(chosen, name)
    fetched = tmp_path / "before" / "payments-0"
    fs, (seen,) = see_tiers(store, [prefix / "payments-0"])
    fetch(fs, seen, FS, fetched)
    sink = ObjectSink(chosen)
    for value in ("one", "two"):
        write(sink, pa.record_batch({"value": pa.array([value.encode()], pa.binary())}))
    after = partition(chosen, name)
    assert after.epochs == before.epochs and after.log_end_offset == before.log_end_offset + 2
    end = before.log_end_offset
    assert values(chosen, tmp_path, name)[-2:] == [(end, "one"), (end + 1, "two")]
    last = [max(path.glob("*.snapshot")).read_bytes() for path in (fetched, tmp_path / "fetched" / "payments-0")]
    assert last[0] == last[1] and len(last[0]) > 100


def test_a_local_directory_is_a_prefix_where_logs_were_committed(tmp_path: Path) -> None:
    store = machine_files()

    def is_prefix(path: Path) -> bool:
        return isinstance(sink_of(store, parse_write_options({"path": str(path)})), ObjectSink)

    assert not is_prefix(tmp_path) and not is_prefix(tmp_path / "new")
    commit(store, tmp_path, None, [published(FS, store, tmp_path, CLEAN / "payments-0")], CLOCK)
    assert is_prefix(tmp_path) and not is_prefix(tmp_path / "payments-0")
    assert is_prefix(parse_location("s3://bkt/anything"))
    with pytest.raises(UnsupportedError, match="rows go to s3://, gs://, az:// or a directory"):
        is_prefix(parse_location("https://host/logs"))


def test_what_is_appended_is_gone_from_the_scratch_directory(tmp_path: Path) -> None:
    home, prefix = tmp_path / "home", tmp_path / "prefix"
    home.mkdir()
    (prefix / COMMITTED).mkdir(parents=True)
    sink = ObjectSink(parse_write_options({"path": str(prefix)}), home)
    write(sink, rows(["a"]))
    assert list(home.iterdir()) == []
