"""The README's tour shows the real output, and every example of a `--help` works."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from seglog.storage.local import LocalFileSystem
from seglog_cli.exit_codes import ExitCode
from seglog_cli.manual import descriptions
from tests.support.command_line import COMMAND, ROOT, clean_logs, environment, run, shell
from tests.support.fixtures import CLEAN, fixture_copy
from tests.support.log_files import write_segment
from tests.support.lost_clusters import broker_directory, topic_records
from tests.support.metadata_records import write_metadata_log
from tests.support.naive import NaiveRecord, batch_v2
from tests.support.readme_tour import commands, followed, installed_clone
from tests.support.schema_registry import shop
from tests.support.target_directories import partitions_in, target_directory
from tests.support.tiers import (
    PLAIN,
    SEALED,
    private_pem,
    remote_record,
    tier_segments,
    write_aiven,
    write_local_tiered,
)

README = (ROOT / "README.md").read_text()
ALL_EXAMPLES = [example for one in descriptions() for example in one.examples]
# Those of `seglog spark` need a session and a cluster's paths; tests/spark/test_jobs.py runs these commands. Those of
# `seglog replay` need a cluster: tests/interop/test_replay.py.
SERVE_EXAMPLES = [example for example in ALL_EXAMPLES if example.startswith("seglog serve")]
EXAMPLES = [
    example for example in ALL_EXAMPLES if not example.startswith(("seglog spark", "seglog serve", "seglog replay"))
]
EXAMPLE_RUN = "20261121T015349Z-7f3a"


@pytest.mark.slow
def test_the_page_shows_what_happens_in_a_fresh_clone(tmp_path: Path) -> None:
    assert len(commands(README)) > 12
    made = followed(README, installed_clone(tmp_path))
    assert made.splitlines() == README.splitlines(), "run python -m tests.support.readme_tour"


def test_the_page_activates_copies_and_enters_before_it_calls_seglog() -> None:
    opening = commands(README)[:3]
    assert [command.split()[0] for command in opening] == [".", "cp", "cd"]


@pytest.mark.parametrize(
    ("symptom", "command"), [("the broker does not start", "seglog doctor"), ("consumers stand still", "seglog txn")]
)
def test_the_night_table_names_the_command_for_each_symptom(symptom: str, command: str) -> None:
    (row,) = [line for line in README.splitlines() if symptom in line]
    assert f"`{command} " in row


@pytest.mark.parametrize(
    ("marker", "beginning"),
    [
        ("main-command", "python3 core/native/install.py && .venv/bin/seglog "),
        ("test-command", "python3 -m venv --upgrade-deps .venv && .venv/bin/pip install -q --group dev "),
    ],
)
def test_the_two_commands_are_one_line_each(marker: str, beginning: str) -> None:
    match = re.search(rf"^<!-- {marker} -->\n```\n(.*?)```", README, re.DOTALL | re.MULTILINE)
    assert match is not None
    assert match[1].count("\n") == 1
    assert match[1].startswith(beginning)


def test_the_main_command_does_its_work_on_the_fixtures() -> None:
    match = re.search(r"^<!-- main-command -->\n```\n(.*?)```", README, re.DOTALL | re.MULTILINE)
    assert match is not None
    (part,) = match[1].split(" && ")[1:]
    done = run(*shlex.split(part)[1:])
    assert done.exit_code == 0, done.output


def stage(logs: Path, tmp_path: Path) -> dict[str, str]:
    """Makes what the examples mention; returns each path in them → its place in this test."""
    target = tmp_path / "new"
    target.mkdir()
    (logs / "records.jsonl").write_text('{"key":"k","value":"v"}\n')
    (logs / "lines.txt").write_text("a\nb\n")
    assert run("append", "--create", target / "orders-0", logs / "lines.txt").exit_code == 0
    return {
        "/var/lib/kafka/data": str(logs),
        "/tmp/logs": str(target),
        "/disk1/kafka": str(logs),
        "/tmp/seglog-schemas": str(tmp_path / "schemas"),
    }


def stage_copies(logs: Path, tmp_path: Path, example: str) -> dict[str, str]:
    """Makes copies of partitions under the names that `diff`, `convert` and `salvage` use, and carved logs."""
    target = tmp_path / "new"
    for name, source in (
        ("broker1/orders-0", target / "orders-0"),
        ("broker2/orders-0", target / "orders-0"),
        ("before/customers-0", logs / "customers-0"),
        ("after/customers-0", logs / "customers-0"),
        ("orders-0", target / "orders-0"),
        ("v0-none-0", next(iter(sorted(fixture_copy("0.8.2", tmp_path / "old").glob("*-0"))))),
    ):
        shutil.copytree(source, logs / name)
    shutil.copytree(logs / "__cluster_metadata-0", target / "__cluster_metadata-0")
    rescued = tmp_path / "rescued"
    if "/tmp/rescued/logs/carved-" in example:
        for name, source in (("carved-0", target / "orders-0"), ("carved-3", logs / "orders-none-0")):
            shutil.copytree(source, rescued / "logs" / name)
    image = tmp_path / "disk.img"
    image.write_bytes(bytes(4096) + next((logs / "orders-none-0").glob("*.log")).read_bytes())
    return {
        "/disk2/kafka": str(target),
        "/backup/kafka": str(target),
        "/tmp/disk.img": str(image),
        "/tmp/rescued": str(rescued),
    }


def stage_run(logs: Path, tmp_path: Path) -> dict[str, str]:
    """Makes a repair for the examples that name one."""
    log = sorted((logs / "orders-none-0").glob("*.log"))[0]
    data = bytearray(log.read_bytes())
    data[100] ^= 1
    log.write_bytes(data)
    assert run("verify", "--repair", logs / "orders-none-0").exit_code == 4
    quarantine = logs.parent / ".seglog-quarantine"
    (made,) = quarantine.iterdir()
    return {
        "/var/lib/kafka/.seglog-quarantine": str(quarantine),
        EXAMPLE_RUN: made.name,
        "/tmp/before": str(tmp_path / "before"),
    }


def stage_dead_cluster(tmp_path: Path) -> dict[str, str]:
    """Makes a dead broker's directory that has `orders`, and a stopped broker's that expects its partitions."""
    dead = fixture_copy("4.3.0/killed", tmp_path / "dead")
    (dead / "orders-gzip-0").rename(dead / "orders-0")
    target = target_directory(
        LocalFileSystem(), tmp_path / "other" / "logs", [*partitions_in(dead), "orders-restored-0"]
    )
    return {"/mnt/old/kafka": str(dead), "/var/lib/kafka/data": str(target)}


def stage_lost_cluster(tmp_path: Path) -> dict[str, str]:
    """Makes two brokers' directories, and the remains of their controller's."""
    lost = tmp_path / "lost"
    for node in (1, 2):
        broker_directory(lost / f"broker{node}", node, {"orders-0": [0, 0], "clicks-0": [0]})
    controller = broker_directory(lost / "controller", 3000, {})
    for place in (controller, lost / "backup"):
        write_metadata_log(place, topic_records("orders", [[1, 2]]))
    return {
        "/mnt/broker1/kafka": str(lost / "broker1"),
        "/mnt/broker2/kafka": str(lost / "broker2"),
        "/mnt/controller/kafka": str(controller),
        "/backup/": f"{lost / 'backup'}/",
    }


def stage_set_aside(logs: Path, example: str) -> dict[str, str]:
    """Makes a partition that a broker was about to delete, or the partition that a run had repaired."""
    if EXAMPLE_RUN in example:
        return {"/var/lib/kafka/data/orders-0": str(logs / "orders-none-0")}
    (logs / "customers-0").rename(logs / "orders-0.6b9f2c7d3e5a4f0c8d1b2a3c4d5e6f70-delete")
    return {}


def stage_tier(logs: Path, tmp_path: Path, example: str) -> dict[str, str]:
    """Makes a partition `orders-0` in a tier of the kind that the example names."""
    segments = tier_segments(CLEAN / "customers-uncleaned-0")
    if "kafka-tiered-storage" in example:
        write_local_tiered(tmp_path / "tier", "orders", 0, segments)
    else:
        write_aiven(tmp_path / "tier", "orders", 0, segments, SEALED if "--tier-key" in example else PLAIN)
    (logs / "private.pem").write_bytes(private_pem())
    finished = [remote_record(one, "orders", 0, state=1) for one in segments]
    known = batch_v2(0, [NaiveRecord(i, 0, None, value) for i, value in enumerate(finished)])
    write_segment(logs / "__remote_log_metadata-0", 0, known)
    return {"/mnt/tier": str(tmp_path / "tier")}


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_examples_of_the_help_work(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = clean_logs(tmp_path)
    places = stage(logs, tmp_path)
    if re.search(r"doctor|diff|convert|salvage", example):
        places |= stage_copies(logs, tmp_path, example)
    if "transplant" in example:
        places |= stage_dead_cluster(tmp_path)
    if EXAMPLE_RUN in example:
        places |= stage_run(logs, tmp_path)
    if " registry" in example:
        shop(logs / "registry")
    if "/mnt/tier" in example:
        places |= stage_tier(logs, tmp_path, example)
    if example.startswith("seglog rebuild"):
        places |= stage_lost_cluster(tmp_path)
    if example.startswith("seglog restore"):
        places |= stage_set_aside(logs, example)
    if "server.properties" in example:
        (logs / "server.properties").write_text("segment.bytes=1048576\n")
    if "kafka-logs/orders" in example:
        shutil.copytree(tmp_path / "new" / "orders-0", logs / "kafka-logs" / "orders-0")
    command = example
    for written, real in sorted(places.items(), key=lambda place: -len(place[0])):
        command = command.replace(written, real)
    monkeypatch.chdir(tmp_path if example.startswith("seglog restore") else logs)
    if re.search(r"[|<>]", command):
        done = shell(command, logs)
        assert done.returncode in (0, 1), done.stdout
    else:
        result = run(*shlex.split(command)[1:])
        assert result.exit_code in (0, 1), result.output


NIGHT_COMMANDS = sorted(set(re.findall(r"`(seglog [^`]+)`", README.split("## 3 a.m.\n")[1].split("\n## ")[0])))


@pytest.mark.parametrize("command", [command for command in NIGHT_COMMANDS if not command.startswith("seglog replay")])
def test_the_night_tables_commands_work(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each as it is written, with a path for each placeholder; then without --dry-run. A replay needs a cluster."""
    logs, words = clean_logs(tmp_path), shlex.split(command.replace("…", ""))[1:]
    monkeypatch.chdir(logs)
    verb, partition = words[0], "customers-0" if words[0] in ("clean", "explain") else "orders-none-0"
    segment = f"{partition}/00000000000000000350.log"
    places = {"LOGDIR": ".", "PARTITION": partition, "PATH": partition, "FILE": segment, "IMAGE": segment, "N": "400"}
    places |= {"NEW": "../NEW", "NEW/TOPIC-N": "../NEW/orders-0", "DIR": "../DIR"}
    if "schemas" in words or "registry" in words:
        shop(logs)
    if verb == "undo":
        places["RUN"] = stage_run(logs, tmp_path)[EXAMPLE_RUN]
    elif verb in ("verify", "repair"):
        with (logs / "orders-none-0" / "00000000000000000350.log").open("r+b") as file:
            file.seek(5000)
            file.write(b"XXXX")
    elif verb == "restore":
        places["COPY"] = "orders-0.6b9f2c7d3e5a4f0c8d1b2a3c4d5e6f70-delete"
        (logs / "orders-none-0").rename(places["COPY"])
    elif verb == "transplant":
        dead, target = stage_dead_cluster(tmp_path).values()
        places |= {"NEW": dead, "OLD_LOGDIR": dead, "LOGDIR": target}
    given = [places.get(word, word) for word in words]
    answered = ["--yes"] if verb == "redact" else []  # on a terminal it asks
    done_for_good = [*(word for word in given if word != "--dry-run"), *answered]
    for arguments in [given, done_for_good][: 1 + ("--dry-run" in given)]:
        done = run(*arguments)
        assert done.exit_code in (0, 1, ExitCode.REPAIRED if words[0] == "repair" else 0), done.output


@pytest.mark.parametrize("example", SERVE_EXAMPLES)
def test_the_examples_of_serve_serve_until_they_are_stopped(example: str, tmp_path: Path) -> None:
    logs = clean_logs(tmp_path)
    places = {
        **stage(logs, tmp_path),
        "/mnt/broker1/data": str(logs),
        "/mnt/broker2/data": str(tmp_path / "new"),
        "backup/orders-0": str(tmp_path / "new" / "orders-0"),
        ":9308": ":0",
    }
    command = example
    for written, real in sorted(places.items(), key=lambda place: -len(place[0])):
        command = command.replace(written, real)
    arguments = [*shlex.split(command)[1:], "--listen", "127.0.0.1:0"]
    with subprocess.Popen([*COMMAND, *arguments], stderr=subprocess.PIPE, text=True, env=environment()) as server:
        assert server.stderr is not None
        said = server.stderr.readline()
        server.send_signal(signal.SIGTERM)
        assert "read-only, on 127.0.0.1:" in said, said + server.stderr.read()
    assert server.returncode == ExitCode.TERMINATED
