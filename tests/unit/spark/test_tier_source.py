"""The source reads a broker's tiered storage in each layout like the partition itself, and tasks are sent objects."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seglog.errors import ConfigError, IncompleteError, RefusedError
from seglog_ask.spark.read_options import parse_read_options
from seglog_ask.spark.stream import FollowedLog
from seglog_ask.table.engines.arrow import record_batches
from seglog_ask.table.plan.files import StoredLog, files_of
from seglog_ask.table.plan.schema import default_projection
from seglog_ask.table.plan.splits import Split, plan_splits
from seglog_stores.remote.settings import StoreSettings
from tests.support.fixtures import clean_partition
from tests.support.log_files import FS, write_segment
from tests.support.naive import NaiveRecord, batch_v2
from tests.support.object_server import object_server
from tests.support.tiers import (
    PLAIN,
    SEALED,
    AivenOptions,
    custom_metadata,
    private_pem,
    remote_record,
    tier_segments,
    write_aiven,
    write_local_tiered,
    write_pinterest,
)

NAME = "payments-0"
ACTIVE = 399  # the active segment begins there, and is in no tier


@pytest.fixture
def genuine(tmp_path: Path) -> Path:
    """A partition with transactions that a broker wrote."""
    return clean_partition(NAME, tmp_path / "logs")


@pytest.fixture
def key(tmp_path: Path) -> str:
    file = tmp_path / "key.pem"
    file.write_bytes(private_pem())
    return str(file)


def rows(path: Path | str, **given: str) -> list[tuple[Any, ...]]:
    options = parse_read_options({"path": str(path), **given})
    projection = default_projection("records", ("topic", "partition", "offset", "key", "value"), False)
    sent = pickle.dumps((options, plan_splits(FS, options)))
    options, splits = pickle.loads(sent)
    found: list[tuple[Any, ...]] = []
    for split in splits:
        for batch in record_batches(FS, split, projection, options):
            found += zip(*(column.to_pylist() for column in batch.columns), strict=True)
    return found


def planned(path: Path, **given: str) -> list[Split]:
    return plan_splits(FS, parse_read_options({"path": str(path), **given}))


def expected(genuine: Path, **given: str) -> list[tuple[Any, ...]]:
    return [row for row in rows(genuine, **given) if row[2] < ACTIVE]


WAYS = [{}, {"isolationLevel": "read_committed"}, {"startingOffsets": '{"payments": {"0": 200}}'}]


@pytest.mark.parametrize("given", WAYS, ids=str)
@pytest.mark.parametrize("level", ["root", "partition"])
def test_local_tiered_storage_is_read(tmp_path: Path, genuine: Path, given: dict[str, str], level: str) -> None:
    directory = write_local_tiered(tmp_path / "tier", "payments", 0, tier_segments(genuine))
    path = directory if level == "partition" else directory.parent
    assert rows(path, **given) == expected(genuine, **given) != []


@pytest.mark.parametrize("given", WAYS, ids=str)
@pytest.mark.parametrize("stored", [PLAIN, AivenOptions(compressed=True), SEALED], ids=["plain", "zstd", "sealed"])
def test_aivens_objects_are_read(
    tmp_path: Path, genuine: Path, key: str, stored: AivenOptions, given: dict[str, str]
) -> None:
    directory = write_aiven(tmp_path / "tier", "payments", 0, tier_segments(genuine), stored)
    given = {**given, "tierKey": f"key1={key}", "maxPartitionBytes": "2000"}
    without = {name: value for name, value in given.items() if name != "tierKey"}
    for path in (directory, directory.parent.parent):
        assert rows(path, **given) == expected(genuine, **without) != []


def test_a_key_is_named_as_json_too_and_printed_nowhere(tmp_path: Path, genuine: Path, key: str) -> None:
    directory = write_aiven(tmp_path / "tier", "payments", 0, tier_segments(genuine), SEALED)
    given = {"tierKey": json.dumps({"key1": key})}
    assert rows(directory, **given) == expected(genuine)
    assert bytes(range(32)) in pickle.dumps(planned(directory, **given))  # the data key of the segment travels
    assert repr(bytes(range(32)))[2:40] not in repr(planned(directory, **given))
    with pytest.raises(ConfigError, match="key pair key1; give its private key"):
        rows(directory)


def test_the_local_part_is_joined(tmp_path: Path, genuine: Path) -> None:
    whole = rows(genuine)
    directory = write_local_tiered(tmp_path / "tier", "payments", 0, tier_segments(genuine))
    bases = sorted(int(path.stem) for path in genuine.glob("*.log"))
    for path in genuine.glob(f"{bases[0]:020d}.*"):
        path.unlink()  # what the broker has no more
    max(directory.glob("*.log")).unlink()  # what the tier has not yet
    assert rows(directory, local=str(genuine.parent)) == whole != rows(genuine)


def test_a_log_that_is_the_front_of_an_object_ends_there(tmp_path: Path, genuine: Path) -> None:
    log = min(genuine.glob("*.log"))
    stored, shown = StoredLog(str(log), log.stat().st_size, 0, "", front=100), tmp_path / "shown.log"
    fs = stored.shown(FS, shown)
    with fs.open(shown, "r") as file:
        assert (file.size(), file.read_at(0, 1000)) == (100, log.read_bytes()[:100])
    status = fs.status(shown)
    assert status is not None
    assert status.size == 100


def test_pinterests_watermark_is_heeded_and_a_directory_above_is_refused(
    tmp_path: Path, genuine: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = write_pinterest(tmp_path, "payments", 0, tier_segments(genuine))
    bases = sorted(int(path.stem) for path in directory.glob("*.log"))
    assert rows(directory) == expected(genuine)
    (directory / "offset.wm").write_text(f"{bases[0]:020d}")
    assert rows(directory) == [row for row in expected(genuine) if row[2] < bases[1]] != []
    assert "is beyond offset.wm, so its upload was not completed" in caplog.text
    with pytest.raises(RefusedError, match=r"payments-0: offset\.wm says how far"):
        rows(directory.parent)


def test_an_object_that_changed_or_is_gone_ends_a_task(tmp_path: Path, genuine: Path, key: str) -> None:
    directory = write_aiven(tmp_path / "tier", "payments", 0, tier_segments(genuine), SEALED)
    options = parse_read_options({"path": str(directory), "tierKey": f"key1={key}"})
    splits = plan_splits(FS, options)
    min(directory.glob("*.log")).unlink()
    projection = default_projection("records", ("offset",), False)
    with pytest.raises(IncompleteError):
        for split in splits:
            list(record_batches(FS, split, projection, options))
    shutil.rmtree(tmp_path / "tier")
    with pytest.raises(RefusedError, match="the driver planned to read it"):
        list(record_batches(FS, splits[0], projection, options))


def test_what_is_missing_in_a_tier_ends_a_query_that_may_lose_nothing(tmp_path: Path, genuine: Path) -> None:
    directory = write_aiven(tmp_path / "tier", "payments", 0, tier_segments(genuine))
    min(directory.glob("*.log")).unlink()
    with pytest.raises(IncompleteError, match="failOnDataLoss=false goes on"):
        rows(directory)
    assert rows(directory, failOnDataLoss="false") == expected(genuine)[-len(rows(directory, failOnDataLoss="false")) :]


@pytest.mark.parametrize(
    "given", [{"local": "/somewhere"}, {"tierKey": "{1"}, {"tierKey": '{"a": 1}'}, {"remoteMetadata": "[1]"}], ids=str
)
def test_options_of_tiers_are_refused_where_they_mean_nothing(genuine: Path, given: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"no path is in one|not JSON|not every value|list of strings"):
        rows(genuine, **given)


@pytest.mark.parametrize("write", [write_local_tiered, write_aiven])
def test_a_topic_of_a_tier_in_a_bucket_is_chosen(
    tmp_path: Path, genuine: Path, write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "tier"
    write(root, "payments", 0, tier_segments(genuine))
    with object_server() as server:
        for path in root.rglob("*"):
            if path.is_file():
                server.objects[f"bkt/{path.relative_to(tmp_path)}"] = path.read_bytes()
        monkeypatch.setitem(globals(), "FS", files_of(StoreSettings.of(server.environment)))
        for given in ({}, {"subscribe": "payments"}, {"assign": '{"payments": [0]}'}):
            url = f"s3://bkt/tier{'/kafka-tiered-storage' if (root / 'kafka-tiered-storage').is_dir() else ''}"
            assert rows(url, **server.environment, **given) == expected(genuine) != []


def metadata_at(directory: Path, genuine: Path, copied: int | None = None) -> Path:
    """`__remote_log_metadata` that lists the first `copied` segments (None: all), the first one below `old/`."""
    segments = tier_segments(genuine)[:copied]
    customs = [custom_metadata("old/")] + [None] * (len(segments) - 1)
    values = [
        remote_record(one, "payments", 0, state=1, custom=custom) for one, custom in zip(segments, customs, strict=True)
    ]
    batch = batch_v2(0, [NaiveRecord(i, 0, None, value) for i, value in enumerate(values)])
    write_segment(directory / "__remote_log_metadata-0", 0, batch)
    return directory / "__remote_log_metadata-0"


def moved_tier(tmp_path: Path, genuine: Path) -> Path:
    """An Aiven tier in `new/` whose first segment lies in `old/`."""
    directory = write_aiven(tmp_path / "bucket" / "new", "payments", 0, tier_segments(genuine))
    old = tmp_path / "bucket" / "old" / directory.parent.name / directory.name
    old.mkdir(parents=True)
    first = min(directory.glob("*.log")).stem
    for kind in (".log", ".indexes"):
        (directory / f"{first}{kind}").rename(old / f"{first}{kind}")
    return directory


@pytest.mark.parametrize("form", ["directory", "list", "log directory"])
def test_metadata_of_a_broker_locates_segments(tmp_path: Path, genuine: Path, form: str) -> None:
    directory = moved_tier(tmp_path, genuine)
    metadata = metadata_at(tmp_path / "brokers", genuine)
    text = {"directory": str(metadata), "list": json.dumps([str(metadata)]), "log directory": str(metadata.parent)}
    assert rows(directory, remoteMetadata=text[form]) == expected(genuine) != []
    with pytest.raises(IncompleteError, match="failOnDataLoss=false goes on"):
        rows(directory)


def test_segments_that_the_metadata_does_not_list_are_not_read(
    tmp_path: Path, genuine: Path, caplog: pytest.LogCaptureFixture
) -> None:
    metadata = metadata_at(tmp_path / "brokers", genuine, 1)
    found = rows(moved_tier(tmp_path, genuine), remoteMetadata=str(metadata), failOnDataLoss="false")
    second = tier_segments(genuine)[1].start
    assert found == [row for row in expected(genuine) if row[2] < second] != []
    assert "the metadata does not have it" in caplog.text


def test_a_stream_gets_each_offset_once_while_the_tier_grows_and_the_local_part_shrinks(
    tmp_path: Path, genuine: Path
) -> None:
    whole, (first, second) = rows(genuine), tier_segments(genuine)
    rolled = {file: file.read_bytes() for file in genuine.glob(f"{ACTIVE:020d}.*")}
    for file in rolled:
        file.unlink()
    active = max(genuine.glob("*.log"))
    content = active.read_bytes()
    active.write_bytes(b"")  # nothing was written there yet
    path = write_local_tiered(tmp_path / "tier", "payments", 0, [first])
    given = {"path": str(path), "local": str(genuine.parent), "startingOffsets": "earliest"}
    options = parse_read_options(given, streaming=True)
    projection = default_projection("records", ("topic", "partition", "offset", "key", "value"), False)
    log = FollowedLog(options)
    found: list[tuple[Any, ...]] = []
    reached = log.starting_offsets()
    steps: list[int] = []

    def trigger() -> None:
        nonlocal reached
        ends = log.reached(reached, log.ends())
        for split in pickle.loads(pickle.dumps(log.splits(reached, ends))):
            for batch in record_batches(FS, split, projection, options):
                found.extend(zip(*(column.to_pylist() for column in batch.columns), strict=True))
        reached = ends
        steps.append(len(found))

    trigger()
    for file in genuine.glob(f"{first.start:020d}.*"):
        file.unlink()
    active.write_bytes(content[: len(content) // 2])  # within a batch
    trigger()
    active.write_bytes(content)
    for file, data in rolled.items():
        file.write_bytes(data)
    write_local_tiered(tmp_path / "tier", "payments", 0, [first, second])
    for file in genuine.glob(f"{second.start:020d}.*"):
        file.unlink()
    trigger()
    trigger()
    assert found == whole
    assert 0 < steps[0] < steps[1] < steps[2] == steps[3]
