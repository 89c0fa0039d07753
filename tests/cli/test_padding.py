"""A killed broker's indexes are 10 MiB of zeros after what was written: commands neither read nor hold the zeros."""

from __future__ import annotations

import json
import shutil
import tracemalloc
from pathlib import Path

import pytest

from tests.support.command_line import keep_partitions, run
from tests.support.fixtures import fixture_copy
from tests.support.padding import PREALLOCATED, bytes_read, pad_all
from tests.support.serving import open_catalog

KEPT = ("customers-0", "orders-gzip-0", "payments-0")

LOOKING = ["ls", "verify", "doctor", "stats", "dump", "dump --all", "recover --dry-run", "retain --dry-run"]
NOT_SEARCHING = ["ls", "stats", "dump", "recover --dry-run", "retain --dry-run"]


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A directory whose broker was killed, with the indexes that it had written."""
    logs = fixture_copy("4.3.0/clean", tmp_path)
    keep_partitions(logs, KEPT)
    (logs / ".kafka_cleanshutdown").unlink()
    return logs


def padded(logs: Path, *, allocated: bool) -> Path:
    copy = shutil.copytree(logs, logs.with_name("padded"))
    pad_all(copy, allocated=allocated)
    return copy


def read_of_indexes(monkeypatch: pytest.MonkeyPatch, command: str, logs: Path) -> int:
    """The bytes that a command reads of indexes."""
    with bytes_read(monkeypatch) as read:
        ended = run(*command.split(), "--json", logs)
    assert ended.exit_code in (0, 1), ended.output
    return read[".index"] + read[".timeindex"]


@pytest.mark.parametrize("command", LOOKING)
def test_holes_after_the_entries_of_an_index_are_not_read(
    killed: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trimmed = read_of_indexes(monkeypatch, command, killed)
    assert read_of_indexes(monkeypatch, command, padded(killed, allocated=False)) <= 2 * trimmed + PREALLOCATED // 4


@pytest.mark.parametrize("command", NOT_SEARCHING)
def test_zeros_on_disk_after_the_entries_of_an_index_are_read_only_to_find_damage(
    killed: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trimmed = read_of_indexes(monkeypatch, command, killed)
    assert read_of_indexes(monkeypatch, command, padded(killed, allocated=True)) <= 2 * trimmed + PREALLOCATED // 4


@pytest.mark.parametrize("allocated", [False, True], ids=["holes", "zeros on disk"])
def test_reading_and_serving_neither_read_nor_hold_the_zeros(
    killed: Path, allocated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = run("read", "--json", killed / "payments-0").stdout
    logs = padded(killed, allocated=allocated)
    with bytes_read(monkeypatch) as read:
        assert run("read", "--json", logs / "payments-0").stdout == wanted
        tracemalloc.start()
        with open_catalog([logs]) as catalog:
            assert len(list(catalog)) == len(KEPT)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < PREALLOCATED // 4
    assert read[".index"] + read[".timeindex"] < PREALLOCATED // 4


@pytest.mark.parametrize("command", ["stats", "recover --dry-run", "dump"])
def test_zeros_after_the_entries_change_no_answer(killed: Path, command: str) -> None:
    wanted = run(*command.split(), "--json", killed).stdout
    for allocated in (False, True):
        logs = padded(killed, allocated=allocated)
        assert run(*command.split(), "--json", logs).stdout.replace(str(logs), str(killed)) == wanted
        shutil.rmtree(logs)


def test_verify_counts_the_zeros_and_sees_what_follows_them(killed: Path) -> None:
    """Whether they take disk space or not, and whatever the command that looks for damage."""
    for allocated in (False, True):
        logs = padded(killed, allocated=allocated)
        index = max((logs / "payments-0").glob("*.index"))
        written = max((killed / "payments-0").glob("*.index")).stat().st_size
        found = [json.loads(line) for line in run("verify", "--json", logs / "payments-0").stdout.splitlines()]
        (zeros,) = (each for each in found if each.get("file") == index.name)
        assert (zeros["code"], zeros["position"]) == ("INDEX_PREALLOCATED", written)
        assert zeros["message"].startswith(f"{(PREALLOCATED - written) // 8} preallocated")
        with index.open("r+b") as file:
            file.seek(PREALLOCATED - 8)
            file.write(b"\0\0\0\1\0\0\0\1")
        found = [json.loads(line) for line in run("verify", "--json", logs / "payments-0").stdout.splitlines()]
        assert "OFFSET_INDEX_INVALID" in {each["code"] for each in found if each.get("file") == index.name}
        shutil.rmtree(logs)
