"""Objects as files: what is read is what is there, nothing is asked twice, and what goes wrong is said plainly."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from seglog.configuration.settings import metadata_directories
from seglog.errors import ConfigError, NotALogError, RefusedError
from seglog.locations import parse_location
from seglog.scan.listing import resolve_paths
from seglog.storage.filesystem import FileSystem
from seglog_stores.remote.blocks import Blocks, Source
from seglog_stores.remote.filesystem import RemoteFileSystem
from seglog_stores.remote.limits import Limits
from tests.support.manual_clock import ManualClock
from tests.support.object_server import SECRETS, Fault, ObjectServer, object_server

LIMITS = Limits(cache_bytes=4096, block_bytes=64, request_bytes=256, requests_at_once=4, retries=2, timeout_s=5.0)
DATA = bytes(range(256)) * 40
LOG = parse_location("s3://bkt/kafka/t-0/00.log")


@pytest.fixture
def server() -> Iterator[ObjectServer]:
    with object_server() as served:
        served.objects.update(
            {
                "bkt/kafka/t-0/00.log": DATA,
                "bkt/kafka/t-0/empty": b"",
                "bkt/kafka/t-1/00.log": DATA[:100],
                "bkt/kafka/meta.properties": b"version=1\n",
            }
        )
        yield served


def files(server: ObjectServer, limits: Limits = LIMITS, clock: ManualClock | None = None) -> RemoteFileSystem:
    # obstore takes the variables of the process: those of the tests' own server
    return RemoteFileSystem(environment=server.environment, limits=limits, clock=clock or ManualClock(1000))


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)


def test_it_is_a_file_system(server: ObjectServer) -> None:
    as_such: FileSystem = files(server)
    assert as_such.read_bytes(LOG) == DATA
    assert [name for name, _ in as_such.entries(LOG.parent)] == ["00.log", "empty"]
    assert as_such.list(LOG.parent.parent) == ["meta.properties", "t-0", "t-1"]
    assert as_such.list(parse_location("s3://bkt")) == ["kafka"]


def test_a_status_has_size_time_and_version(server: ObjectServer) -> None:
    fs = files(server)
    status, directory = fs.status(LOG), fs.status(LOG.parent)
    assert status is not None and directory is not None
    assert (status.size, status.is_directory, directory.is_directory) == (len(DATA), False, True)
    assert status.modified_ms == 1795341600000
    server.objects["bkt/kafka/t-0/00.log"] = DATA[::-1]
    changed = files(server).status(LOG)
    assert changed is not None and changed.inode != status.inode and changed.device == status.device
    assert fs.status(LOG.with_name("none")) is None
    assert fs.status(parse_location("s3://bkt/none/at/all")) is None


def test_nothing_is_asked_twice(server: ObjectServer) -> None:
    fs = files(server)
    for _ in range(3):
        for name, status in fs.entries(LOG.parent.parent):
            if status.is_directory:
                for inner, found in fs.entries(LOG.parent.parent / name):
                    path = LOG.parent.parent / name / inner
                    assert fs.status(path) == found
                    with fs.open(path, "r") as file:
                        assert file.size() == found.size
        assert fs.status(LOG.parent / "none") is None
        assert fs.status(LOG.parent.parent / ".lock") is None
    assert len(server.asked) == 1, server.asked
    assert (fs.traffic.listings, fs.traffic.requests) == (1, 1)


def test_lookups_beside_a_partition_cost_one_listing(server: ObjectServer) -> None:
    fs = files(server)
    assert fs.status(LOG.parent) is not None
    for name in (".lock", "meta.properties", "recovery-point-offset-checkpoint", "t-1"):
        assert (fs.status(LOG.parent.parent / name) is None) == (name[0] in ".r")
    assert len(server.asked) == 2, server.asked


def test_what_was_listed_long_ago_is_asked_again(server: ObjectServer) -> None:
    clock = ManualClock(1000)
    fs = files(server, clock=clock)
    assert fs.list(LOG.parent) == ["00.log", "empty"]
    server.objects["bkt/kafka/t-0/99.log"] = b"new"
    assert fs.list(LOG.parent) == ["00.log", "empty"]
    clock.sleep(LIMITS.listing_s)
    assert fs.list(LOG.parent) == ["00.log", "99.log", "empty"]


def test_a_long_walk_through_partitions_lists_all_of_them_again_not_each(server: ObjectServer) -> None:
    """The listings expire on the way: one partition is listed alone, and with the second one all are listed again."""
    server.objects.update({f"bkt/logs/t-{i:03}/{name}": b"x" for i in range(500) for name in ("00.log", "00.index")})
    clock = ManualClock(1000)
    fs, logs = files(server, clock=clock), parse_location("s3://bkt/logs")
    names = fs.list(logs)
    before = len(server.asked)
    for number, name in enumerate(names):
        if number == 100:
            clock.sleep(LIMITS.listing_s)
            server.objects["bkt/logs/t-400/99.log"] = b"new"
            del server.objects["bkt/logs/t-401/00.log"]
        found = [each for each, _ in fs.entries(logs / name)]
        assert found == {"t-400": ["00.index", "00.log", "99.log"], "t-401": ["00.index"]}.get(
            name, ["00.index", "00.log"]
        )
        assert all(fs.status(logs / name / each) is not None for each in found)
    assert len(server.asked) - before <= 3, server.asked[before:]


def test_a_reader_that_follows_one_partition_lists_it_alone(server: ObjectServer) -> None:
    server.objects.update({f"bkt/logs/t-{i:03}/00.log": b"x" for i in range(500)})
    clock = ManualClock(1000)
    fs, logs = files(server, clock=clock), parse_location("s3://bkt/logs")
    assert len(fs.list(logs)) == 500
    for _ in range(3):
        clock.sleep(LIMITS.listing_s)
        assert fs.status(logs / "t-007" / "00.log") is not None
    assert [each for each in server.asked if "t-007" not in each] == server.asked[:1]
    assert len(server.asked) == 4, server.asked


def test_a_wide_directory_is_listed_by_the_thousand_and_a_deep_one_by_its_level(server: ObjectServer) -> None:
    server.objects.update({f"bkt/wide/t-{i}/{j:02}.log": b"x" for i in range(700) for j in range(3)})
    server.objects.update({f"bkt/deep/a/b/{i}/{j}": b"x" for i in range(300) for j in range(5)})
    fs = files(server)
    wide = parse_location("s3://bkt/wide")
    assert sum(len(fs.entries(wide / name)) for name in fs.list(wide)) == 2100
    assert len(server.asked) == 3
    server.asked.clear()
    assert fs.list(parse_location("s3://bkt/deep")) == ["a"]
    assert len(server.asked) <= 3  # a page is fetched ahead


@pytest.mark.parametrize(
    ("position", "size"), [(0, 1), (0, len(DATA)), (63, 2), (100, 1000), (len(DATA) - 3, 3), (5, len(DATA) - 5)]
)
def test_a_range_is_the_bytes_there(server: ObjectServer, position: int, size: int) -> None:
    with files(server).open(LOG, "r") as file:
        assert file.read_at(position, size) == DATA[position : position + size]
        buffer = bytearray(size)
        assert file.read_into(position, buffer) == size
        assert bytes(buffer) == DATA[position : position + size]


def test_reads_end_where_the_object_ends(server: ObjectServer) -> None:
    fs = files(server)
    with fs.open(LOG, "r") as file, fs.open(LOG.with_name("empty"), "r") as empty:
        assert file.read_at(len(DATA) - 2, 10**12) == DATA[-2:]
        assert file.read_at(len(DATA), 5) == file.read_at(10**15, 5) == file.read_at(0, 0) == b""
        assert file.read_into(len(DATA) + 5, bytearray(4)) == 0
        assert empty.read_at(0, 10) == b"" and empty.size() == 0
    assert server.count("GET /bkt/kafka/t-0/empty") == 0


def test_neighbouring_blocks_come_in_one_request(server: ObjectServer) -> None:
    fs = files(server)
    with fs.open(LOG, "r") as file:
        file.read_at(10, 200)  # four blocks
        assert server.count("GET /bkt/kafka/t-0/00.log") == 1
        file.read_at(0, 256)
        assert server.count("GET /bkt/kafka/t-0/00.log") == 1
        file.read_at(2048, 1024)
        assert server.count("GET /bkt/kafka/t-0/00.log") == 1 + 4  # as large as a request may be


def test_a_walk_reads_ahead_and_the_cache_has_its_bound(server: ObjectServer) -> None:
    fs = files(server)
    with fs.open(LOG, "r") as file:
        walked = b"".join(file.read_at(position, 50) for position in range(0, len(DATA), 50))
    assert walked == DATA
    assert fs.cached_bytes <= LIMITS.cache_bytes
    assert fs.traffic.gets < 2 * len(DATA) / LIMITS.request_bytes + 8
    assert fs.traffic.bytes_read < 2 * len(DATA)


def test_eviction_from_the_cache_also_drops_its_bookkeeping() -> None:
    blocks, fetched = Blocks(LIMITS), list[tuple[int, int]]()

    def fetch(start: int, size: int) -> bytes:
        fetched.append((start, size))
        return DATA[start : start + size]

    source, buffer = Source(("s3://bkt/x", "1"), len(DATA), fetch), bytearray(150)
    for position in [*range(0, len(DATA) - 150, 70), *range(len(DATA) - 150, 0, -130)]:
        blocks.read_into(source, position, memoryview(buffer))
        assert buffer == DATA[position : position + 150]
        assert blocks.held <= LIMITS.cache_bytes
    assert sum(size for _, size in fetched) < 3 * len(DATA)
    assert len(blocks._begin) * LIMITS.block_bytes <= LIMITS.cache_bytes
    assert sorted(blocks._begin) == sorted(block for run in blocks._held.values() for block in run)


def test_an_interrupt_while_a_block_is_stored_reaches_every_waiting_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = Blocks(LIMITS)
    source = Source(("s3://bkt/x", "1"), len(DATA), lambda start, size: DATA[start : start + size])

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(blocks._cache, "put", interrupted)
        run = blocks._taken(source, 0, 0)[2][0]
        blocks._bring(run)
    assert isinstance(run.future.exception(timeout=0), KeyboardInterrupt)
    assert not blocks._coming


def test_without_a_cache_all_is_read_all_the_same(server: ObjectServer) -> None:
    fs = files(server, replace(LIMITS, cache_bytes=0))
    with fs.open(LOG, "r") as file:
        assert b"".join(file.read_at(position, 500) for position in range(0, len(DATA), 500)) == DATA
    assert fs.cached_bytes == 0


def test_an_object_that_changes_under_a_read_is_an_error_and_not_a_mixture(server: ObjectServer) -> None:
    fs = files(server)
    with fs.open(LOG, "r") as file:
        assert file.read_at(0, 10) == DATA[:10]
        server.objects["bkt/kafka/t-0/00.log"] = DATA[::-1]
        with pytest.raises(OSError, match="the object was changed while it was read") as caught:
            file.read_at(5000, 100)
    assert (caught.value.errno, caught.value.filename) == (errno.ESTALE, "s3://bkt/kafka/t-0/00.log")
    with fs.open(LOG, "r") as again:  # what was listed is forgotten with it
        assert again.read_at(0, 10) == DATA[::-1][:10]


def test_an_object_that_is_gone_is_no_longer_there(server: ObjectServer) -> None:
    fs = files(server)
    with fs.open(LOG, "r") as file:
        del server.objects["bkt/kafka/t-0/00.log"]
        with pytest.raises(FileNotFoundError, match=r"no such object: 's3://bkt/kafka/t-0/00.log'"):
            file.read_at(0, 10)
    with pytest.raises(FileNotFoundError):
        fs.open(LOG, "r")


def test_a_body_that_ends_early_is_asked_for_again(server: ObjectServer) -> None:
    cuts = iter([Fault(cut=5), Fault(cut=0)])
    server.fault = lambda method, _path: next(cuts, None) if method == "BODY" else None
    with files(server).open(LOG, "r") as file:
        assert file.read_at(0, 200) == DATA[:200]


def test_a_body_that_always_ends_early_is_an_error_after_some_tries(server: ObjectServer) -> None:
    server.fault = lambda method, _path: Fault(cut=5) if method == "BODY" else None
    with (
        files(server).open(LOG, "r") as file,
        pytest.raises(OSError, match="the store's answer was cut short, also on retries"),
    ):
        file.read_at(0, 200)
    assert server.count("GET /bkt/kafka/t-0/00.log") <= (LIMITS.retries + 1) ** 2


def test_a_store_that_is_busy_is_asked_again_and_in_the_end_named(server: ObjectServer) -> None:
    busy = iter([Fault(503, "SlowDown"), Fault(500, "InternalError")])
    server.fault = lambda method, _path: next(busy, None)
    fs = files(server)
    assert fs.read_bytes(LOG) == DATA
    server.fault = lambda method, _path: Fault(503, "SlowDown")
    with pytest.raises(OSError, match=r"the store answered 503 SlowDown, also on retries: 's3://bkt/kafka/t-1") as e:
        files(server).status(parse_location("s3://bkt/kafka/t-1/00.log"))
    assert e.value.errno == errno.EIO


@pytest.mark.parametrize(("status", "code"), [(401, "Unauthorized"), (403, "ExpiredToken")])
def test_credentials_that_are_refused_are_a_permission_error_that_does_not_show_them(
    server: ObjectServer, status: int, code: str
) -> None:
    server.fault = lambda method, _path: Fault(status, code)
    with pytest.raises(PermissionError, match=rf"the store refuses to show it \({status} {code}\)") as caught:
        files(server).status(LOG)
    assert not any(secret in repr(caught.value) for name, secret in SECRETS.items() if name != "AWS_REGION")
    assert caught.value.__cause__ is None and caught.value.__suppress_context__


def test_a_store_that_does_not_answer_is_a_timeout(server: ObjectServer) -> None:
    server.fault = lambda method, _path: Fault(hang=20.0)
    with pytest.raises(TimeoutError, match="did not answer in time"):
        files(server, replace(LIMITS, timeout_s=0.05, retries=1)).status(LOG)


def test_a_store_where_nothing_listens_is_named() -> None:
    with object_server() as gone:
        environment = gone.environment
    fs = RemoteFileSystem(environment=environment, limits=replace(LIMITS, retries=0))
    with pytest.raises(ConnectionRefusedError, match="nothing answers at the store's address: 's3://bkt/kafka"):
        fs.status(LOG)


def test_keys_that_no_path_can_name_are_said(server: ObjectServer) -> None:
    server.objects["bkt/odd//x"] = b""
    with pytest.raises(OSError, match=r"a key with an empty part") as caught:
        files(server).list(parse_location("s3://bkt/odd"))
    assert caught.value.errno == errno.ENOTSUP


def test_a_marker_of_a_directory_is_no_file(server: ObjectServer) -> None:
    server.objects.update({"bkt/kafka/": b"", "bkt/kafka/t-0/": b""})
    fs = files(server)
    assert [(name, status.is_directory) for name, status in fs.entries(LOG.parent.parent)] == [
        ("meta.properties", False),
        ("t-0", True),
        ("t-1", True),
    ]
    assert fs.list(LOG.parent) == ["00.log", "empty"]


def test_a_web_server_gives_files_and_says_that_it_lists_nothing(server: ObjectServer) -> None:
    fs = files(server)
    path = parse_location(f"http://127.0.0.1:{server.port}/bkt/kafka/t-0/00.log")
    with pytest.raises(OSError, match="this web server has no listings"):
        fs.list(path.parent)
    for page_bytes in (None, b"<html>what many servers show of a directory"):
        if page_bytes is not None:
            server.objects["bkt/kafka/t-0"] = page_bytes
        with pytest.raises(NotALogError, match="none: nothing is seen there; a web server without listings"):
            resolve_paths(files(server), [path.with_name("none")])
    page = fs.status(path.parent)
    assert page is not None and page.is_directory
    assert fs.read_bytes(path) == DATA
    missing = path.with_name("none")
    assert fs.status(missing) is None
    assert fs.list(path.parent) == ["00.log"]  # what was asked for by its name


def test_what_would_change_an_object_is_refused_and_never_asked_for(server: ObjectServer) -> None:
    fs = files(server)
    for change in (
        lambda: fs.open(LOG, "create"),
        lambda: fs.open(LOG, "r+"),
        lambda: fs.remove(LOG),
        lambda: fs.rename(LOG, LOG),
        lambda: fs.make_directory(LOG),
        lambda: fs.open(LOG, "r").truncate(0),
    ):
        with pytest.raises(OSError, match="this needs a local directory") as caught:
            change()
        assert caught.value.errno == errno.EROFS
    assert {each.split()[0] for each in server.asked} <= {"GET", "HEAD"}


def test_a_url_is_never_a_path_of_this_machine(server: ObjectServer, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"s3://bkt/kafka/t-0/00.log: this needs a local directory"):
        LOG.stat()
    with pytest.raises(RefusedError):
        files(server).status(tmp_path)


# Each place at which a store is asked, and which requests these are; of a range the one that follows.
PLACES: dict[str, Callable[[str, str], bool]] = {
    "listing": lambda method, path: method in ("GET", "LISTING") and "list-type" in path,
    "head": lambda method, path: method == "HEAD",
    "later range": lambda method, path: method in ("GET", "BODY") and "list-type" not in path,
}
FAULTS = {
    "busy": (Fault(503, "SlowDown"), r"the store answered 503( SlowDown)?, also on retries"),
    "reset": (Fault(reset=True), r"the request to the store failed|the connection was lost|cut short"),
    "short": (Fault(cut=5), r"cut short|could not be asked, or its answer could not be read"),
    "slow": (Fault(hang=20.0), r"did not answer in time"),
    "expired": (Fault(403, "ExpiredToken"), r"the store refuses to show it \(403"),
}


def test_a_long_listing_that_is_cut_short_goes_on_where_it_was(server: ObjectServer) -> None:
    names = [f"{number:05}.log" for number in range(2500)]
    server.objects.update({f"bkt/many/t-0/{name}": b"" for name in names})
    answered: list[str] = []

    def cut_the_second(method: str, path: str) -> Fault | None:
        answered.append(path)
        return Fault(cut=100) if method == "LISTING" and "continuation-token" in path and cuts.pop() else None

    cuts = [False] * 9 + [True]
    server.fault = cut_the_second
    assert files(server).list(parse_location("s3://bkt/many/t-0")) == names
    assert any("start-after" in path for path in answered)


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("place", PLACES)
def test_what_goes_wrong_anywhere_ends_in_the_right_answer_or_in_a_clear_error(
    server: ObjectServer, place: str, kind: str
) -> None:
    fault, message = FAULTS[kind]
    if (place, kind) == ("head", "short"):
        return  # a head has no body
    is_cut = fault.cut >= 0

    def is_meant(method: str, path: str) -> bool:
        return PLACES[place](method, path) and (method in ("BODY", "LISTING")) == is_cut

    def look(fs: RemoteFileSystem, wrong: Callable[[str, str], Fault | None]) -> object:
        if place == "head":
            path = parse_location(f"http://127.0.0.1:{server.port}/bkt/kafka/t-0/00.log")
            server.fault = wrong
            return fs.status(path) is not None
        if place == "listing":
            server.fault = wrong
            return fs.list(LOG.parent.parent)
        with fs.open(LOG, "r") as file:
            first = file.read_at(0, 10)
            server.fault = wrong
            return first + file.read_at(5000, 20)

    answers: dict[str, object] = {
        "head": True, "listing": ["meta.properties", "t-0", "t-1"], "later range": DATA[:10] + DATA[5000:5020],
    }  # fmt: skip
    limits = replace(LIMITS, retries=1, timeout_s=0.5 if kind == "slow" else 5.0)
    server.fault = lambda _method, _path: None
    if kind != "expired":
        once = iter([fault])
        found = look(files(server, limits), lambda method, path: next(once, None) if is_meant(method, path) else None)
        assert found == answers[place] and next(once, None) is None
    server.fault = lambda _method, _path: None
    with pytest.raises(OSError, match=message) as caught:
        look(files(server, limits), lambda method, path: fault if is_meant(method, path) else None)
    assert "bkt/kafka" in str(caught.value) and not any(s in str(caught.value) for s in SECRETS.values() if "/" in s)


def test_two_threads_walks_that_were_announced_ask_for_each_byte_once(server: ObjectServer) -> None:
    fs, half = files(server), len(DATA) // 2
    with fs.open(LOG, "r") as file:
        for start in (0, half):
            file.advise_wanted(start, half)
        read = [b"", b""]
        while len(read[0]) < half:  # by turns, as two threads would
            for i in (0, 1):
                lent = file.lend(i * half + len(read[i]), min(100, half - len(read[i])))
                assert lent is not None
                read[i] += lent
    assert b"".join(read) == DATA
    assert fs.traffic.bytes_read == len(DATA)
    assert fs.traffic.gets <= len(DATA) / LIMITS.request_bytes + 2


def test_nothing_lies_above_or_beside_a_store(server: ObjectServer) -> None:
    bucket = parse_location("s3://bkt")
    assert (bucket.parent, parse_location("s3://bkt/kafka").parent) == (bucket, bucket)
    server.objects["bkt/meta.properties"] = b"cluster.id=c\nnode.id=1\n"
    assert not metadata_directories(files(server), bucket, None)
    assert [one for one in server.asked if "/bkt" not in one] == []
