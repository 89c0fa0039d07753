"""What a broker's user could not open is a blocker, with the command that mends it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from seglog.clock import FixedClock
from seglog.configuration.settings import DirectorySettings, load_settings
from seglog.verification.codes import Severity
from seglog_rescue.doctor.doctor import Diagnosis, Doctor
from tests.support.fixtures import fixture_copy, fixture_now_ms
from tests.support.log_files import FS
from tests.support.other_users import ANOTHER, OTHER, acting_as_user, given_to, needs_root, open_directory

NAME = "4.3.0/clean"
ORDERS = "orders-none-0"
LOG = "00000000000000000000.log"
pytestmark = needs_root


def denials(logs: Path) -> list[Diagnosis]:
    given = load_settings(FS, environment={}, working_directory=Path("/"))
    doctor = Doctor(
        FS, [logs], FixedClock(fixture_now_ms(NAME)), lambda path: DirectorySettings(FS, path, given), deep=False
    )
    rows = [row for row in doctor if row.code == "ACCESS_DENIED"]
    assert {row.gravity for row in rows} <= {Severity.BLOCKER}
    return rows


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    directory = fixture_copy(NAME, tmp_path)
    (directory / ".lock").touch()
    for path in directory.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return given_to(directory)


def mended(row: Diagnosis) -> None:
    subprocess.run(row.command, shell=True, check=True)


def test_a_directory_of_one_user_is_opened_by_that_user(logs: Path) -> None:
    assert denials(logs) == []


def test_files_of_root_are_reported_by_directory_and_the_commands_mend_them(logs: Path) -> None:
    for name in (".lock", f"{ORDERS}/{LOG}", f"{ORDERS}/leader-epoch-checkpoint", "payments-0/partition.metadata"):
        os.chown(logs / name, 0, 0)
    (logs / "payments-0" / "partition.metadata").chmod(0o600)
    rows = denials(logs)
    assert [(row.partition, row.file, row.count) for row in rows] == [
        ("", ".lock", 1),
        (ORDERS, LOG, 1),  # the epochs are only read, and everybody may
        ("payments-0", "partition.metadata", 1),
    ]
    message = "it belongs to root (uid 0) with mode 0644; the broker, which seems to run as nobody (uid 65534)"
    assert rows[0].message.startswith(message)
    assert rows[0].command == f"chown -R nobody:nogroup {logs}/.lock && chmod -R u+rwX {logs}/.lock"
    for row in rows:
        mended(row)
    assert denials(logs) == []


def test_many_directories_of_another_owner_have_one_command(logs: Path) -> None:
    for name in (".lock", f"{ORDERS}/{LOG}", "payments-0", "clicks-0/partition.metadata"):
        os.chown(logs / name, 0, 0)
    (logs / "clicks-0" / "partition.metadata").chmod(0o600)
    rows = denials(logs)
    assert len(rows) == 4
    (command,) = {row.command for row in rows}
    assert command == f"chown -R nobody:nogroup {logs} && chmod -R u+rwX {logs}"
    mended(rows[0])
    assert denials(logs) == []


def test_a_partition_behind_a_link_keeps_a_command_of_its_own(logs: Path, tmp_path: Path) -> None:
    for name in (".lock", f"{ORDERS}/{LOG}", "payments-0", "clicks-0"):
        os.chown(logs / name, 0, 0)
    (logs / "customers-0").rename(tmp_path / "elsewhere")
    (logs / "customers-0").symlink_to(tmp_path / "elsewhere")
    os.chown(tmp_path / "elsewhere", 0, 0)
    commands = {row.partition: row.command for row in denials(logs)}
    assert len(set(commands.values())) == 2, "chown -R follows no link inside the directory"
    assert f"{logs}/customers-0" in commands["customers-0"]


def test_many_files_of_a_partition_are_one_row(logs: Path) -> None:
    given_to(logs / ORDERS, 0)
    (row,) = denials(logs)
    assert (row.partition, row.file) == (ORDERS, ORDERS)
    assert row.count > 5
    mended(row)
    assert denials(logs) == []


def test_modes_count_as_much_as_owners(logs: Path) -> None:
    (logs / ORDERS / LOG).chmod(0o400)
    (logs / "payments-0").chmod(0o500)
    assert [(row.partition, row.count) for row in denials(logs)] == [(ORDERS, 1), ("payments-0", 1)]
    (logs / ORDERS / LOG).chmod(0o600)
    (logs / "payments-0").chmod(0o700)
    assert denials(logs) == []


def test_an_index_that_no_start_opens_for_writing_stops_a_fetch_and_not_the_start(logs: Path) -> None:
    def seen() -> list[tuple[str, Severity, int]]:
        given = load_settings(FS, environment={}, working_directory=Path("/"))
        doctor = Doctor(FS, [logs], FixedClock(0), lambda path: DirectorySettings(FS, path, given), deep=False)
        return [(row.partition, row.gravity, row.count) for row in doctor if row.code == "ACCESS_DENIED"]

    bases = sorted(path.stem for path in (logs / ORDERS).glob("*.log"))
    for path in ((logs / ORDERS / f"{bases[0]}.index"), (logs / ORDERS / f"{bases[0]}.timeindex")):
        path.chmod(0o444)
    assert seen() == [(ORDERS, Severity.DANGER, 2)]
    (logs / ORDERS / f"{bases[1]}.index").chmod(0o400)
    (logs / ".kafka_cleanshutdown").unlink()
    (logs / "recovery-point-offset-checkpoint").write_text(f"0\n1\norders-none 0 {int(bases[1])}\n")
    assert seen() == [(ORDERS, Severity.BLOCKER, 3)], "the start recovers the second segment"
    (logs / ORDERS / f"{bases[1]}.index").chmod(0o644)
    assert seen() == [(ORDERS, Severity.DANGER, 2)]
    (logs / ORDERS / f"{bases[0]}.timeindex").chmod(0o200)
    assert seen() == [(ORDERS, Severity.BLOCKER, 2)], "what a start cannot read it refuses"


def test_the_group_of_the_log_directory_counts_as_the_brokers(logs: Path) -> None:
    os.chown(logs / ORDERS / LOG, 0, OTHER)
    assert [row.file for row in denials(logs)] == [LOG]
    (logs / ORDERS / LOG).chmod(0o660)
    assert denials(logs) == []


def test_where_root_owns_the_log_directory_most_partitions_say_who_the_broker_is(logs: Path) -> None:
    os.chown(logs, 0, OTHER)
    logs.chmod(0o775)
    given_to(logs / ORDERS, ANOTHER)
    rows = denials(logs)
    assert [row.partition for row in rows] == [ORDERS]
    assert "nobody (uid 65534)" in rows[0].message


def test_a_directory_of_root_alone_is_the_brokers_of_root(logs: Path) -> None:
    given_to(logs, 0)
    (logs / ORDERS / LOG).chmod(0)
    assert denials(logs) == []


def test_temporary_files_that_a_broker_would_write_over_count_and_seglogs_own_do_not(logs: Path) -> None:
    for name in (".seglog-run", ".seglog-append", "notes.txt"):
        (logs / name).write_bytes(b"")
        (logs / name).chmod(0o600)
    (logs / "replication-offset-checkpoint.tmp").write_bytes(b"")
    assert [row.file for row in denials(logs)] == ["replication-offset-checkpoint.tmp"]


@needs_root
@pytest.mark.parametrize("name", ["notes.txt", f"{LOG}.deleted", ".notes.swp"])
def test_every_file_in_a_partition_must_be_readable_whatever_its_name(logs: Path, name: str) -> None:
    path = logs / ORDERS / name
    path.write_bytes(b"")
    assert denials(logs) == []
    path.chmod(0o600)
    assert [row.file for row in denials(logs)] == [name]


def test_where_access_lists_say_who_may_the_mode_is_not_believed(logs: Path) -> None:
    path = logs / ORDERS / LOG
    os.chown(path, 0, 0)
    nobody, whole = 0xFFFFFFFF, []
    for tag, bits, who in ((1, 6, nobody), (2, 6, OTHER), (4, 4, nobody), (16, 6, nobody), (32, 0, nobody)):
        whole.append(tag.to_bytes(2, "little") + bits.to_bytes(2, "little") + who.to_bytes(4, "little"))
    value = (2).to_bytes(4, "little") + b"".join(whole)  # owner, user 65534, group, mask, others
    try:
        os.setxattr(path, "system.posix_acl_access", value)
    except OSError:
        pytest.skip("the file system of the temporary directory has no access lists")
    assert denials(logs) == []


@needs_root
@pytest.mark.parametrize("hidden", ["clicks-0", "__consumer_offsets-0", "__transaction_state-0", "orders-none-0"])
@pytest.mark.parametrize("own", [True, False], ids=["the broker's user looks", "another user looks"])
def test_a_partition_that_this_user_cannot_read_costs_only_its_own_diagnoses(hidden: str, own: bool) -> None:
    with open_directory() as directory:
        logs = given_to(fixture_copy("4.3.0/clean", directory))
        (logs / hidden).chmod(0 if own else 0o700)
        with acting_as_user(OTHER if own else ANOTHER):
            doctor = Doctor(FS, [logs], FixedClock(fixture_now_ms("4.3.0/clean")), settings_of)
            rows = [row for row in doctor if row.partition]
    expected = "ACCESS_DENIED" if own else "NOT_EXAMINED"
    assert [(row.code, row.partition) for row in rows] == [(expected, hidden)]
    assert (doctor.summary.partitions, doctor.summary.not_examined) == (16, 0 if own else 1)


def settings_of(path: Path) -> DirectorySettings:
    given = load_settings(FS, overrides=[], environment={}, config=None, working_directory=path)
    return DirectorySettings(FS, path, given)
