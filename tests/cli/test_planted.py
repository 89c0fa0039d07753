"""The owner of a log directory plants links and special files for root: no command follows them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.support.command_line import clean_logs, run
from tests.support.other_users import OTHER, given_to, needs_root, planted_link

ORDERS, CUSTOMERS = "orders-none-0", "customers-0"
FIRST = "00000000000000000000"


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """Makes a file of root's."""
    path = tmp_path / "precious"
    path.write_bytes(b"precious")
    path.chmod(0o600)
    return path


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Makes another user's log directory that was not closed properly, with a damaged partition."""
    logs = clean_logs(tmp_path / "theirs")
    (logs / ".kafka_cleanshutdown").unlink(missing_ok=True)
    damaged = logs / "payments-0" / f"{FIRST}.log"
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    return given_to(logs)


def unharmed(path: Path) -> bool:
    status = path.lstat()
    return path.read_bytes() == b"precious" and (status.st_uid, stat.S_IMODE(status.st_mode)) == (0, 0o600)


PLANTED = {
    "append": (["append", ORDERS], [".lock"]),
    "append, new segment": (
        ["append", ORDERS, "--set", "segment.bytes=200"],
        [f"{ORDERS}/{FIRST[:-3]}{end}.{kind}" for end in (790, 791) for kind in ("log", "index", "timeindex")],
    ),
    "truncate": (
        ["truncate", ORDERS, "--to-offset", "100"],
        [f"{ORDERS}/leader-epoch-checkpoint.tmp", "recovery-point-offset-checkpoint.tmp", ".seglog-run.tmp"],
    ),
    "recover": (
        ["recover", "."],
        [
            "recovery-point-offset-checkpoint.tmp",
            ".kafka_cleanshutdown.tmp",
            f"{ORDERS}/leader-epoch-checkpoint.tmp",
            f"{ORDERS}/{FIRST[:-3]}790.snapshot.tmp",
        ],
    ),
    "repair": (["verify", "--repair", "."], [".seglog-run.tmp", "payments-0/leader-epoch-checkpoint.tmp"]),
    "clean": (
        ["clean", "--policy", "compact", "--override-policy", "--roll", CUSTOMERS],
        [f"{CUSTOMERS}/{FIRST}.{kind}.cleaned" for kind in ("log", "index", "timeindex", "txnindex")],
    ),
    "retain": (
        ["retain", "--policy", "delete", "--override-policy", "--retention-ms", "1", ORDERS],
        ["log-start-offset-checkpoint.tmp", f"{ORDERS}/{FIRST}.log.deleted"],
    ),
    "reindex": (["reindex", ORDERS], [f"{ORDERS}/{FIRST}.index", f"{ORDERS}/{FIRST}.timeindex"]),
    "convert": (["convert", ORDERS, "-o", "./new-0"], ["new-0", ".lock"]),
    "salvage": (["salvage", "payments-0", "-o", "./new-0"], ["new-0"]),
    "export": (["export", ORDERS, "-o", "out.csv"], ["out.csv.part", "out.csv.tmp"]),
    "export over": (["export", ORDERS, "-o", "out.csv", "--replace"], ["out.csv"]),
}


@needs_root
@pytest.mark.parametrize("what", ["link", "dangling link", "second name"])
@pytest.mark.parametrize("case", PLANTED)
def test_no_file_of_root_is_opened_made_or_given_away_through_what_is_planted(
    logs: Path, precious: Path, case: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    command, names = PLANTED[case]
    target = precious.with_name("not there") if what == "dangling link" else precious
    for name in names:
        (logs / name).unlink(missing_ok=True)
        if what == "second name":
            os.link(precious, logs / name)
        else:
            planted_link(logs / name, target)
    monkeypatch.chdir(logs)
    done = run(*command, input_text="v\n" * 20)
    assert done.exit_code in (0, 1, 4, 12, 74), done.stderr
    assert unharmed(precious)
    assert target == precious or not target.exists()
    kept = [path for path in logs.rglob("*") if path.is_symlink()]
    assert {str(path.relative_to(logs)) for path in kept} <= set(names)
    assert [path for path in kept if path.lstat().st_uid != OTHER] == []


def identity(path: Path) -> tuple[int, int, int]:
    status = path.lstat()
    return status.st_mode, status.st_ino, status.st_rdev


@pytest.mark.parametrize("replace", [[], ["--replace"]])
def test_export_replaces_no_device_pipe_or_directory(logs_of_ours: Path, tmp_path: Path, replace: list[str]) -> None:
    pipe, directory = tmp_path / "pipe.csv", tmp_path / "directory.csv"
    os.mkfifo(pipe)
    directory.mkdir()
    to_pipe = tmp_path / "link.csv"
    to_pipe.symlink_to(pipe)
    for path in (pipe, directory, to_pipe):
        before = identity(path)
        done = run("export", logs_of_ours / ORDERS, "-o", path, *replace)
        assert done.exit_code == 12, (path, done.stderr)
        assert identity(path) == before
    null = identity(Path(os.devnull))
    assert run("export", logs_of_ours / ORDERS, "--format", "csv", "-o", os.devnull, *replace).exit_code == 12
    assert identity(Path(os.devnull)) == null


@pytest.mark.parametrize("there", [True, False])
def test_export_follows_a_link_of_ours(logs_of_ours: Path, tmp_path: Path, there: bool) -> None:
    real, link = tmp_path / "real.csv", tmp_path / "link.csv"
    if there:
        real.write_bytes(b"old")
    link.symlink_to("real.csv")
    assert run("export", logs_of_ours / ORDERS, "-o", link, "--replace").exit_code == 0
    assert link.is_symlink()
    assert real.read_bytes().startswith(b"topic,partition,offset")


@pytest.fixture
def logs_of_ours(tmp_path: Path) -> Path:
    return clean_logs(tmp_path / "ours")
