"""`seglog redact`: what it erases, what it leaves alone, what it refuses, and what its search finds."""

from __future__ import annotations

import base64
import bz2
import gzip
import io
import json
import lzma
import os
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

import seglog
from seglog.storage.lock import DirectoryLock
from tests.support.broken.damage import batches_of
from tests.support.command_line import clean_logs, ended, json_lines, keep_partitions, process, run
from tests.support.object_server import object_server
from tests.support.other_users import OTHER

KEY, VALUE = b"order-7", b'{"order": 7, "sku"'
ONE_COPY = ("--replicas", "1", "--yes")


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return clean_logs(tmp_path)


def records(partition: Path) -> list[seglog.Record]:
    with seglog.open_log(partition) as log:
        return list(log.records())


def values_of(partition: Path, key: bytes) -> set[bytes | None]:
    return {record.value for record in records(partition) if record.key == key}


def test_the_records_of_a_key_lose_their_values_and_nothing_else_changes(logs: Path) -> None:
    every = [path for path in sorted(logs.glob("*-*")) if path.is_dir() and not path.name.startswith("__")]
    before = {path.name: records(path) for path in every}
    done = run("redact", logs, "--key", "order-7", "--verify", "--json", *ONE_COPY)
    assert done.exit_code == 0, done.output
    (report,) = json_lines(done)
    changed = 0
    for path in every:
        expected = [r._replace(value=None) if r.key == KEY else r for r in before[path.name]]
        assert records(path) == expected
        changed += sum(record.key == KEY for record in expected)
    assert report["records"] == changed == 35
    assert report["search"]["complete"]
    assert run("verify", logs, "--level", "record").exit_code == 0
    assert "nothing wrong" in run("doctor", logs).stdout


def test_files_without_a_hit_are_not_touched(logs: Path) -> None:
    def facts() -> dict[Path, tuple[int, int, bytes]]:
        return {
            path: (path.stat().st_ino, path.stat().st_mtime_ns, path.read_bytes())
            for path in logs.glob("*-0/*")
            if path.is_file()
        }

    before = facts()
    offset = next(r.offset for r in records(logs / "orders-none-0") if r.key == KEY)
    chosen = f"topic,partition,offset\norders-none,0,{offset}\n"
    assert run("redact", logs, "--offsets-from", "-", *ONE_COPY, input_text=chosen).exit_code == 0
    changed = {path.name for path, facts_before in before.items() if facts()[path] != facts_before}
    assert changed and all(name.startswith("00000000000000000000.") for name in changed)
    assert {path.parent.name for path, found in before.items() if facts()[path] != found} == {"orders-none-0"}
    (log,) = [path for path in changed if path.endswith(".log")]
    assert facts()[logs / "orders-none-0" / log][1] == before[logs / "orders-none-0" / log][1]  # retention by mtime


def test_a_report_says_who_what_and_where_and_nothing_of_what_was_erased(logs: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.txt"
    options = ("--key", "order-7", "--request", "DSR-42", "--verify", "--report", page, "--json", *ONE_COPY)
    (report,) = json_lines(run("redact", logs / "orders-lz4-0", *options))
    text = page.read_text()
    for shown in (text, json.dumps(report)):
        assert "DSR-42" in shown and "orders-lz4-0" in shown
        assert "order-7" not in shown and "sku" not in shown
    (file,) = report["files"]
    assert file["sha256"] != file["sha256_before"] and file["sha256"] in text and file["sha256_before"] in text
    assert (report["user"], report["started"] <= report["ended"]) == (report["user"], True) and report["user"] in text


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd", "gzip", "snappy"])
def test_a_search_finds_copies_under_every_name(logs: Path, codec: str) -> None:
    keep_partitions(logs, [f"orders-{codec}-0"])
    partition = logs / f"orders-{codec}-0"
    whole = (partition / "00000000000000000000.log").read_bytes()
    hidden = {
        partition / "00000000000000000000.log.deleted": whole,
        partition / "00000000000000000000.log.cleaned": whole,
        partition / "notes.txt": whole[: len(whole) // 2],
        logs / f"orders-{codec}-0.0123456789abcdef0123456789abcdef-delete" / "00000000000000000000.log": whole,
        logs / f"orders-{codec}-0.0123456789abcdef0123456789abcdef-stray" / "00000000000000000000.log": whole,
        logs / "lost+found" / "#1234": b"garbage" + whole[100:],
        logs / "core.dump": b"before " + VALUE + b'": "SKU-00485"} after',
    }
    for path, data in hidden.items():
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    looked = json_lines(run("redact", logs, "--key", "order-7", "--dry-run", "--verify", "--replicas", "1", "--json"))
    found = {Path(trace["path"]) for trace in looked[0]["search"]["traces"]}
    assert found >= {path for path in hidden if path.name != "core.dump"} | {partition / "00000000000000000000.log"}
    done = run("redact", logs, "--key", "order-7", "--verify", "--json", *ONE_COPY)
    left = {Path(trace["path"]) for trace in json_lines(done)[0]["search"]["traces"]}
    # what seglog owns is erased: set-aside directories are written anew, leftovers removed; what it does not is named
    assert left == {partition / "notes.txt", logs / "lost+found" / "#1234"}
    assert done.exit_code == 1
    for name in left:
        name.unlink()
    again = run("redact", logs, "--key", "order-7", "--verify", *ONE_COPY)
    assert again.exit_code == 0 and "nothing of it is left" in again.stdout


def test_erased_bytes_are_found_outside_of_any_batch(logs: Path) -> None:
    value = next(r.value for r in records(logs / "orders-none-0") if r.key == KEY)
    assert value is not None
    (logs / "core.dump").write_bytes(b"x" * 5_000_000 + value + b"y")
    options = ("--key", "order-7", "--verify", "--json", *ONE_COPY)
    (report,) = json_lines(run("redact", logs / "orders-none-0", *options))
    traces = report["search"]["traces"]
    assert [(Path(t["path"]).name, t["records"], t["places"], t["position"]) for t in traces if t["places"]] == [
        ("core.dump", 0, 1, 5_000_000)
    ]


def test_what_a_repair_removed_is_named_with_the_command_that_purges_it(logs: Path) -> None:
    partition = logs / "orders-none-0"
    log = partition / "00000000000000000000.log"
    data = bytearray(log.read_bytes())
    data[70:74] = b"XXXX"  # in the first batch, which holds the key
    log.write_bytes(data)
    assert run("repair", partition).exit_code in (0, 4)
    done = run("redact", partition, "--key", "order-7", "--dry-run", "--replicas", "1", "--verify", "--json")
    (report,) = json_lines(done)
    (place,) = [each for each in report["elsewhere"] if "purge" in each["remedy"]]
    assert "repair" in place["what"]
    assert any("quarantine" in trace["path"] for trace in report["search"]["traces"])
    assert process(*place["remedy"].split()[1:]).returncode == 0
    assert run("redact", partition, "--key", "order-7", "--verify", *ONE_COPY).exit_code == 0


def test_keys_become_digests_and_equal_keys_stay_equal(logs: Path) -> None:
    partition = logs / "orders-zstd-0"
    before = records(partition)
    options = ("--key", "order-7", "--key", "order-8", "--keys", "digest", "--headers", "drop", "--verify", *ONE_COPY)
    assert run("redact", partition, *options).exit_code == 0
    groups: dict[bytes | None, set[bytes | None]] = {}
    for old, new in zip(before, records(partition), strict=True):
        groups.setdefault(old.key, set()).add(new.key)
        if old.key in (b"order-7", b"order-8"):
            assert (new.value, new.headers) == (None, ())
        else:
            assert new == old
    assert all(len(found) == 1 for found in groups.values())
    assert groups[b"order-7"] != groups[b"order-8"] != {b"order-8"}


def test_whole_records_go_and_offsets_stay(logs: Path) -> None:
    partition = logs / "payments-0"  # transactions
    before = records(partition)
    key = before[10].key
    assert key is not None
    with seglog.open_log(partition) as log:
        end, committed = log.log_end_offset, list(log.records(isolation="read_committed"))
    options = ("--key", key.decode(), "--erase", "record", "--verify", *ONE_COPY)
    assert run("redact", partition, *options).exit_code == 0
    assert records(partition) == [record for record in before if record.key != key]
    with seglog.open_log(partition) as log:
        assert log.log_end_offset == end
        left = list(log.records(isolation="read_committed"))
    assert left == [record for record in committed if record.key != key]
    assert run("verify", partition, "--level", "semantic").exit_code == 0


def test_a_second_run_finds_nothing_to_do(logs: Path) -> None:
    options = ("redact", logs / "orders-gzip-0", "--key", "order-7", "--json", *ONE_COPY)
    assert json_lines(run(*options))[0]["records"] == 7
    (again,) = json_lines(run(*options))
    assert (again["records"], again["partitions"][0]["erased_before"], again["files"]) == (0, 7, [])


# --- refusals


def refused(logs: Path, *arguments: str | Path) -> str:
    """The message of a request that is refused, after which every file is as it was."""
    before = {path: path.read_bytes() for path in logs.rglob("*") if path.is_file() and path.name != ".lock"}
    end = ended("redact", *arguments)
    assert end.code in (1, 2, 11, 12, 13), end
    assert {path: path.read_bytes() for path in logs.rglob("*") if path.is_file() and path.name != ".lock"} == before
    return end.stderr.decode()


def test_nothing_is_erased_without_an_answer(logs: Path) -> None:
    assert "There is no undo" in refused(logs, logs / "orders-none-0", "--key", "order-7", "--replicas", "1")


def test_a_running_broker_a_damaged_log_and_kafkas_own_topics_are_refused(logs: Path) -> None:
    lock = DirectoryLock(logs)
    lock.acquire()
    try:
        assert "lock" in refused(logs, logs / "orders-none-0", "--key", "order-7", *ONE_COPY)
    finally:
        lock.release()
    own = refused(logs, logs / "__consumer_offsets-0", "--key", "g", *ONE_COPY) if _has(logs) else "Kafka's own topics"
    assert "Kafka's own topics" in own
    log = logs / "orders-none-0" / "00000000000000000350.log"
    data = bytearray(log.read_bytes())
    data[100] ^= 1
    log.write_bytes(data)
    message = refused(logs, logs / "orders-none-0", "--key", "order-7", *ONE_COPY)
    assert "00000000000000000350.log" in message and "checksum" in message and "offsets 350" in message


def _has(logs: Path) -> bool:
    return (logs / "__consumer_offsets-0").is_dir()


def test_zeros_in_a_compacted_topic_and_unknown_replicas_are_refused(logs: Path, tmp_path: Path) -> None:
    key = next(r.key for r in records(logs / "customers-0") if r.key)
    message = refused(logs, logs / "customers-0", "--key", key.decode(), "--with", "zeros", *ONE_COPY)
    assert "customers" in message and "compacted" in message
    shutil.rmtree(logs / "__cluster_metadata-0")
    message = refused(logs, logs / "orders-none-0", "--key", "order-7", "--yes")
    assert "--replicas N" in message


def test_a_record_after_the_start_of_an_open_transaction_is_refused(tmp_path: Path) -> None:
    partition = tmp_path / "t-0"
    with seglog.open_log(partition, create=True) as log:
        log.append([seglog.Record(b"before", key=b"k", timestamp=1)])
        log.append(
            [seglog.Record(b"in it", key=b"k", timestamp=2)], producer=seglog.ProducerIdentity(7, transactional=True)
        )
    message = refused(tmp_path, partition, "--key", "k", "--yes")
    assert "offset 1" in message and "producer 7" in message
    chosen = tmp_path / "offsets.csv"
    chosen.write_text("topic,partition,offset\nt,0,0\n")
    assert run("redact", partition, "--offsets-from", chosen, "--yes").exit_code == 0
    assert [record.value for record in records(partition)] == [None, b"in it"]


def test_offsets_of_a_partition_that_is_not_named_are_refused(logs: Path, tmp_path: Path) -> None:
    chosen = tmp_path / "offsets.csv"
    chosen.write_text("topic,partition,offset\nelsewhere,0,5\n")
    assert "elsewhere-0" in refused(logs, logs, "--offsets-from", chosen, *ONE_COPY)


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--key", "a", "--offsets-from", "x"),
        ("--key", "a", "--erase", "record", "--keys", "digest"),
        ("--key", "a", "--with", "nines"),
        ("--key", "a", "--replicas", "0"),
    ],
)
def test_options_that_make_no_sense_together_are_wrong_usage(logs: Path, options: tuple[str, ...]) -> None:
    assert ended("redact", logs / "orders-none-0", *options, "--yes").code == 2


def test_a_set_aside_directory_of_the_partition_is_erased_with_it(logs: Path) -> None:
    aside = logs / "orders-none-0.0123456789abcdef0123456789abcdef-stray"
    shutil.copytree(logs / "orders-none-0", aside)
    assert run("redact", logs / "orders-none-0", "--key", "order-7", *ONE_COPY).exit_code == 0
    assert values_of(aside, KEY) == values_of(logs / "orders-none-0", KEY) == {None}


def _tarred(data: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        entry = tarfile.TarInfo("0.log")
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def _zipped(data: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("0.log", data)
    return out.getvalue()


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "0.log.gz": gzip.compress,
    "0.log.old": gzip.compress,
    "copy": bz2.compress,
    "copy.index": lzma.compress,
    "copy.zip": _zipped,
    "copy.tar.gz": _tarred,
    "copy.txt": lambda data: base64.b64encode(data),
    "copy.zst": lambda data: b"\x28\xb5\x2f\xfd" + zlib.compress(data),
    "copy.raw": lambda data: zlib.compress(data, wbits=-15),
    "copy.7z": lambda data: b"7z\xbc\xaf\x27\x1c" + zlib.compress(data),
    "copy.lz4": lambda data: b"\x04\x22\x4d\x18" + zlib.compress(data),
}


@pytest.mark.parametrize("place", ["orders-none-0", "."])
@pytest.mark.parametrize("name", PACKED)
def test_a_copy_that_is_packed_is_named_as_not_searched(logs: Path, name: str, place: str) -> None:
    copy = logs / place / name
    copy.write_bytes(PACKED[name]((logs / "orders-none-0" / f"{0:020d}.log").read_bytes()))
    done = run("redact", logs, "--key", "order-7", "--verify", "--json", *ONE_COPY)
    (report,) = json_lines(done)
    assert [Path(row["path"]) for row in report["search"]["unread"]] == [copy]
    assert not report["search"]["complete"]
    assert done.exit_code == 1


@pytest.mark.parametrize("torn", ["end", "beginning"])
def test_a_compressed_batch_that_is_not_whole_hides_its_records_and_is_named(logs: Path, torn: str) -> None:
    data = (logs / "orders-lz4-0" / f"{0:020d}.log").read_bytes()
    copy = logs / "orders-lz4-0" / "interrupted.copy"
    (first, *_) = batches_of(data)
    copy.write_bytes(data[: len(first) - 9] if torn == "end" else data[80:])
    done = run("redact", logs, "--key", "order-7", "--verify", *ONE_COPY)
    assert done.exit_code == 1
    assert f"{copy}: not searched" in done.stderr


def test_what_a_link_leads_to_is_searched_and_a_link_that_is_not_followed_is_named(logs: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.copy(logs / "orders-none-0" / f"{0:020d}.log", elsewhere / "copy.log")
    (logs / "orders-none-0" / "nowhere").symlink_to("no-file")
    (logs / "orders-none-0" / "back").symlink_to(logs / "orders-none-0")
    assert run("redact", logs, "--key", "order-7", "--verify", *ONE_COPY).exit_code == 0
    (logs / "orders-none-0" / "link").symlink_to(elsewhere)
    done = run("redact", logs, "--key", "order-7", "--verify", *ONE_COPY)
    assert done.exit_code == 1
    assert "link/copy.log: 3 records" in done.stderr
    elsewhere.chmod(0o777)
    (elsewhere / "planted").symlink_to(tmp_path / "planted.log")
    (tmp_path / "planted.log").touch()
    if os.geteuid() == 0:
        os.lchown(elsewhere / "planted", OTHER, OTHER)
        done = run("redact", logs, "--key", "order-7", "--verify", *ONE_COPY)
        assert "planted: not searched: it is a link" in done.stderr


def test_notes_beside_the_segments_are_searched(logs: Path) -> None:
    (logs / "orders-none-0" / "notes.txt").write_text("nothing of it, as an operator says: straße\n")
    assert run("redact", logs, "--key", "order-7", "--verify", *ONE_COPY).exit_code == 0


def test_the_snapshots_of_a_backup_that_hold_the_records_are_named(logs: Path, tmp_path: Path) -> None:
    keep_partitions(logs, ("orders-none-0", "orders-zstd-0", "payments-0"))
    repository, ids = tmp_path / "backup", []
    for _ in range(2):
        done = run("backup", logs, "--to", repository, "--json")
        ids.append(json_lines(done)[-1]["snapshot"])
    words = ("redact", "--key", "order-7", "--json", "--backups", repository)
    (planned,) = json_lines(run(*words, logs, "--dry-run", "--replicas", "1"))
    named = [place["what"] for place in planned["elsewhere"] if "snapshot" in place["what"]]
    assert named == [f"snapshot {identity} of {repository}: {planned['records']} records" for identity in ids]
    (one,) = json_lines(run(*words, logs / "orders-none-0", "--dry-run", "--replicas", "1"))
    assert f"snapshot {ids[0]} of {repository}: {one['records']} records" in [each["what"] for each in one["elsewhere"]]
    assert 0 < one["records"] < planned["records"]
    assert run(*words, logs, *ONE_COPY).exit_code == 0
    after = json_lines(run("backup", logs, "--to", repository, "--json"))[-1]["snapshot"]
    (again,) = json_lines(run(*words, logs, *ONE_COPY))
    held = [place["what"].split()[1] for place in again["elsewhere"] if "snapshot" in place["what"]]
    assert again["records"] == 0 and held == ids and after not in held
    assert run("redact", logs, "--key", "order-7", "--backups", logs, *ONE_COPY).exit_code == 10


def test_a_log_of_a_backup_that_cannot_be_searched_is_named(logs: Path, tmp_path: Path) -> None:
    keep_partitions(logs, ("orders-none-0",))
    log = next(path for path in sorted((logs / "orders-none-0").glob("*.log")) if path.stat().st_size)
    data = log.read_bytes()
    log.write_bytes(data[:30] + b"XXXX" + data[34:])
    assert run("backup", logs, "--to", tmp_path / "backup").exit_code == 1
    log.write_bytes(data)
    words = ("redact", logs, "--key", "order-7", "--json", "--dry-run", "--replicas", "1")
    (report,) = json_lines(run(*words, "--backups", tmp_path / "backup"))
    assert "1 log that cannot be searched" in report["elsewhere"][0]["what"]


def test_a_backup_in_a_bucket_is_searched_where_it_is(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_partitions(logs, ("orders-none-0",))
    with object_server() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        assert run("backup", logs, "--to", "s3://bkt/backup").exit_code == 0
        words = ("redact", logs, "--key", "order-7", "--json", "--dry-run", "--replicas", "1")
        (report,) = json_lines(run(*words, "--backups", "s3://bkt/backup"))
    assert f"of s3://bkt/backup: {report['records']} records" in report["elsewhere"][0]["what"]


def test_what_redact_names_in_a_backup_is_erased_there_by_backup_redact(logs: Path, tmp_path: Path) -> None:
    keep_partitions(logs, ("orders-none-0", "orders-zstd-0"))
    place, page = tmp_path / "backup", tmp_path / "report.txt"
    for _ in range(2):
        assert run("backup", logs, "--to", place).exit_code == 0
    erase = ("backup", "redact", place, "--key", "order-7", "--json")
    (looked,) = json_lines(run(*erase, "--dry-run", "--verify"))
    assert run(*erase, "--dry-run", "--verify").exit_code == 1 and looked["search"]["traces"]
    assert run(*erase).exit_code == 2  # nobody was asked
    done = run(*erase, "--yes", "--verify", "--request", "DSR-42", "--report", page)
    (report,) = json_lines(done)
    assert done.exit_code == 0 and report["search"]["complete"] and report["records"] == looked["records"] == 14
    assert "DSR-42" in page.read_text() and "nothing of what was erased is left" in page.read_text()
    (named,) = json_lines(run("redact", logs, "--key", "order-7", "--json", "--backups", place, *ONE_COPY))
    assert not [each for each in named["elsewhere"] if "snapshot" in each["what"]]
    assert run("backup", "verify", place).exit_code == 0
    assert run("backup", "redact", logs, "--key", "order-7", "--yes").exit_code == 10
