"""The places that diagnoses name, and one command where many diagnoses have one cause."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from seglog.verification.codes import Severity
from seglog.verification.finding_codes import every_code
from seglog_cli.views.codes import meanings
from seglog_rescue.doctor.cases import diagnosis
from seglog_rescue.doctor.mends import ASIDE
from tests.support.command_line import run
from tests.unit.rescue.doctor.test_doctor import diagnose


@pytest.mark.parametrize("path", ["d1", "nr/d1", "/var/d1", "."])
@pytest.mark.parametrize("code", ["NO_ROOM", "PARTITIONS_MADE_ELSEWHERE", "DIRECTORY_UNREADABLE"])
def test_a_diagnosis_of_a_log_directory_itself_names_no_file_in_it(code: str, path: str) -> None:
    assert diagnosis(code, Path(path), None, Path(path), "why").file == ""
    assert diagnosis(code, Path(path), None, Path(path) / "meta.properties", "why").file == "meta.properties"


@pytest.mark.parametrize("copies", [1, 127])
def test_apple_double_files_are_moved_out_by_one_command(tmp_path: Path, copies: int) -> None:
    logs, aside = tmp_path / "it's -logs", tmp_path / "aside"
    aside.mkdir()
    for number in range(copies):
        partition = logs / f"t-{number}"
        partition.mkdir(parents=True)
        (partition / f"{0:020d}.log").touch()
        (partition / f"._{0:020d}.log").write_bytes(b"\0\5\x16\7")
    rows = [row for row in diagnose(logs, deep=False) if row.code == "STRANGE_SEGMENT_NAME"]
    assert len(rows) == copies
    (command,) = {row.command for row in rows}
    shown = run("doctor", logs).stdout
    assert shown.count("find ") == shown.count("-exec mv") and 1 <= shown.count("find ") <= 2
    subprocess.run(command.replace(str(ASIDE), f"'{aside}'"), shell=True, check=True)
    assert len(list(aside.iterdir())) == copies, "files of one name do not replace each other"
    assert [row for row in diagnose(logs, deep=False) if row.code == "STRANGE_SEGMENT_NAME"] == []
    assert len(list(logs.glob("t-*/*.log"))) == copies


def test_every_code_that_is_explained_says_what_mends_it() -> None:
    for kind in every_code():
        assert all(entry["mend"] for entry in meanings(kind.code)), kind.code
    (entry,) = meanings("NO_ROOM")
    assert entry["mend"].startswith("seglog retain --free SIZE LOGDIR")


def test_what_mends_a_code_stands_once_and_only_mild_ones_need_nothing() -> None:
    mild = (Severity.NOTE, Severity.INFO)
    for kind in every_code():
        ways = [kind.repair, kind.command, kind.mend]
        assert sum(map(bool, ways)) == 1 or (not any(ways) and kind.severity in mild), kind.code
