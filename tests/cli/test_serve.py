"""`seglog serve` as a process: it reports that it is ready, serves, counts, keeps commits, and stops in order."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import ssl
import subprocess
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import pytest

from seglog.model import Record
from seglog_rescue.serve import protocol
from seglog_rescue.serve.protocol import ErrorCode
from tests.support.command_line import COMMAND, ended
from tests.support.json_contract import output_faults
from tests.support.open_logs import opened_log
from tests.support.raw_client import RawClient
from tests.support.serving import address_of, served

LIMIT_SECONDS = 60


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with opened_log(tmp_path / "logs" / "t-0") as log:
        log.append([Record(b"value", timestamp=1000) for _ in range(7)])
    return tmp_path / "logs"


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=["SIGTERM", "SIGINT"])
def test_it_serves_until_a_signal_ends_it_and_tells_each_connection(
    directory: Path, sent: signal.Signals, code: int
) -> None:
    with served(directory) as (process, said):
        assert said["type"] == "serving" and said["listen"] == said["advertised"]
        assert (said["topics"], said["partitions"]) == (1, 1)
        with RawClient(address_of(said)) as client:
            (topic,) = client.ask(protocol.METADATA, 12, {"topics": None}).topics
            assert topic.name == "t"
            process.send_signal(sent)
            assert client.is_closed()
        stdout, stderr = process.communicate(timeout=LIMIT_SECONDS)
        assert process.returncode == code
        (connection,) = [json.loads(line) for line in stdout.splitlines()]
        assert output_faults("serve", "\n".join((json.dumps(said), stdout.decode()))) == []
        assert (connection["type"], connection["client_id"], connection["requests"]) == ("connection", "raw", 1)
        assert connection["reason"] == "the endpoint stops"
        assert b"Traceback" not in stderr


def test_no_library_of_its_own_makes_a_directory_where_it_was_started(directory: Path) -> None:
    assert importlib.util.find_spec("hypothesis") is not None  # kio imports it, and it keeps tables in `.hypothesis`
    with served(".", cwd=directory) as (_, said), RawClient(address_of(said)) as client:
        client.ask(protocol.API_VERSIONS, 3)
        assert [path.name for path in directory.glob(".hypothesis")] == []


def test_counters_are_on_a_page_of_their_own(directory: Path) -> None:
    with served("--metrics", "127.0.0.1:0", directory) as (_, said):
        with RawClient(address_of(said)) as client:
            client.ask(protocol.API_VERSIONS, 3)
            with urllib.request.urlopen(f"http://{said['metrics']}/metrics", timeout=LIMIT_SECONDS) as answer:
                lines = answer.read().decode().splitlines()
        assert "seglog_serve_connections 1" in lines and "seglog_serve_requests_total 1" in lines
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://{said['metrics']}/other", timeout=LIMIT_SECONDS)


def test_a_readiness_probe_is_answered_where_the_counters_are(directory: Path) -> None:
    with served("--metrics", "127.0.0.1:0", directory) as (_, said):
        with urllib.request.urlopen(f"http://{said['metrics']}/healthz", timeout=LIMIT_SECONDS) as answer:
            assert (answer.status, answer.read()) == (200, b"ok\n")
        request = urllib.request.Request(f"http://{said['metrics']}/healthz", method="POST", data=b"")
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(request, timeout=LIMIT_SECONDS)


def commit(client: RawClient, offset: int) -> ErrorCode:
    partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": "m"}
    values = {"group_id": "g", "topics": [{"name": "t", "partitions": [partition]}]}
    (topic,) = client.ask(protocol.OFFSET_COMMIT, 8, values).topics
    return ErrorCode(topic.partitions[0].error_code)


def committed(client: RawClient) -> int:
    values = {"group_id": "g", "topics": [{"name": "t", "partition_indexes": (0,)}]}
    (topic,) = client.ask(protocol.OFFSET_FETCH, 7, values).topics
    return int(topic.partitions[0].committed_offset)


def test_commits_are_kept_in_a_file_also_when_the_process_is_killed(directory: Path, tmp_path: Path) -> None:
    file = tmp_path / "offsets.jsonl"
    with served("--offsets", file, directory) as (process, said), RawClient(address_of(said)) as client:
        assert committed(client) == -1
        for offset in (3, 5):
            assert commit(client, offset) is ErrorCode.none
        process.kill()
        process.wait(LIMIT_SECONDS)
    file.write_bytes(file.read_bytes() + b'{"type":"commit","group":"g","to')  # cut short by the kill
    with served("--offsets", file, directory) as (_, said), RawClient(address_of(said)) as client:
        assert committed(client) == 5
        assert commit(client, 6) is ErrorCode.none
    kept = [json.loads(line) for line in file.read_bytes().splitlines()]
    assert [(each["group"], each["topic"], each["partition"], each["offset"]) for each in kept][-1] == ("g", "t", 0, 6)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--offsets", "{logs}/offsets"], 12, "which is served and so never written to"),
        (["--listen", "nowhere"], 2, "is not HOST:PORT"),
        (["--listen", "0.0.0.0:0"], 2, "--advertise must say"),
        (["--on-corrupt", "guess"], 2, "not one of fail, skip"),
        (["--tls-key", "key.pem"], 2, "need --tls-cert"),
        (["--tls-cert", "{logs}/t-0/leader-epoch-checkpoint"], 2, "no certificate and key"),
        (["--tls-cert", "no.pem"], 74, "no.pem: No such file or directory"),
    ],
    ids=["offsets", "listen", "advertise", "on-corrupt", "key", "certificate", "no-certificate"],
)
def test_wrong_usage_is_reported_before_anything_is_served(
    directory: Path, arguments: Sequence[str], code: int, words: str
) -> None:
    filled = [each.replace("{logs}", str(directory)) for each in arguments]
    done = ended("serve", *filled, directory)
    assert done.code == code and words in done.stderr.decode()


def test_a_partition_that_is_named_and_cannot_be_opened_ends_it_or_is_left_out(directory: Path) -> None:
    (directory / "pipe-0").mkdir()
    os.mkfifo(directory / "pipe-0" / "00000000000000000000.log")
    named = directory / "pipe-0", directory / "t-0"
    done = ended("serve", "--listen", "127.0.0.1:0", *named)
    assert done.code == 74 and "pipe-0" in done.stderr.decode()
    with served("--on-corrupt", "skip", *named) as (process, said):
        assert said["type"] == "left_out" and "pipe-0" in said["path"]
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        assert (said["type"], said["partitions"]) == ("serving", 1)


def test_a_copy_that_is_left_out_is_said_once(directory: Path) -> None:
    shutil.copytree(directory, directory.with_name("copy"))
    named = directory / "t-0", directory.with_name("copy") / "t-0"
    process = subprocess.Popen(
        [*COMMAND, "serve", "--listen", "127.0.0.1:0", *map(str, named)], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    said = [process.stderr.readline() for _ in range(2)]
    process.terminate()
    process.communicate(timeout=LIMIT_SECONDS)
    assert said[0].startswith("warning: ") and "is not served: " in said[0]
    assert said[1].startswith("serving 1 topic, 1 partition, read-only, on 127.0.0.1:")


def test_a_partition_of_a_log_directory_that_cannot_be_opened_is_said_when_a_client_asks(directory: Path) -> None:
    (directory / "pipe-0").mkdir()
    os.mkfifo(directory / "pipe-0" / "00000000000000000000.log")
    with served(directory) as (process, said):
        assert (said["type"], said["partitions"]) == ("serving", 2)
        for topic, error in (("pipe", ErrorCode.kafka_storage_error), ("t", ErrorCode.none)):
            with RawClient(address_of(said)) as client:
                partitions = ({"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1},)
                asked = {"replica_id": -1, "isolation_level": 0, "topics": ({"name": topic, "partitions": partitions},)}
                (found,) = client.ask(protocol.LIST_OFFSETS, 7, asked).topics
                assert found.partitions[0].error_code is error
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        assert said["type"] == "damage" and "pipe-0" in said["path"] and "cannot be read" in said["message"]


def test_clients_are_given_the_address_that_is_advertised(directory: Path) -> None:
    with served("--advertise", "logs.example:19092", directory) as (_, said):
        assert said["advertised"] == "logs.example:19092" != said["listen"]
        with RawClient(address_of(said)) as client:
            (node,) = client.ask(protocol.METADATA, 12, {"topics": None}).brokers
            (found,) = client.ask(protocol.FIND_COORDINATOR, 4, {"coordinator_keys": ("g",)}).coordinators
        assert {(each.host, each.port, each.node_id) for each in (node, found)} == {("logs.example", 19092, 1)}


CERTIFICATE = """openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost
 -addext subjectAltName=IP:127.0.0.1 -keyout {key} -out {certificate}"""


def test_what_a_broker_would_cut_off_a_log_that_was_not_closed_is_said(directory: Path) -> None:
    path = directory / "t-0" / "00000000000000000000.log"
    path.write_bytes(path.read_bytes() + b"\0" * 30)
    with served(directory) as (process, said):
        assert (said["type"], said["partitions"]) == ("serving", 1)
        assert process.stdout is not None
        line = json.loads(process.stdout.readline())
    assert (line["type"], line["path"]) == ("recovery_would_cut", str(directory / "t-0"))
    assert (line["bytes"], line["log_end_offset"]) == (30, 7)
    assert output_faults("serve", json.dumps(line)) == []


def test_clients_are_served_where_nobody_takes_the_lines(directory: Path) -> None:
    path = directory / "t-0" / "00000000000000000000.log"
    path.write_bytes(path.read_bytes() + b"\0" * 30)
    with served(directory) as (process, said):
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        for _ in range(2):
            with RawClient(address_of(said)) as client:
                (topic,) = client.ask(protocol.METADATA, 12, {"topics": None}).topics
                assert topic.name == "t"
        process.terminate()
        stderr = process.stderr.read().decode()
    assert "Traceback" not in stderr
    assert stderr.count("events are not written: standard output: Broken pipe") == 1


def test_tls_by_files_carries_the_records(directory: Path, tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = CERTIFICATE.format(key=key, certificate=certificate).split()
    subprocess.run(command, check=True, capture_output=True, timeout=LIMIT_SECONDS)
    with served("--tls-cert", certificate, "--tls-key", key, directory) as (_, said):
        plain = RawClient(address_of(said))
        context = ssl.create_default_context(cafile=str(certificate))
        plain.socket = context.wrap_socket(plain.socket, server_hostname="127.0.0.1")
        partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
        asked = {"topics": [{"topic": "t", "partitions": [partition]}], "min_bytes": 1, "max_bytes": 1 << 20}
        (topic,) = plain.ask(protocol.FETCH, 12, asked).responses
        assert topic.partitions[0].records == (directory / "t-0" / "00000000000000000000.log").read_bytes()
        plain.close()
