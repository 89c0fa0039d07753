"""Commands on URLs: reading objects gives the same output as reading files, and writing needs a directory."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

import seglog
from seglog.clock import FixedClock, SystemClock
from seglog.errors import ConfigError, RefusedError, UnsupportedError
from seglog.locations import parse_location
from seglog.storage.routing import machine_files
from seglog.verification.readable_files import unreadable
from seglog_stores.remote import routing, traffic
from seglog_stores.remote.filesystem import RemoteFileSystem
from seglog_stores.tiers.publishing import commit, put_object, require_new
from tests.support.command_line import Ended, ended, keep_partitions
from tests.support.consumers import librdkafka_rows
from tests.support.fixtures import CLEAN, fixture_copy
from tests.support.log_files import FS, files_of
from tests.support.memory_cluster import MemoryCluster
from tests.support.object_server import Fault, object_server
from tests.support.published import published
from tests.support.s3_server import make_bucket, put_directory, s3_server
from tests.support.schema_registry import shop
from tests.support.serving import served
from tests.support.tiers import SEALED, private_pem, tier_segments, write_aiven, write_local_tiered

KEPT = ("customers-0", "orders-gzip-0", "payments-0", "__consumer_offsets-0", "__cluster_metadata-0")
PARTITION = "4.3.0-clean/orders-gzip-0"


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """Returns the fixtures on a disk, and the URL that has the same."""
    base = tmp_path_factory.mktemp("logs")
    before = dict(os.environ)
    with s3_server(base.parent / "moto.log") as environment:
        os.environ.update(environment)
        make_bucket(environment)
        for name in ("4.3.0/clean", "0.10.2", "0.7"):
            logs = fixture_copy(name, base)
            if name == "4.3.0/clean":
                keep_partitions(logs, KEPT)
            url = put_directory(environment, logs)
        segments = tier_segments(CLEAN / "customers-uncleaned-0")
        write_aiven(base / "tier", "customers-uncleaned", 0, segments, SEALED)
        write_local_tiered(base / "copies", "customers-uncleaned", 0, [segments[0], *segments[2:]])
        files, prefix = machine_files(), base / "committed"
        committed = [published(FS, files, prefix, CLEAN / name) for name in ("customers-0", "payments-0")]
        commit(files, prefix, None, committed, FixedClock(1_700_000_000_000))
        shop(base / "shop")
        for name in ("tier", "copies", "committed", "shop"):
            put_directory(environment, base / name)
        (base / "key.pem").write_bytes(private_pem())
        yield base, url.rpartition("/")[0]
    for name in environment:
        os.environ.pop(name)
    os.environ.update(before)


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulates a new process, as far as URLs are concerned: listings and requests of other tests are forgotten."""
    monkeypatch.setattr(routing, "_shared", None)
    monkeypatch.setattr(traffic, "OF_PROCESS", traffic.Traffic())


READING = [
    "ls --json ROOT/4.3.0-clean",
    "verify --json ROOT/4.3.0-clean",
    "stats --json ROOT/4.3.0-clean",
    "dump --records --json ROOT/4.3.0-clean",
    "dump --json ROOT/4.3.0-clean/recovery-point-offset-checkpoint",
    "dump --json ROOT/4.3.0-clean/orders-gzip-0/00000000000000000000.index",
    "dump-log --print-data-log --files ROOT/4.3.0-clean/orders-gzip-0/00000000000000000000.log",
    "verify --json ROOT/4.3.0-clean/orders-gzip-0/00000000000000000000.log",
    "read --json --from-offset 10 --limit 5 ROOT/4.3.0-clean/orders-gzip-0",
    "explain --json ROOT/4.3.0-clean/customers-0",
    "txn --json ROOT/4.3.0-clean/payments-0",
    "export --format csv -o - ROOT/4.3.0-clean/payments-0",
    "diff --json ROOT/4.3.0-clean/orders-gzip-0 ROOT/4.3.0-clean/payments-0",
    "groups --json ROOT/4.3.0-clean",
    "metadata --json ROOT/4.3.0-clean",
    "config show --json ROOT/4.3.0-clean",
    "doctor --json ROOT/4.3.0-clean",
    "doctor --json ROOT/4.3.0-clean/customers-0",
    "clean --dry-run --json ROOT/4.3.0-clean/customers-0",
    "retain --dry-run --retention-ms 1 --json ROOT/4.3.0-clean/customers-0",
    "recover --dry-run --json ROOT/4.3.0-clean/customers-0",
    "schemas --json ROOT/shop",
    "read --json --value-as registry ROOT/shop/orders-0",
    "read --json --value-as registry --schemas ROOT/shop/_schemas-0 ROOT/shop/orders-0",
    "ls --json ROOT/0.10.2",
    "verify --json ROOT/0.10.2",
    "dump --records --json ROOT/0.10.2",
    "verify --json ROOT/0.7",
    "dump --records --json ROOT/0.7",
    "read --json --from-offset 0 ROOT/0.7/ancient-0",
    "groups --csv ROOT/4.3.0-clean/__consumer_offsets-0",
    "metadata --json --at 20 ROOT/4.3.0-clean/__cluster_metadata-0",
    "metadata --diff ROOT/4.3.0-clean ROOT/4.3.0-clean",
    "txn ROOT/4.3.0-clean/payments-0 stat",
    "tiers --json ROOT/tier",
    "tiers --json ROOT/copies",
    "verify --json --tier-key KEY ROOT/tier",
    "dump --records --json --tier-key KEY ROOT/tier",
    "diff --json --tier-key KEY ROOT/tier ROOT/copies",
    "ls --json ROOT/committed",
    "verify --json ROOT/committed",
    "dump --records --json ROOT/committed/payments",
    "read --json --from-offset 10 --limit 5 ROOT/committed/payments-0",
    "dump --json ROOT/committed/customers-0/00000000000000000000.index",
    "clean --dry-run --json --policy compact ROOT/committed/customers-0",
    "tiers --json ROOT/committed",
    "verify --json ROOT/committed/none-0",
    "verify --json ROOT/4.3.0-clean/none-0",
    "ls --json ROOT/none/at-all",
    "report --json ROOT/4.3.0-clean/orders-none-0 ROOT/4.3.0-clean/payments-0",
]


@pytest.mark.parametrize("command", READING)
def test_a_command_says_of_objects_what_it_says_of_files(command: str, places: tuple[Path, str]) -> None:
    key = str(places[0] / "key.pem")
    local, remote = (
        _said(ended(*command.replace("ROOT", str(root)).replace("KEY", key).split()), str(root)) for root in places
    )
    assert remote == local


def _said(end: Ended, root: str) -> tuple[int, str, str]:
    # how long it took is not the same
    output = re.sub(r'"[a-z_]+_seconds":([0-9.e-]+|{[^}]*})|"free_bytes":\w+|"made":\d+', "", end.stdout.decode())
    return end.code, output.replace(root, "ROOT"), end.stderr.decode().replace(root, "ROOT")


def test_what_is_committed_in_a_store_is_fetched_as_it_was(places: tuple[Path, str], tmp_path: Path) -> None:
    source, store = places[0] / "4.3.0-clean" / "customers-0", machine_files()
    prefix = parse_location(f"{places[1]}/new")
    (tmp_path / "large").write_bytes(os.urandom(1 << 20) * 17)  # in parts
    with FS.open(tmp_path / "large", "r") as file:
        stored = put_object(store, prefix / "large", file)
    assert store.read_bytes(prefix / "large") == (tmp_path / "large").read_bytes()
    assert stored.size == 17 << 20
    store.discard(prefix / "large")
    require_new(store, prefix)
    commit(store, prefix, None, [published(FS, store, prefix, source)], SystemClock())
    end = ended("fetch", f"{prefix}/customers-0", "-o", tmp_path / "restored" / "customers-0")
    assert end.code == 0, end.stderr
    fetched = files_of(tmp_path / "restored" / "customers-0")
    assert {name: data for name, data in files_of(source).items() if name in fetched} == fetched
    assert [name for name in fetched if name.endswith(".log")] == [path.name for path in sorted(source.glob("*.log"))]
    with pytest.raises(RefusedError, match="another writer has committed meanwhile"):
        commit(store, prefix, None, [published(FS, store, prefix, source)], SystemClock())
    orphaned = ended("tiers", prefix)
    assert orphaned.code == 1
    assert b"is in no manifest" in orphaned.stderr + orphaned.stdout


@pytest.mark.parametrize("command", ["convert --codec lz4", "salvage"])
def test_convert_and_salvage_read_a_remote_log_in_place(command: str, places: tuple[Path, str], tmp_path: Path) -> None:
    made = []
    for number, root in enumerate(places):
        (tmp_path / str(number)).mkdir()
        output = tmp_path / str(number) / "orders-gzip-0" if command == "salvage" else tmp_path / str(number)
        end = ended(*command.split(), f"{root}/{PARTITION}", "-o", output)
        assert end.code == 0, end.stderr
        made.append({p.relative_to(tmp_path / str(number)): p.read_bytes() for p in output.rglob("*.log")})
    assert made[0] == made[1] and made[0]


def test_the_library_reads_a_remote_log_in_place(places: tuple[Path, str]) -> None:
    found = []
    for root in places:
        with seglog.open_log(f"{root}/{PARTITION}") as log:
            found.append([(record.offset, record.key, record.value) for record in log.records()])
        found.append(len(list(seglog.verify(f"{root}/{PARTITION}"))))
    assert found[:2] == found[2:] and found[0]


@pytest.mark.slow
@pytest.mark.parametrize("source", ["4.3.0-clean/payments-0", "tier"])
def test_clients_of_serve_read_a_remote_log_in_place(source: str, places: tuple[Path, str]) -> None:
    found = []
    for root in places:
        options = ["--tier-key", places[0] / "key.pem"] if source == "tier" else []
        with served(f"{root}/{source}", *options) as (_, said):
            topic = "payments" if source != "tier" else "customers-uncleaned"
            found.append(librdkafka_rows(said["listen"], [(topic, 0)], "read_committed"))
    assert found[0] == found[1] and len(found[0][topic, 0]) > 100


def test_replay_reads_remote_logs_in_place(
    places: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = []
    for number, root in enumerate(places):
        cluster = MemoryCluster({"payments": 1, "customers-uncleaned": 1})
        monkeypatch.setattr("seglog_rescue.serve.replay.target.TargetCluster", lambda *_, cluster=cluster: cluster)
        arguments = ["--to", cluster.bootstrap, "--state", tmp_path / f"state{number}", "--json"]
        arguments += [f"{root}/4.3.0-clean/payments-0", f"{root}/tier", "--tier-key", places[0] / "key.pem"]
        end = ended("replay", *arguments)
        said.append((_said(end, str(root)), cluster.records))
    assert said[0] == said[1] and said[0][0][0] == 0


def test_fetch_reads_a_remote_tier_in_place(places: tuple[Path, str], tmp_path: Path) -> None:
    made = []
    for number, root in enumerate(places):
        target = tmp_path / str(number) / "customers-uncleaned-0"
        end = ended("fetch", f"{root}/tier", "--tier-key", places[0] / "key.pem", "-o", target)
        assert end.code == 0, end.stderr
        made.append(files_of(target))
    assert made[0] == made[1] and len(made[0]) > 8


LOOKING: list[Callable[[str], object]] = [
    lambda url: [(one.partition, one.size, one.start_offset, one.end_offset) for one in seglog.partitions(url)],
    lambda url: [found.as_dict() for found in seglog.verify(url)],
    lambda url: [repr(found) for found in seglog.stats(url)],
    lambda url: seglog.explain(f"{url}/customers-0").reading,
    lambda url: [row.code for row in seglog.doctor(url)],
    lambda url: [repr(found) for found in seglog.diff(f"{url}/orders-gzip-0", f"{url}/payments-0")],
]


@pytest.mark.parametrize("look", LOOKING)
def test_the_library_looks_at_a_url_as_at_a_path(look: Callable[[str], object], places: tuple[Path, str]) -> None:
    local, remote = (look(f"{root}/4.3.0-clean") for root in places)
    assert remote == local


def test_the_doctor_asks_objects_for_no_owner(places: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects seem to belong to the reader: one that is not root is no broker's user that may not write them."""
    monkeypatch.setattr("os.geteuid", lambda: 65534)
    assert [row.code for row in seglog.doctor(f"{places[1]}/4.3.0-clean") if row.code == "ACCESS_DENIED"] == []


def test_a_url_of_this_machine_is_its_path(places: tuple[Path, str]) -> None:
    path = places[0] / PARTITION
    for url in (f"file:{path}", f"file://{path}", f"file://localhost{path}"):
        assert ended("dump", "--json", url) == ended("dump", "--json", path)
    assert ended("ls", f"file://elsewhere{path}").code == 13


@pytest.mark.slow
def test_a_web_server_without_listings_gives_files_and_says_so_of_directories() -> None:
    log = (CLEAN / "orders-gzip-0" / "00000000000000000000.log").read_bytes()
    name = "kafka/orders-gzip-0/00000000000000000000.log"
    with object_server() as server:
        server.objects[name] = log
        url = f"http://127.0.0.1:{server.port}"
        whole = ended("verify", "--level", "record", f"{url}/{name}")
        assert whole.code == 0, whole.stderr
        alone = ended("verify", "--json", f"{url}/{name}")  # its indexes are asked for by their names: there are none
        (unseen, summary) = map(json.loads, alone.stdout.splitlines())
        assert (alone.code, unseen["code"], summary["errors"]) == (0, "NEIGHBOURS_UNSEEN", 0)
        assert unseen["message"].endswith("no indexes, snapshots or other segments could be read")
        for kind, at in (("index", 7), ("timeindex", 3)):
            wrong = bytearray((CLEAN / "orders-gzip-0" / f"00000000000000000000.{kind}").read_bytes())
            wrong[at] ^= 1
            server.objects[f"{name.removesuffix('log')}{kind}"] = bytes(wrong)
        asked = len(server.asked)
        routing._shared = None
        looked = ended("verify", "--json", f"{url}/{name}")
        codes = [json.loads(line).get("code") for line in looked.stdout.splitlines()]
        assert (looked.code, codes[:-2]) == (1, ["OFFSET_INDEX_INVALID", "TIME_INDEX_INVALID"]), looked.stdout
        assert b"only 00000000000000000000.index and 00000000000000000000.timeindex could be read" in looked.stdout
        assert len(server.asked) - asked < 20, server.asked[asked:]
        exported = ended("export", "-o", "-", "--format", "csv", f"{url}/{name}")
        assert (exported.code, exported.stdout.count(b"\n")) == (0, 791)
        committed = ended("dump", "--isolation", "read_committed", f"{url}/{name}")
        assert committed.code == 13 and b"it is unknown how its transactions ended" in committed.stderr
        routing._shared = None
        assert ended("ls", f"{url}/{name}").code == 0
        routing._shared = None
        for command in ("ls", "verify", "stats", "tiers", "serve", "doctor"):
            end = ended(command, f"{url}/kafka/orders-gzip-0")
            assert end.code and end.stderr.count(b"\n") == 1, end.stderr
            assert b"a web server without listings (WebDAV) shows no directories" in end.stderr
        routing._shared = None
        server.objects |= {"meta.properties": b"cluster.id=c\nnode.id=1\n", name.removeprefix("kafka/"): log}
        measured = ended("stats", f"{url}/{name.removeprefix('kafka/')}")
        assert measured.code == 10 and measured.stderr.endswith(
            b"verify, dump, export and salvage take a single file\n"
        )


def test_a_segment_is_read_by_whoever_may_read_it_and_list_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a policy of s3:GetObject alone, listings and missing objects are refused with 403."""
    partition = fixture_copy("4.3.0/clean", tmp_path) / "payments-0"
    segment = min(partition.glob("*.log"))
    with object_server() as server:
        server.objects.update({f"kafka/logs/payments-0/{path.name}": path.read_bytes() for path in partition.iterdir()})

        def refused(method: str, path: str) -> Fault | None:
            is_there = path.partition("?")[0].lstrip("/") in server.objects
            return None if method == "BODY" or is_there else Fault(403, "AccessDenied")

        server.fault = refused
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        url = f"s3://kafka/logs/payments-0/{segment.name}"
        verified = ended("verify", "--json", url)
        *findings, summary = map(json.loads, verified.stdout.splitlines())
        assert [found["code"] for found in findings] == ["NEIGHBOURS_UNSEEN"]
        local = json.loads(ended("verify", "--json", segment).stdout.splitlines()[-1])
        counted = ("bytes", "batches", "records", "errors")
        assert (verified.code, [summary[name] for name in counted]) == (0, [local[name] for name in counted])
        assert not ended("verify", "--level", "record", url).stdout.count(b"NEIGHBOURS_UNSEEN")
        shown = ended("dump", "--records", "--json", url)
        expected = ended("dump", "--records", "--json", segment).stdout
        assert shown.stdout == expected.replace(bytes(segment.parent), b"s3://kafka/logs/payments-0")
        damaged = bytearray(segment.read_bytes())
        damaged[100] ^= 1
        server.objects[f"kafka/logs/payments-0/{segment.name}"] = bytes(damaged)
        routing._shared = None
        assert b"CRC_MISMATCH" in ended("verify", url).stdout
        for words in (
            ("dump", "--isolation", "read_committed", url),  # what is beside it says how its transactions ended
            ("dump", url, url.rpartition("/")[0]),
            ("verify", url.replace("00.log", "09.log")),
            ("verify", "s3://kafka/logs/payments-0"),
        ):
            end = ended(*words)
            assert end.code == 74 and b"the store refuses to show it (403 AccessDenied)" in end.stderr, words


@pytest.mark.slow
@pytest.mark.parametrize(("status", "code"), [(403, "AccessDenied"), (400, "SlowDown")])
def test_doctor_leaves_out_what_a_store_does_not_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, code: str
) -> None:
    """It says so of every file that it reads, whichever that is: nothing is known of what a broker would do."""
    logs = fixture_copy("4.3.0/clean", tmp_path)
    keep_partitions(logs, ("payments-0", "__cluster_metadata-0"))

    def refuses(name: str, method: str, path: str) -> Fault | None:
        return Fault(status, code) if method != "BODY" and path.partition("?")[0] == name else None

    (logs / "cleaner-offset-checkpoint").write_bytes(b"0\n0\n")
    with object_server() as server:
        for path in (path for path in logs.rglob("*") if path.is_file()):
            server.objects[f"kafka/{path.relative_to(logs)}"] = path.read_bytes()
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        for name in [name for name in server.objects if name.endswith(("checkpoint", "properties", "data", "0.log"))]:
            routing._shared = None
            server.fault = partial(refuses, f"/{name}")
            end = ended("doctor", "--json", "s3://kafka")
            found = [json.loads(line) for line in end.stdout.splitlines()]
            named = [(row["code"], row["file"]) for row in found if row.get("code") not in (None, "PARTITION_MISSING")]
            assert (end.code, named) == (3, [("NOT_EXAMINED", Path(name).name)]), name
            assert "run the doctor again" in found[0]["command"] and "user" not in found[0]["broker"]


def test_commands_that_take_no_url_are_named_for_a_copy_on_a_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = fixture_copy("4.3.0/clean", tmp_path)
    keep_partitions(logs, ("customers-uncleaned-0", "__cluster_metadata-0"))
    segment = min((logs / "customers-uncleaned-0").glob("*.log"))
    with object_server() as server:
        for path in (path for path in logs.rglob("*") if path.is_file()):
            server.objects[f"kafka/logs/{path.relative_to(logs)}"] = path.read_bytes()
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        advised = ended(
            "explain", "--advise", "--json", "--set", "cleanup.policy=compact", "s3://kafka/logs/customers-uncleaned-0"
        )
        advice = json.loads(advised.stdout)["advice"]
        assert any(each.endswith("COPY-ON-A-DISK/customers-uncleaned-0") for each in advice)
        damaged = bytearray(segment.read_bytes())
        damaged[100] ^= 1
        server.objects[f"kafka/logs/customers-uncleaned-0/{segment.name}"] = bytes(damaged)
        server.objects["kafka/logs/foreign/x"] = b""
        routing._shared = None
        rows = [json.loads(line) for line in ended("doctor", "--json", "s3://kafka/logs").stdout.splitlines()]
        assert {row["code"]: row["command"] for row in rows if row["type"] == "diagnosis"}.items() >= {
            "DAMAGE_SERVED": "seglog repair COPY-ON-A-DISK/customers-uncleaned-0",
            "STRANGE_DIRECTORY": "mv COPY-ON-A-DISK/foreign SOMEWHERE-OUTSIDE-LOG.DIRS",
        }.items()


def test_what_a_store_refuses_is_named_by_its_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_local_tiered(tmp_path, "orders", 0, tier_segments(CLEAN / "customers-uncleaned-0")[:1])
    copies = {str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    partition = (CLEAN / "payments-0").iterdir()
    with object_server() as server:
        server.objects.update({f"kafka/tier/{name}": data for name, data in copies.items()})
        server.objects.update({f"kafka/logs/payments-0/{path.name}": path.read_bytes() for path in partition})
        server.fault = lambda method, path: (
            Fault(403, "AccessDenied") if method == "GET" and "list-type" not in path else None
        )
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        shown = ended("tiers", "s3://kafka/tier")
        assert shown.code == 3 and b"LAST" in shown.stdout
        assert b"s3://kafka/tier/" in shown.stderr and b"s3:/k" not in shown.stderr
        found = [
            json.loads(line) for line in ended("verify", "--json", "s3://kafka/logs/payments-0").stdout.splitlines()
        ]
        assert "UNREADABLE_FILE" in {each.get("code") for each in found}
    directory = parse_location("s3://kafka/logs/payments-0")
    refused = unreadable(directory, PermissionError(errno.EACCES, "the store refuses to show it", str(directory)))
    assert (refused.partition, refused.file) == ("payments-0", "")


def test_a_batch_by_its_offset_takes_few_requests_and_v_says_how_many(places: tuple[Path, str]) -> None:
    end = ended("dump", "-v", "--from-offset", "100", "--limit", "1", f"{places[1]}/{PARTITION}")
    said = re.search(rb"object stores: (\d+) requests \(1 listings, 0 heads, \d+ reads\), \d+ bytes", end.stderr)
    assert end.code == 0 and said is not None, end.stderr
    assert int(said[1]) <= 6
    quiet = ended("dump", "--from-offset", "100", "--limit", "1", f"{places[1]}/{PARTITION}")
    assert b"object stores" not in quiet.stderr and quiet.stdout == end.stdout


def test_v_says_what_it_costs_by_the_users_price_list(
    places: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEGLOG_REMOTE_PRICE_READS", "1000")
    monkeypatch.setenv("SEGLOG_REMOTE_CACHE", "1MiB")
    url = f"{places[1]}/{PARTITION}"
    prices = ["--set", "remote.price.listings=2e6", "--set", "remote.price.gigabyte=0"]
    end = ended("dump", "-v", *prices, "--from-offset", "100", "--limit", "1", url)
    said = re.search(rb"1 listings, 0 heads, (\d+) reads\), .*; cost by remote.price.\*: 200(\d)\.000000\n", end.stderr)
    assert end.code == 0 and said is not None and said[1] == said[2], end.stderr
    assert b"warning" not in end.stderr
    monkeypatch.setenv("SEGLOG_REMOTE_PRICE_READS", "cheap")
    end = ended("ls", "-v", url)
    assert end.code == 0 and b"unknown (remote.price.reads: 'cheap' is not a price" in end.stderr


def test_a_log_directory_is_listed_once(places: tuple[Path, str]) -> None:
    end = ended("ls", "-v", f"{places[1]}/4.3.0-clean")
    assert b"(1 listings, 0 heads" in end.stderr


WRITING = [
    "append URL -",
    "verify --repair URL",
    "clean URL",
    "retain --retention-ms 1 URL",
    "recover URL",
    "reindex URL",
    "truncate --to-offset 1 URL",
    "cleaner URL",
    "salvage FILES -o URL",
    "convert FILES -o URL",
    "export FILES --format csv -o URL",
]


@pytest.mark.parametrize("command", WRITING)
def test_what_writes_wants_a_local_directory_and_asks_nothing(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(RemoteFileSystem, "_root", lambda *_: pytest.fail("a store was asked"))
    files = fixture_copy("0.10.2", tmp_path) / "v1-none-createtime-0"
    end = ended(*command.replace("URL", "s3://bucket/kafka/t-0").replace("FILES", str(files)).split())
    assert end.code == 2, end.stderr
    assert re.search(rb"error: s3://bucket/kafka/t-0: this needs a local directory", end.stderr)
    assert end.stderr.count(b"\n") == 1 and not end.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["0.10.2"]


def test_the_library_writes_to_no_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RemoteFileSystem, "_root", lambda *_: pytest.fail("a store was asked"))
    url = "s3://bucket/kafka/t-0"
    for write in (seglog.clean, seglog.repair, seglog.recover):
        with pytest.raises(ConfigError, match="this needs a local directory"):
            list(write(url))
    with pytest.raises(ConfigError, match="this needs a local directory"), seglog.open_log(url, writable=True):
        pytest.fail("it was opened")


def test_without_the_extra_a_url_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    monkeypatch.setitem(sys.modules, "obstore.exceptions", None)
    end = ended("ls", "--json", "s3://bucket/kafka")
    assert end.code == 13
    assert "pip install '.[remote]'" in json.loads(end.stderr.splitlines()[-1])["message"]
    with pytest.raises(UnsupportedError, match=r"\.\[remote\]"), seglog.open_log("s3://bucket/kafka/t-0"):
        pytest.fail("nothing is there")
