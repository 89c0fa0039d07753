"""One grammar: the same option for the same thing everywhere, natural values, no option without effect."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from seglog.arguments import MOST_THREADS
from seglog.look.kafka_dump_log.decoders import CLASSES
from seglog.model import Compression
from seglog_cli.catalogue import COMMANDS, ELSEWHERE
from seglog_cli.completing import DECODER_CLASSES
from seglog_cli.manual import descriptions
from seglog_cli.options import CODECS, MOST_JOBS, require_servers
from tests.support.command_line import ROOT, clean_logs, ended, environment, keep_partitions
from tests.support.metadata_records import metadata_record, topic_id, write_metadata_log

KEPT = ("payments-0", "customers-0", "clicks-0", "orders-none-0")


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = clean_logs(tmp_path_factory.mktemp("grammar"))
    keep_partitions(made, KEPT)
    return made


def offsets(*arguments: str | Path) -> list[int]:
    done = ended(*arguments)
    assert done.code == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return [row["offset"] for row in rows if row["type"] == "record"]


CHOICES = (
    ("--from-offset", "300", "--to-offset", "340"),
    ("--from-offset", "260", "--limit", "7"),
    ("--since", "2026-11-21T05:03:27.6Z", "--until", "2026-11-21T05:03:27.8Z"),
    ("--isolation", "read_committed"),
    ("--isolation", "read_committed", "--from-offset", "100", "--limit", "5"),
    ("--producer-id", "2"),
    ("--since", "now", "--now", "2026-11-21T05:03:27.7Z", "--limit", "3"),
    ("--since", "-1h", "--now", "2026-11-21T06:03:27.7Z", "--limit", "3"),
)


@pytest.mark.parametrize("choice", CHOICES, ids=" ".join)
def test_read_dump_and_export_take_the_same_options_for_the_same_records(logs: Path, choice: tuple[str, ...]) -> None:
    partition = logs / "payments-0"
    read = offsets("read", partition, "--json", *choice)
    control = {
        offset
        for line in ended("dump", partition, "--json").stdout.splitlines()
        if (row := json.loads(line))["type"] == "batch" and row["control"]
        for offset in range(row["base_offset"], row["last_offset"] + 1)
    }
    assert read
    assert offsets("export", partition, "-o", "-", "--format", "jsonl", *choice) == read
    unlimited = [word for word in choice if "--limit" not in choice or word not in choice[choice.index("--limit") :]]
    dumped = [each for each in offsets("dump", partition, "--records", "--json", *unlimited) if each not in control]
    assert dumped[: len(read)] == read


def test_a_key_is_asked_for_alike(logs: Path) -> None:
    partition, choice = logs / "customers-0", ("--key", "customer-124")
    read = offsets("read", partition, "--json", *choice)
    assert len(read) == 1
    assert offsets("dump", partition, "--json", "--records", *choice) == read
    assert offsets("export", partition, "-o", "-", "--format", "jsonl", *choice) == read


def test_committed_records_are_fewer_and_those_of_a_named_file_the_same(logs: Path) -> None:
    partition = logs / "payments-0"
    committed = offsets("read", partition, "--json", "--isolation", "read_committed")
    assert set(committed) < set(offsets("read", partition, "--json"))
    for file in sorted(partition.glob("*.log")):
        here = offsets("export", file, "-o", "-", "--format", "jsonl")
        chosen = offsets("export", file, "-o", "-", "--format", "jsonl", "--isolation", "read_committed")
        assert chosen == [each for each in here if each in set(committed)]


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("read", ("--offset", "30")),
        ("read", ("--timestamp", "1795237407700")),
        ("replay", ("--rate", "1")),
        ("spark export", ("--committed",)),
    ],
)
def test_an_option_has_one_name(logs: Path, command: str, option: tuple[str, ...]) -> None:
    done = ended(*command.split(), logs / "payments-0", *option)
    assert done.code == 2
    assert f"No such option: {option[0]}" in done.stderr.decode()


def test_a_diff_compares_what_was_asked_for(logs: Path, tmp_path: Path) -> None:
    other = clean_logs(tmp_path)
    *_, log = (segment for segment in sorted((other / "customers-0").glob("*.log")) if segment.stat().st_size)
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    both = (logs / "customers-0", other / "customers-0")
    found = ended("diff", "--json", *both)
    assert found.code == 1
    first = json.loads(found.stdout.splitlines()[0])
    outside = ("--to-offset", str(first["first_offset"]))
    assert ended("diff", *both, *outside).code == 0
    assert ended("diff", *both, "--from-offset", str(first["last_offset"] + 1)).code == 0
    assert ended("diff", "--level", "view", *both, *outside).code == 0
    assert ended("diff", "--level", "view", *both).code == 1
    assert ended("diff", "--level", "view", *both, "--key", "nobody").code == 0


WITHOUT_EFFECT = (
    (("verify", "--sample", "500%"), "is not above 0% and at most 100%"),
    (("verify", "--sample", "0"), "is not above 0% and at most 100%"),
    (("verify", "--config", "nope.yaml"), "nope.yaml: the configuration file does not exist"),
    (("ls", "--config", "nope.yaml"), "nope.yaml: the configuration file does not exist"),
    (("ls", "--set", "no.such.key=1"), "no.such.key"),
    (("read", "--since", "1795219410"), "write 1795219410000"),
    (("read", "--from-offset", "9", "--to-offset", "8"), "--from-offset and --to-offset: the second is before"),
    (("dump", "--since", "2026-11-21", "--until", "2026-11-20"), "--since and --until: the second is before"),
    (("read", "--max-bytes", "-1"), "-1 is less than 0"),
    (("stats", "--sizing", "--write-rate", "0"), "0 is less than 1"),
    (("dump-log", "--json", "--files"), "seglog dump --json"),
    (("dump", "--untrusted"), "--records"),
    (("stats", "--write-rate", "1M"), "--sizing"),
    (("stats", "--plot", "--json"), "--plot"),
    (("export", "-o", "-", "--format", "csv", "--replace"), "--replace is for a FILE"),
    (("export", "-o", "-"), "give --format jsonl, csv, parquet"),
    (("export", "-o", "x.parquet", "--bytes", "base64"), "text formats"),
    (("export", "-o", "x.jsonl", "--csv-safe"), "--csv-safe is for CSV"),
    (("recover", "--no-keep", "--quarantine", "q"), "contradict"),
    (("truncate", "--to-offset", "1", "--no-keep", "--quarantine", "q"), "contradict"),
    (("groups", "--csv", "--json"), "give one form"),
    (("groups", "--csv", "--format", "table"), "give one form"),
    (("quarantine", "ls", "--quarantine", "q"), "give one of them"),
    (("quarantine", "restore"), "(see seglog quarantine restore --help)"),
    (("dump", "--bytes", "base64"), "--bytes is for records"),
    (("append", "--flush-ms", "-1"), "-1 is less than 0"),
    (("diff", "--level", "view", "--memory", "1"), "1 is less than 1048576"),
    (("replay", "--to", "a:1", "--state", "s", "--throttle", "0"), "0 is less than 1"),
    (("retain", "--delay", "-1"), "-1 is less than 0"),
    (("salvage", "-o", "x-0", "--segment-bytes", "0"), "0 is less than 1"),
    (("verify", "--max-duration", "-1"), "-1 is less than 0"),
    (("ls", "--color", "red"), "'--color': 'red' is not one of"),
    (("clean", "--set", "log.cleaner.io.max.bytes.per.second=0"), "0 is not more than 0"),
)


@pytest.mark.parametrize(
    ("arguments", "said"), WITHOUT_EFFECT, ids=lambda one: " ".join(one) if isinstance(one, tuple) else None
)
def test_what_would_have_no_effect_is_wrong_usage(logs: Path, arguments: tuple[str, ...], said: str) -> None:
    done = ended(*arguments, logs / "customers-0")
    assert done.code == 2, done.stdout
    assert said in done.stderr.decode()
    assert done.stdout == b""


@pytest.mark.parametrize("option", ["--to-offset", "--since", "--key", "--isolation"])
def test_files_are_not_compared_by_record(logs: Path, option: str) -> None:
    value = "read_committed" if option == "--isolation" else "1"
    done = ended("diff", "--level", "bytes", option, value, logs / "clicks-0", logs / "clicks-0")
    assert done.code == 2
    assert f"{option}: the level bytes compares whole files" in done.stderr.decode()
    assert ended("txn", logs / "payments-0", "list", "--bootstrap-server", "a:1").code == 2
    assert ended("diff", "--memory", "1G", logs / "clicks-0", logs / "clicks-0").code == 2


def test_a_common_option_that_changed_nothing_is_mentioned(logs: Path) -> None:
    given = ("--jobs", "2", "--now", "-1h", "--set", "segment.bytes=10M", "--progress", "plain")
    done = ended("ls", logs / "clicks-0", *given)
    assert done.code == 0
    said = done.stderr.decode().splitlines()
    assert [line.split()[1] for line in said] == ["--jobs", "--set", "--now", "--progress"]
    assert all("had no effect" in line for line in said)
    assert ended("verify", logs / "clicks-0", "--jobs", "2").stderr == b""
    assert ended("ls", logs / "clicks-0", "-q", *given).stderr == b""


# What the same letters mean, where it is not the same: each has as many texts as meanings.
_MEANINGS = {
    "--metadata PATH": 2,
    "--replace": 2,
    "-l, --long": 2,
    "--kafka-version VERSION": 2,
    "--key KEY": 3,
    "--csv": 2,
    "--group NAME": 2,
    "--memory SIZE": 3,
    "--on-corrupt fail|skip": 2,
    "-o, --output FILE": 2,
    "--codec none|gzip|snappy|lz4|zstd": 2,
    "--to-offset N": 2,
    "--max-bytes SIZE": 2,
    "--throttle SIZE": 3,
    "--every DURATION": 2,
    "--limit N": 3,
    "-a, --all": 3,
    "--quick": 2,
    "-o, --output DIR": 9,
    "--snapshot ID": 2,
    "--at TIME": 2,
    "-o, --output FOLDER": 2,
    "--once": 2,
    "--verify": 2,
}


def test_the_same_option_has_the_same_help_text_everywhere() -> None:
    texts: dict[str, set[str]] = {}
    for command in descriptions():
        for option in command.options:
            texts.setdefault(option.names, set()).add(option.text)
    assert len(texts) > 100
    assert {names: len(found) for names, found in texts.items() if len(found) > 1} == _MEANINGS


def test_the_codecs_that_an_option_takes_are_those_of_the_engine() -> None:
    assert CODECS.split("|") == [codec.label for codec in Compression]


def test_every_help_text_is_whole_sentences() -> None:
    terms = [term for one in descriptions() for term in (*one.arguments, *one.options, *sum(one.shared.values(), ()))]
    assert len(terms) > 200
    for term in terms:
        text = term.text.split(" [default: ")[0]
        assert text[:1].isupper() or text.startswith("__"), (term.names, text)
        assert text.endswith("."), (term.names, text)


def test_help_is_a_command_too() -> None:
    assert ended("help").stdout == ended("--help").stdout
    assert ended("help", "clean").stdout == ended("clean", "--help").stdout
    assert ended("help", "config", "show").stdout == ended("config", "show", "--help").stdout


@pytest.mark.parametrize("group", ["backup", "config", "quarantine"])
def test_a_group_with_a_default_command_shows_its_help(group: str) -> None:
    done = ended(group, "--help")
    assert done.code == 0 and f"Usage: seglog {group} COMMAND" in done.stdout.decode(), done.stderr


def test_the_library_runs_as_the_command_line() -> None:
    command = [sys.executable, "-m", "seglog", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), cwd=ROOT, check=True)
    assert done.stdout.startswith("seglog 0.")


JSON_COMMANDS = (
    ("ls",),
    ("read",),
    ("dump", "--records"),
    ("verify",),
    ("verify", "--repair", "--dry-run"),
    ("truncate", "--to-offset", "5", "--dry-run"),
    ("recover", "--dry-run"),
    ("reindex", "--dry-run"),
    ("retain", "--dry-run"),
    ("clean", "--dry-run", "--policy", "compact"),
    ("stats", "--sizing"),
    ("explain", "--advise"),
    ("txn",),
    ("txn", "stat"),
    ("config", "show"),
    ("quarantine", "ls"),
)


@pytest.mark.parametrize("command", JSON_COMMANDS, ids=" ".join)
def test_with_json_every_line_of_data_is_an_object(logs: Path, command: tuple[str, ...]) -> None:
    number = 2 if command[0] in ("config", "quarantine") else 1
    words = (*command[:number], logs / "customers-0", *command[number:])
    if command == ("txn", "stat"):
        words = ("txn", logs / "customers-0", "stat")
    done = ended(*words, "--json")
    assert done.code in (0, 1), done.stderr
    assert all(next(iter(json.loads(line))) == "type" for line in done.stdout.splitlines())


IMPOSSIBLE = (
    (("verify", "--jobs", "999999999999999999999999"), "Invalid value for '--jobs' / '-j'"),
    (("clean", "--jobs", "1025"), "Input should be less than or equal to 1024"),
    (("diff", "--limit", str(2**63)), "Invalid value for '--limit'"),
    (("read", "--from-offset", str(2**64)), "Invalid value for '--from-offset'"),
    (("ls", "--config", ""), "--config: '' is an empty path"),
    (("explain", "--metadata-dir", ""), "--metadata-dir: '' is an empty path"),
    (("ls", "--local", ""), "--local: '' is an empty path"),
    (("dump", "--isolation", ""), "--isolation: '' is not one of"),
    (("export", "-o", "-", "--format", ""), "--format: '' is not one of"),
    (("clean", "--strategy", ""), "strategy: '' is not offset, timestamp or header:NAME"),
    (("replay", "--state", "s", "--to", ""), "--to: '' is not HOST:PORT"),
    (("replay", "--state", "s", "--to", "a:b"), "--to: 'a:b' is not HOST:PORT"),
    (("replay", "--state", "s", "--to", "a:1,,b:2"), "--to: 'a:1,,b:2' is not HOST:PORT"),
    (("replay", "--state", "s", "--to", "\udcff"), "is not HOST:PORT"),
)


@pytest.mark.parametrize(("arguments", "said"), IMPOSSIBLE, ids=lambda one: None if isinstance(one, tuple) else one)
def test_an_impossible_value_is_wrong_usage_that_names_its_option(
    logs: Path, arguments: tuple[str, ...], said: str
) -> None:
    paths = (logs / "customers-0",) * (2 if arguments[0] == "diff" else 1)
    done = ended(*arguments, *paths)
    assert done.code == 2, done.stderr
    assert said in done.stderr.decode()
    assert done.stdout == b""


def test_the_library_takes_as_many_threads_as_the_command_line() -> None:
    assert MOST_JOBS == MOST_THREADS


def test_a_shell_offers_the_decoder_classes_that_dump_log_knows() -> None:
    assert tuple(CLASSES) == DECODER_CLASSES


def test_any_offset_is_a_limit(logs: Path) -> None:
    most = str(2**63 - 1)
    for command in ("read", "dump"):
        assert ended(command, logs / "clicks-0", "--limit", most, "--to-offset", "1").code == 0
    assert ended("diff", logs / "clicks-0", logs / "clicks-0", "--limit", most).code == 0


@pytest.mark.parametrize(
    "servers", ["kafka:9092", "a:1,b:2", "localhost", "[::1]:9092", "[::1]", "SASL_SSL://kafka:9093"]
)
def test_servers_are_taken_as_kafka_clients_take_them(servers: str) -> None:
    require_servers("--to", servers)


def test_a_deleted_working_directory_matters_only_for_relative_paths(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert ended("verify", logs / "clicks-0").code == 0
    assert ended("explain", logs / "clicks-0").code == 0
    relative = ended("read", "clicks-0")
    assert (relative.code, relative.stderr) in (
        (74, b"error: the working directory was deleted: change to another one\n"),
        (10, b"error: clicks-0: no such file or directory\n"),
    )


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (("ls", "--config", "a", "--config", "b"), "--config"),
        (("ls", "-j", "2", "--jobs=3"), "--jobs"),
        (("read", "--limit", "1", "--limit", "1"), "--limit"),
        (("clean", "--metadata-dir", "a", "--metadata-dir", "b"), "--metadata-dir"),
        (("config", "show", "--metadata-dir", "a", "--metadata-dir", "b"), "--metadata-dir"),
        (("retain", "--free", "1GB", "--free=2GB"), "--free"),
    ],
)
def test_an_option_with_one_value_is_given_once(logs: Path, arguments: tuple[str, ...], option: str) -> None:
    done = ended(*arguments, logs / "payments-0")
    assert (done.code, done.stderr) == (2, f"error: {option} was given more than once, and takes one value\n".encode())


def test_what_may_be_repeated_is_repeated(logs: Path) -> None:
    keys = ("--set", "retention.ms=1", "--set", "retention.bytes=1")
    done = ended("ls", "--json", "--json", "-v", "-v", *keys, logs / "payments-0")
    assert done.code == 0, done.stderr
    done = ended("ls", *keys, "--set", "retention.ms=2", logs / "payments-0")
    assert done.code == 2 and b"--set gives retention.ms more than once" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("compact", "x"), b"No such command 'compact': that is seglog clean (see"),
        (("fsck", "x"), b"that is seglog verify, or doctor (see"),
        (("check",), b"that is seglog verify, or doctor (see"),
        (("serve", "--port", "1", "x"), b"No such option: --port (here it is --listen HOST:PORT)"),
        (("verfy",), b"Did you mean 'verify'?"),
    ],
)
def test_the_names_of_other_tools_lead_to_the_command(arguments: tuple[str, ...], said: bytes) -> None:
    done = ended(*arguments)
    assert done.code == 2 and said in done.stderr


def test_every_name_of_other_tools_leads_to_a_command_and_hides_none() -> None:
    named = {command for text in ELSEWHERE.values() for command in text.replace(" or", "").split(", ")}
    assert named <= set(COMMANDS) and not set(ELSEWHERE) & set(COMMANDS)


SERVICE = ("SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_KAFKA", "PORT", "PORT_9092_TCP", "PORT_9092_TCP_ADDR")


def test_a_variable_that_is_no_setting_is_named_once_and_those_of_kubernetes_never(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in SERVICE:
        monkeypatch.setenv(f"SEGLOG_{name}", "tcp://10.0.0.1:9092")
        monkeypatch.setenv(f"SEGLOG_SERVE_{name}", "tcp://10.0.0.1:9092")
    monkeypatch.setenv("SEGLOG_HOME", "/opt/seglog")
    monkeypatch.setenv("SEGLOG_RETENTION_M", "1")
    for command in (("doctor",), ("retain", "--free", "1MB", "--dry-run"), ("config", "show")):
        warnings = [line for line in ended(*command, logs).stderr.decode().splitlines() if "SEGLOG_" in line]
        assert warnings == [
            "warning: SEGLOG_HOME is set, but no setting has this name; it is ignored",
            "warning: SEGLOG_RETENTION_M is set, but no setting has this name (did you mean SEGLOG_RETENTION_MS?);"
            " it is ignored",
        ], command


def test_copies_that_are_named_together_take_their_own_configuration(tmp_path: Path) -> None:
    """Beside them lies the original, whose metadata has changed since."""
    original, copy, other = tmp_path / "A0", tmp_path / "a", tmp_path / "b"
    for directory, number in ((original, 1), (copy, 1), (other, 2)):
        directory.mkdir()
        (directory / "meta.properties").write_text(f"version=1\ncluster.id=c\nnode.id=1\ndirectory.id={number}\n")
    assert ended("append", "--create", other / "t-0", input_bytes=b"x\n").code == 0
    for directory, lag in ((original, "1"), (copy, "2")):
        records = [
            metadata_record("TOPIC_RECORD", name="t", topicId=topic_id(1)),
            metadata_record("CONFIG_RECORD", resourceType=2, resourceName="t", name="min.compaction.lag.ms", value=lag),
        ]
        write_metadata_log(directory, records)
    for command in (("report", "--json"), ("doctor", "--json"), ("retain", "--dry-run")):
        done = ended(*command, copy, other)
        assert b"A0" not in done.stdout + done.stderr, command
    shown = ended("report", "--json", copy, other).stdout
    assert b'"value":"2"' in shown and b'"value":"1"' not in shown
    assert b"2 directories may have the cluster's metadata" in ended("config", "show", other / "t-0").stderr
