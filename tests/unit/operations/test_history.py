"""History: kept outside the log directory, bounded, and never in the way."""

from __future__ import annotations

import json
from pathlib import Path

from seglog.cleaner.cleaner import clean_log
from seglog.cleaner.output import CleaningResult
from seglog.cleaner.round import CleanerOptions
from seglog.model import TopicPartition
from seglog.operations.workspace import MOST_ROUNDS, CleaningHistory
from seglog.storage.state import state_directory
from tests.support.compacted_directories import FS, broker_directory, opened
from tests.support.manual_clock import ManualClock
from tests.support.open_logs import START_MS


def result_in(path: Path) -> CleaningResult:
    with opened(broker_directory(path, {"t-0": (2, 5)})) as directory:
        return clean_log(directory.log(TopicPartition("t", 0)), CleanerOptions(), ManualClock(START_MS))


def test_rounds_come_back_in_order_with_their_time(tmp_path: Path) -> None:
    history = CleaningHistory(FS, tmp_path / "state", tmp_path / "logs")
    result = result_in(tmp_path / "logs")
    history.add([result], START_MS)
    history.add([result, result], START_MS + 1)
    again = CleaningHistory(FS, tmp_path / "state", tmp_path / "logs")
    assert [round_["time"] for round_ in again.rounds()] == [START_MS, START_MS + 1, START_MS + 1]
    assert [(round_["partition"], round_["records_written"]) for round_ in again.rounds()] == [("t-0", 5)] * 3
    assert not list((tmp_path / "logs").rglob("*.jsonl"))


def test_log_directories_have_histories_of_their_own(tmp_path: Path) -> None:
    history = CleaningHistory(FS, tmp_path / "state", tmp_path / "logs")
    history.add([result_in(tmp_path / "logs")], START_MS)
    assert CleaningHistory(FS, tmp_path / "state", tmp_path / "other").rounds() == []


def test_only_the_newest_rounds_are_kept(tmp_path: Path) -> None:
    history = CleaningHistory(FS, tmp_path, tmp_path / "logs")
    result = result_in(tmp_path / "logs")
    history.add([result] * (MOST_ROUNDS + 3), START_MS)
    history.add([result], START_MS + 9)
    kept = history.rounds()
    assert (len(kept), kept[-1]["time"]) == (MOST_ROUNDS, START_MS + 9)


def test_lines_that_cannot_be_read_are_passed_over(tmp_path: Path) -> None:
    history = CleaningHistory(FS, tmp_path, tmp_path / "logs")
    history.add([result_in(tmp_path / "logs")], START_MS)
    good = history.path.read_bytes()
    history.path.write_bytes(b"\xff\xfe\n[1]\n{}\n" + good + b'{"partition": 5}\n' + json.dumps([]).encode())
    with history.path.open("ab") as file:
        file.write(b'\n{"partition": "t-0"}\n' + good.replace(b'"time":', b'"time":"x","was":'))
    assert len(history.rounds()) == 1


def test_the_state_directory_follows_the_environment() -> None:
    assert state_directory({"XDG_STATE_HOME": "/s", "HOME": "/h"}) == Path("/s/seglog")
    assert state_directory({"HOME": "/h"}) == Path("/h/.local/state/seglog")
