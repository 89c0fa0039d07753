"""A snapshot is read where it is: REPOSITORY#SNAPSHOT has the files that a restore makes, and nothing can change it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import seglog
from seglog.errors import CorruptTierError, NotALogError, RefusedError
from seglog.locations import parse_location
from seglog.scan.listing import list_log_directory, resolve_paths
from seglog.storage.filesystem import FileSystem
from seglog.storage.routing import machine_files
from seglog_ask.table.plan.files import shown_at, task_files
from seglog_rescue.operations.backup import BackupRequest, backup
from seglog_stores.operations.fetch import fetch
from seglog_stores.remote.routing import files_with
from seglog_stores.remote.settings import StoreSettings
from seglog_stores.tiers.tiered_partition import TierOptions
from seglog_stores.tiers.view import see_tiers
from tests.support.command_line import clean_logs, keep_partitions, run
from tests.support.consumers import librdkafka_rows
from tests.support.log_files import FS, batch, contents_below
from tests.support.manual_clock import ManualClock
from tests.support.object_server import object_server
from tests.support.serving import local_rows, served

START_MS = 1_700_000_000_000


def snapshot_of(*logs: Path, to: Path, at: int = 0) -> str:
    """Makes a snapshot; returns its id."""
    request = BackupRequest(logs, to, uncommitted=True)
    return backup(FS, machine_files(), ManualClock(START_MS + at), request).snapshot.id


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A log directory that a broker closed, with a log that is larger than a pack takes."""
    logs = clean_logs(tmp_path)
    keep_partitions(logs, ("payments-0", "customers-0", "__consumer_offsets-0", "__cluster_metadata-0"))
    (logs / "large-0").mkdir()
    large = b"".join(batch(i, value=bytes(100_000)) for i in range(12))
    (logs / "large-0" / "00000000000000000000.log").write_bytes(large)
    return logs


@pytest.fixture
def place(logs: Path, tmp_path: Path) -> Path:
    """A repository with one snapshot."""
    snapshot_of(logs, to=tmp_path / "backup")
    return tmp_path / "backup"


def shown_below(fs: FileSystem, directory: Path) -> dict[str, bytes]:
    """The contents of all files below a directory, by their paths relative to it."""
    return {str(path.relative_to(directory)): fs.read_bytes(path) for path in _files(fs, directory)}


def _files(fs: FileSystem, directory: Path) -> Iterator[Path]:
    assert fs.list(directory) == [name for name, _ in fs.entries(directory)]
    for name, status in fs.entries(directory):
        assert fs.status(directory / name) == status
        if status.is_directory:
            yield from _files(fs, directory / name)
        else:
            yield directory / name


# --- what is shown ----------------------------------------------------------------------------------------


def test_a_snapshot_has_the_files_that_were_stored(logs: Path, place: Path) -> None:
    fs, (seen,) = see_tiers(FS, [Path(f"{place}#latest")])
    assert shown_below(fs, seen) == contents_below(logs)


def test_a_log_that_grew_is_read_across_its_extents_and_older_snapshots_end_where_they_did(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "orders-0" / "00000000000000000000.log"
    log.parent.mkdir(parents=True)
    written, ids = [], []
    for i in range(5):
        with log.open("ab") as file:
            file.write(batch(i, value=bytes(1_500_000 if i % 2 else 1000)))
        written.append(log.read_bytes())
        ids.append(snapshot_of(log.parent.parent, to=tmp_path / "backup", at=i * 1000))
    for identity, data in zip(ids, written, strict=True):
        fs, (seen,) = see_tiers(FS, [Path(f"{tmp_path}/backup#{identity}/orders-0")])
        with fs.open(seen / log.name, "r") as file:
            assert (file.size(), file.read_at(0, len(data) + 1)) == (len(data), data)
            for position in (0, 900, 1000, 1100, 1_501_000, len(data) - 10):
                buffer = bytearray(50)
                count = file.read_into(position, buffer)
                assert buffer[:count] == data[position : position + 50]
            assert file.read_at(len(data), 5) == b"" and file.read_into(len(data) + 7, bytearray(3)) == 0
    with seglog.open_log(f"{tmp_path}/backup#latest/orders-0", writable=False) as reader:
        assert [record.offset for record in reader.records()] == [0, 1, 2, 3, 4]


def test_a_partition_a_topic_and_a_file_are_paths_in_a_snapshot(logs: Path, place: Path) -> None:
    root = f"{place}#latest"
    file = Path(root) / "payments-0" / f"{0:020d}.log"
    fs, seen = see_tiers(FS, [Path(root, "customers"), Path(root, "payments-0"), file])
    assert [target.path for target in resolve_paths(fs, seen)] == [Path(root, "customers-0"), *seen[1:]]
    assert fs.read_bytes(file) == (logs / "payments-0" / file.name).read_bytes()


def test_a_snapshot_is_named_by_the_start_of_its_id_and_by_latest(logs: Path, tmp_path: Path) -> None:
    first = snapshot_of(logs, to=tmp_path / "backup")
    (logs / "large-0" / "00000000000000000000.log").unlink()
    second = snapshot_of(logs, to=tmp_path / "backup", at=3_600_000)

    def has_large(name: str) -> bool:
        fs, (seen,) = see_tiers(FS, [Path(f"{tmp_path}/backup#{name}")])
        return fs.status(seen / "large-0" / "00000000000000000000.log") is not None

    assert has_large(first) and has_large(first[:13])
    assert not any(map(has_large, (second, "latest", f"latest-{second[-8:]}")))
    for name, message in (("2023", "2 snapshots"), ("2024", "no snapshot"), ("latest-00000000", "ends with 00000000")):
        with pytest.raises(RefusedError, match=message):
            see_tiers(FS, [Path(f"{tmp_path}/backup#{name}")])


def test_of_several_brokers_the_latest_snapshot_is_named_by_its_directories(logs: Path, tmp_path: Path) -> None:
    snapshot_of(logs, to=tmp_path / "backup")
    other = tmp_path / "other" / "large-0"
    other.mkdir(parents=True)
    (other / "00000000000000000000.log").write_bytes(batch(0))
    tag = snapshot_of(other.parent, to=tmp_path / "backup", at=1000)[-8:]
    with pytest.raises(RefusedError, match=f"2 different sets of log directories.*latest-{tag}"):
        see_tiers(FS, [Path(f"{tmp_path}/backup#latest")])
    fs, (seen,) = see_tiers(FS, [Path(f"{tmp_path}/backup#latest-{tag}")])
    assert fs.list(seen) == ["large-0"]


def test_of_several_log_directories_one_is_named(tmp_path: Path) -> None:
    directories = [tmp_path / "a" / "data", tmp_path / "b" / "data"]
    for i, directory in enumerate(directories):
        (directory / f"orders-{i}").mkdir(parents=True)
        (directory / f"orders-{i}" / "00000000000000000000.log").write_bytes(batch(0))
    snapshot_of(*directories, to=tmp_path / "backup")
    root = Path(f"{tmp_path}/backup#latest")
    with pytest.raises(NotALogError, match=f"2 log directories: name one of {root}/1-data, {root}/2-data"):
        see_tiers(FS, [root])
    fs, seen = see_tiers(FS, [root / "1-data", root / "2-data" / "orders-1"])
    assert [each.path.name for each in list_log_directory(fs, seen[0]).live] == ["orders-0"]
    assert fs.list(root) == ["1-data", "2-data"]


def test_a_name_with_the_sign_that_exists_is_what_it_is(logs: Path, place: Path) -> None:
    literal = place.with_name("backup#latest")
    (literal / "here-0").mkdir(parents=True)
    fs, (seen,) = see_tiers(FS, [literal])
    assert fs is FS and fs.list(seen) == ["here-0"]
    fs, (seen,) = see_tiers(FS, [literal / "payments-0"])
    assert fs is FS and fs.status(seen) is None
    renamed = place.rename(place.with_name("a#b"))
    fs, (seen,) = see_tiers(FS, [renamed.with_name("a#b#latest")])
    assert shown_below(fs, seen) == contents_below(logs)


def test_a_path_beside_no_repository_is_missing(tmp_path: Path) -> None:
    (tmp_path / "backup").mkdir()
    for name in ("backup#latest", "none#latest", "#latest", "backup#latest/orders-0"):
        fs, (seen,) = see_tiers(FS, [tmp_path / name])
        assert fs is FS and fs.status(seen) is None


def test_a_link_to_a_repository_leads_there(logs: Path, place: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(place)
    (tmp_path / "above").symlink_to(tmp_path)
    for name in ("link#latest", "above/backup#latest"):
        fs, (seen,) = see_tiers(FS, [tmp_path / name])
        assert shown_below(fs, seen) == contents_below(logs)
        assert seglog.open_table(tmp_path / name / "payments-0").to_table().num_rows


# --- a repository that is not whole -----------------------------------------------------------------------


def large_object(place: Path) -> Path:
    (path,) = (place / "objects" / "large-0" / "_").iterdir()
    return path


def test_a_missing_or_cut_object_is_named_with_the_position_where_it_is_read(place: Path) -> None:
    name, path = f"{0:020d}.log", large_object(place)
    fs, (seen,) = see_tiers(FS, [Path(f"{place}#latest/large-0")])
    data = path.read_bytes()
    path.write_bytes(data[:500_000])
    with fs.open(seen / name, "r") as file:
        assert file.read_at(0, 500_000) == data[:500_000]
        with pytest.raises(CorruptTierError, match=rf"{path.name}: position 500000: it ends here, .*large-0/{name}"):
            file.read_at(400_000, 200_000)
    path.unlink()
    with fs.open(seen / name, "r") as file, pytest.raises(CorruptTierError, match=f"{path.name}.*it is missing"):
        file.read_at(0, 1)


def test_commands_name_the_object_that_is_missing_and_end_with_an_error(place: Path) -> None:
    path = large_object(place)
    path.unlink()
    for command in (["verify"], ["dump"], ["read"], ["sql", "select sum(length(value)) from records"]):
        options = [f"{place}#latest/large-0"] if command[0] != "sql" else [f"{place}#latest"]
        found = run(*command, *options)
        assert found.exit_code, command
        assert path.name in found.stdout + found.stderr and "it is missing" in found.stdout + found.stderr, command


def test_a_damaged_manifest_or_marker_is_named(place: Path) -> None:
    (manifest,) = (place / "snapshots").iterdir()
    data = manifest.read_bytes()
    manifest.write_bytes(data[:-40])
    with pytest.raises(CorruptTierError, match=manifest.name):
        see_tiers(FS, [Path(f"{place}#latest")])
    manifest.write_bytes(data)
    (place / "seglog-backup.json").write_text('{"format": "seglog-backup", "version": 2}')
    with pytest.raises(CorruptTierError, match="a newer seglog wrote it"):
        see_tiers(FS, [Path(f"{place}#latest")])


# --- only read --------------------------------------------------------------------------------------------


def test_nothing_in_a_snapshot_can_be_changed(place: Path) -> None:
    fs, (seen,) = see_tiers(FS, [Path(f"{place}#latest")])
    before = contents_below(place)
    partition = seen / "payments-0"
    for change in (
        lambda: fs.open(partition / "new", "create"),
        lambda: fs.open(partition / f"{0:020d}.log", "r+"),
        lambda: fs.open(seen / ".lock", "create_new"),
        lambda: fs.remove(seen / "meta.properties"),
        lambda: fs.rename(partition, seen / "gone-0"),
        lambda: fs.make_directory(seen / "new-0"),
    ):
        with pytest.raises(OSError, match="only reads here"):
            change()
    commands: list[list[str | Path]] = [["append", partition], ["recover", seen], ["retain", partition]]
    for command in commands:
        assert run(*command, input_text="x\n").exit_code
    assert contents_below(place) == before and not list(place.parent.glob("backup#*"))


def test_options_of_a_brokers_tier_are_refused(place: Path, tmp_path: Path) -> None:
    fs, (seen,) = see_tiers(FS, [Path(f"{place}#latest/payments-0")], TierOptions(local=tmp_path))
    with pytest.raises(RefusedError, match="describes this log completely"):
        fs.list(seen)


# --- everything that reads --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        ["ls", "--json", "."],
        ["verify", "--json", "."],
        ["doctor", "--json", "."],
        ["stats", "--json", "."],
        ["groups", "--json", "."],
        ["metadata", "--json", "."],
        ["txn", "--json", "payments-0"],
        ["dump", "--json", "payments-0"],
        ["read", "--json", "payments-0", "--isolation", "read_committed"],
        ["explain", "--json", "payments-0"],
        ["latest", "--json", "customers-0"],
        ["sql", "--json", "select partition, count(*), max(\"offset\") from records group by 1 order by 1", "."],
    ],
    ids=lambda words: words[0],
)  # fmt: skip
def test_reading_commands_show_a_snapshot_as_they_show_its_source(logs: Path, place: Path, command: list[str]) -> None:
    def answer(root: str) -> tuple[int, str]:
        words = [root if word == "." else f"{root}/{word}" if word.endswith("-0") else word for word in command]
        done = run(*words)
        return done.exit_code, done.stdout.replace(root, "ROOT").replace("'", "")

    snapshot = answer(f"{place}#latest")
    assert snapshot == answer(str(logs)) and snapshot[1]


def test_a_report_on_a_snapshot_has_the_concerns_of_its_source(logs: Path, place: Path) -> None:
    concerns, of_source = (
        [line for line in run("report", "--json", root).stdout.replace(root, "ROOT").splitlines() if "concern" in line]
        for root in (f"{place}#latest", str(logs))
    )
    assert concerns[:-1] == of_source[:-1] and len(concerns) > 5


def test_tables_and_logs_of_the_library_have_the_same_records(logs: Path, place: Path) -> None:
    root = f"{place}#latest"
    assert seglog.open_table(root).to_table().equals(seglog.open_table(logs).to_table())
    with (
        seglog.open_log(f"{root}/payments-0", writable=False) as shown,
        seglog.open_log(logs / "payments-0", writable=False) as log,
    ):
        assert list(shown.records()) == list(log.records())


def test_a_topic_of_a_snapshot_is_a_table(logs: Path, place: Path) -> None:
    table = seglog.open_table(f"{place}#latest/payments").to_table()
    assert table.num_rows and table.equals(seglog.open_table(logs / "payments-0").to_table())


def test_clients_of_serve_read_a_snapshot(logs: Path, place: Path) -> None:
    with seglog.open_log(logs / "payments-0") as log:
        expected = local_rows(log)
    with served(f"{place}#latest") as (_, said):
        topic = ("payments", 0)
        assert librdkafka_rows(said["listen"], [topic], "read_uncommitted")[topic] == expected


def test_fetch_copies_a_partition_out_of_a_snapshot(logs: Path, place: Path, tmp_path: Path) -> None:
    fs, (seen,) = see_tiers(FS, [Path(f"{place}#latest/payments-0")])
    fetch(fs, seen, FS, tmp_path / "fetched" / "payments-0")
    fetched = contents_below(tmp_path / "fetched" / "payments-0")
    expected = contents_below(logs / "payments-0")
    assert fetched == {name: data for name, data in expected.items() if name != "partition.metadata"}


def test_a_task_of_a_job_sees_the_partitions_that_it_is_sent(logs: Path, place: Path) -> None:
    fs, (seen,) = see_tiers(FS, [Path(f"{place}#latest")])
    sent = shown_at(fs, [seen / "payments-0"])
    task = task_files(StoreSettings(), sent, lambda remark: pytest.fail(str(remark)))
    assert shown_below(task, seen / "payments-0") == contents_below(logs / "payments-0")
    assert {name for name, status in task.entries(seen) if status.is_directory} == {"payments-0"}
    mark = task.read_bytes(seen / "replication-offset-checkpoint")
    assert mark.decode().splitlines()[1:] == ["1", "payments 0 400"]


# --- in a bucket ------------------------------------------------------------------------------------------


def test_a_snapshot_in_a_bucket_is_listed_with_few_requests_and_read_by_ranges(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with object_server() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        store = files_with(StoreSettings.of(server.environment))
        request = BackupRequest([logs], parse_location("s3://bkt/backup"), uncommitted=True)
        backup(FS, store, ManualClock(START_MS), request)
        fresh = files_with(StoreSettings.of(server.environment))
        server.asked.clear()
        fs, (seen,) = see_tiers(fresh, [parse_location("s3://bkt/backup#latest")])
        listed = [fs.entries(each.path) for each in list_log_directory(fs, seen).live]
        assert len(listed) == 4 and len(server.asked) <= 9
        assert shown_below(fs, seen) == contents_below(logs)
        assert run("verify", "s3://bkt/backup#latest/large-0").exit_code == 0
