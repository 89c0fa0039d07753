"""Open transactions: how long they are open, what ends them, and when."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import seglog
from seglog_cli.exit_codes import ExitCode
from tests.support.command_line import json_lines, run
from tests.support.fixtures import fixture_copy

IN_TIME = ("--now", "2026-11-21T05:03:50Z")
LATE = ("--now", "2026-11-21T05:14:00Z")


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A killed broker's directory: payments-0 has an open transaction with a timeout of 20 s."""
    return fixture_copy("4.3.0/killed", tmp_path)


def decided(logs: Path, state: int, epoch: int = 2) -> None:
    """Writes the state (1 Ongoing, 2 PrepareCommit, 3 PrepareAbort) and the producers' epoch as the coordinators' last
    word; 2 is that of the open transaction."""
    for path in logs.glob("__transaction_state-*"):
        with seglog.open_log(path, writable=True) as log:
            known = [(one.value, one.key, one.timestamp) for one in log.records() if one.value is not None]
            for value, key, timestamp in known:  # the state follows version, id, epoch and timeout
                last = value[:10] + epoch.to_bytes(2, "big") + value[12:16] + bytes([state]) + value[17:]
                log.append([seglog.Record(last, key, timestamp + 1)])


def test_an_open_transaction_says_how_long_it_is_open_and_when_its_coordinator_ends_it(logs: Path) -> None:
    (line, ends) = run("txn", logs / "payments-0", "open", *IN_TIME).stdout.splitlines()
    assert "open for 13s, coordinator: payments-0 Ongoing" in line
    assert ends == "  its coordinator aborts it at 2026-11-21T05:03:56.563Z, unless its producer ends it before"
    (late,) = json_lines(run("txn", "--json", logs / "payments-0", "open", *LATE))
    assert late["open_ms"] == 623_439 and late["ends_at"] == 1_795_237_436_563
    assert late["ends"].startswith("its timeout ended at 2026-11-21T05:03:56.563Z: its coordinator aborts it")


def test_abort_cmd_says_why_an_alive_transaction_needs_none(logs: Path) -> None:
    done = run("txn", logs / "payments-0", "abort-cmd", *IN_TIME)
    assert (done.exit_code, done.stdout) == (ExitCode.DONE, "")
    assert done.stderr == (
        "no command is needed at offset 398: its coordinator aborts it at 2026-11-21T05:03:56.563Z, unless its producer"
        " ends it before\n"
    )
    none = run("txn", logs / "orders-none-0", "abort-cmd")
    assert (none.exit_code, none.stdout, none.stderr) == (ExitCode.DONE, "", "no open transactions\n")


@pytest.mark.parametrize(("state", "word"), [(2, "commit"), (3, "abort")])
def test_a_decided_transaction_ends_when_the_brokers_are_up(logs: Path, state: int, word: str) -> None:
    decided(logs, state)
    (row,) = json_lines(run("txn", "--json", logs / "payments-0", "open", *LATE))
    assert row["ends"] == f"its coordinator has decided to {word} it and writes the marker when the brokers are up"
    assert row["ends_at"] is None and row["hanging"] is False


@pytest.mark.parametrize("state", [1, 2, 3])
@pytest.mark.parametrize(("epoch", "hangs"), [(0, True), (1, True), (2, False), (3, False), (4, True)])
def test_a_state_of_another_epoch_does_not_end_a_transaction(logs: Path, state: int, epoch: int, hangs: bool) -> None:
    """A snapshot may have a coordinator's state as it was some transactions before that of a partition."""
    decided(logs, state, epoch)
    done = run("txn", logs / "payments-0", "abort-cmd", *IN_TIME)
    assert (done.exit_code, done.stdout != "") == (ExitCode.FOUND if hangs else ExitCode.DONE, hangs)


def test_without_its_coordinators_state_it_says_from_when_on_it_hangs(logs: Path) -> None:
    for path in logs.glob("__transaction_state-*"):
        shutil.rmtree(path)
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (logs / name).unlink(missing_ok=True)
    (row,) = json_lines(run("txn", "--json", logs / "payments-0", "open", *IN_TIME))
    assert row["hanging"] is None
    assert (
        row["ends"] == "its coordinator's state is not here; if it is still open at 2026-11-21T05:18:36.561Z, it hangs"
    )
    done = run("txn", logs / "payments-0", "abort-cmd", "--now", "2026-11-21T05:19:00Z")
    assert done.exit_code == ExitCode.FOUND and "abort --topic payments" in done.stdout
