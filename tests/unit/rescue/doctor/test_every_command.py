"""Every command that doctor can name is run as it is pasted, and then doctor is asked again."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from seglog.verification.codes import Severity
from seglog_rescue.doctor.cases import CASES
from seglog_rescue.doctor.mends import TOOLS
from tests.support.broken.doctored_states import DOCTORED, ELSEWHERE, WITHOUT_COMMAND
from tests.support.broken.wounded_starts import State, made
from tests.support.broken.wounded_states import states
from tests.support.command_line import run
from tests.support.fixtures import fixture_copy, fixture_now_ms
from tests.support.log_files import transactional
from tests.support.named_commands import follow_rebuild, run_named
from tests.support.other_users import given_to
from tests.unit.rescue.doctor.test_doctor import diagnose

DONE = {0, 3, 4, 5}  # 3: some of the cluster's metadata is lost, and rebuild says what; 5: so are records
LOST = {"SEGMENT_MISSING", "LOG_END_MISSING", "PARTITION_MISSING", "LOG_MISSING"}


def test_each_code_has_a_state_or_no_command() -> None:
    assert {*DOCTORED, *WITHOUT_COMMAND, *ELSEWHERE} == set(CASES)


@pytest.mark.parametrize("code", DOCTORED)
def test_a_named_command_runs_as_it_is_pasted_and_mends(code: str, tmp_path: Path) -> None:
    if code == "ACCESS_DENIED" and os.geteuid() != 0:
        pytest.skip("only root can make files of other users")
    root, aside, doctored = tmp_path / "it's -odd", tmp_path / "set aside", DOCTORED[code]
    root.mkdir()
    aside.mkdir()
    directories = doctored.made(root)
    if code == "ACCESS_DENIED":
        given_to(root)
        doctored.wound(root)
    before = diagnose(*directories, settings=doctored.settings)
    rows = [row for row in before if row.code == code]
    assert rows, [(row.code, row.partition, row.file) for row in before]
    assert rows[0].command.startswith(TOOLS)
    assert set(run_named(rows[0].command, aside)) <= DONE
    after = diagnose(*directories, settings=doctored.settings)
    places = {(row.log_directory, row.partition, row.file) for row in rows[:1]}
    still = [row for row in after if row.code == code and (row.log_directory, row.partition, row.file) in places]
    assert bool(still) == doctored.stays
    new = {row.code for row in after if row.gravity is not Severity.NOTE} - {row.code for row in before}
    assert new <= LOST


@pytest.mark.parametrize("code", [code for code in DOCTORED if code.startswith("METADATA")])
def test_after_the_steps_of_rebuild_doctor_finds_the_metadata_whole(code: str, tmp_path: Path) -> None:
    directories = DOCTORED[code].made(tmp_path)
    (row,) = [row for row in diagnose(*directories) if row.code == code]
    run_named(row.command, tmp_path)
    follow_rebuild(directories, tmp_path)
    after = diagnose(*directories)
    assert not [row for row in after if row.gravity is Severity.BLOCKER or row.code.startswith("METADATA")]
    assert not [row for row in after if row.code == "STRAY_PARTITION"]


@pytest.mark.parametrize(
    ("wound", "release"),
    [
        ("metadata.version 1", "start it with Kafka 3.9"),
        ("metadata.version 31", "start it with the Kafka release that wrote it, or a later one"),
        ("group.version 9", "start it with the Kafka release that wrote it, or a later one"),
        ("an unknown feature", "start it with the Kafka release that wrote it, or a later one"),
        ("an unknown record", "start it with the Kafka release that wrote it, or a later one"),
        ("a record cut short", "seglog rebuild"),
        ("an end without a transaction", "seglog rebuild"),
    ],
)
def test_metadata_of_another_release_names_that_release_and_not_rebuild(
    wound: str, release: str, tmp_path: Path
) -> None:
    (state,) = [one for one in states() if one.wound == wound]
    (row,) = [row for row in diagnose(*made(state, tmp_path)) if row.code == "METADATA_RECORD_REFUSED"]
    assert row.command.startswith(release)


def test_what_is_named_for_an_old_log_shows_it(tmp_path: Path) -> None:
    rows = diagnose(fixture_copy("0.7", tmp_path / "it's -odd"))
    assert {row.code for row in rows} == {"KAFKA_07_LOG"}
    assert run_named(rows[0].command, tmp_path) == [0]


def test_what_is_named_for_a_hanging_transaction_prints_the_command_that_aborts_it(tmp_path: Path) -> None:
    logs = fixture_copy("4.3.0/clean", tmp_path / "it's -odd")
    log = logs / "payments-0" / f"{399:020d}.log"
    log.write_bytes(log.read_bytes() + transactional(400, 77, 0, timestamp=fixture_now_ms("4.3.0/clean")))
    (row,) = [row for row in diagnose(logs) if row.code == "TRANSACTION_HANGING"]
    done = run(*shlex.split(row.command)[1:])
    assert done.exit_code == 1 and done.stdout.startswith("kafka-transactions.sh ")


@pytest.mark.parametrize(
    "state", [one for one in states() if one.wound == "a socket" and one.base == "clean"], ids=lambda one: one.file
)
def test_a_socket_in_place_of_a_file_is_out_of_the_way_after_the_commands_named(state: State, tmp_path: Path) -> None:
    root, aside = tmp_path / "root", tmp_path / "aside"
    root.mkdir()
    aside.mkdir()
    directories = made(state, root)
    for row in diagnose(*directories):
        if row.gravity is Severity.BLOCKER and row.command.startswith(TOOLS):
            assert run_named(row.command, aside) == [0]
    left = [row for row in diagnose(*directories) if row.gravity is Severity.BLOCKER]
    assert not [row for row in left if row.command.startswith(TOOLS)]
