"""What the library plans and does to logs is what the command line plans and does."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog.format.filenames import QUARANTINE
from seglog.repairs.undo.quarantine import PENDING_FILE
from tests.support.command_line import json_lines, run
from tests.support.compacted_directories import broker_directory
from tests.support.log_files import files_of


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """The same log directory twice: for the library and for the command line."""
    broker_directory(tmp_path / "one" / "logs", {"t-0": (4, 5), "u-0": (2, 5)})
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    return tmp_path / "one" / "logs", tmp_path / "two" / "logs"


def shown(*arguments: str | Path) -> list[dict[str, Any]]:
    return json_lines(run(*arguments, "--json"))


def damage(path: Path) -> None:
    with (path / "00000000000000000000.log").open("r+b") as file:
        file.seek(100)
        file.write(b"XXXX")


FIGURES = ("partition", "first_dirty_offset", "end_offset", "bytes_written", "reasons", "segments_after")


def test_a_round_is_planned_and_done_as_by_the_command(pair: tuple[Path, Path]) -> None:
    mine, other = pair
    before = files_of(mine)
    (row,) = shown("clean", "--policy", "compact", "--roll", "--dry-run", other / "t-0")
    (plan,) = seglog.plan_clean(mine / "t-0", policy="compact", roll=True)
    assert isinstance(plan, seglog.Cleaned)
    assert {name: plan.result.to_json()[name] for name in FIGURES} == {name: row[name] for name in FIGURES}
    assert files_of(mine) == before
    (done,) = seglog.clean(mine / "t-0", policy="compact", roll=True)
    shown("clean", "--policy", "compact", "--roll", other / "t-0")
    assert isinstance(done, seglog.Cleaned)
    assert done.result.segments_after == plan.result.segments_after
    logs = {name: data for name, data in files_of(mine).items() if name.endswith(".log")}
    assert logs == {name: data for name, data in files_of(other).items() if name.endswith(".log")} != before
    (measured,) = seglog.stats(mine / "t-0")
    assert [round_["end_offset"] for round_ in measured.rounds] == [done.result.end_offset]


def test_plans_and_results_travel_between_processes(pair: tuple[Path, Path]) -> None:
    path = pair[0] / "t-0"
    for (found,) in (seglog.plan_clean(path, policy="compact"), seglog.clean(path, policy="compact")):
        again = pickle.loads(pickle.dumps(found))
        assert isinstance(again, seglog.Cleaned) and isinstance(found, seglog.Cleaned)
        assert (repr(again), again.result.to_json()) == (repr(found), found.result.to_json())
        again.result.stats.add(found.result.stats)
        with again.result.stats.phase("more"):
            assert again.result.stats.records_read == 2 * found.result.stats.records_read


def test_a_policy_that_nobody_knows_cleans_nothing(pair: tuple[Path, Path]) -> None:
    before = files_of(pair[0])
    with pytest.raises(seglog.RefusedError, match="cleanup policy of t is not known"):
        seglog.clean(pair[0] / "t-0")
    assert {type(one) for one in seglog.clean(pair[0])} == {seglog.Skipped}
    assert files_of(pair[0]) == before


def test_retention_is_planned_and_done_as_by_the_command(pair: tuple[Path, Path]) -> None:
    mine, other = pair
    (row,) = shown("retain", "--retention-ms", "60000", "--dry-run", other / "t-0")
    (plan,) = seglog.plan_retain(mine / "t-0", retention_ms=60_000)
    assert isinstance(plan, seglog.Retained)
    assert [gone.base_offset for gone in plan.plan.removed] == row["deleted_segments"] != []
    (done,) = seglog.retain(mine / "t-0", retention_ms=60_000, delay_ms=0)
    shown("retain", "--retention-ms", "60000", "--delay", "0", other / "t-0")
    assert isinstance(done, seglog.Retained)
    assert [gone.base_offset for gone in done.plan.removed] == row["deleted_segments"]
    assert files_of(mine / "t-0").keys() == files_of(other / "t-0").keys()


def test_room_is_made_as_by_the_command(pair: tuple[Path, Path]) -> None:
    mine, other = pair
    config = {"cleanup.policy": "delete"}
    rows = shown("retain", "--set", "cleanup.policy=delete", "--free", "+1KiB", "--dry-run", other)
    *plans, freed = seglog.plan_retain(mine, free="+1KiB", config=config)
    assert isinstance(freed, seglog.Freed)
    assert freed.freed == rows[-1]["freed_bytes"] > 0
    assert [len(one.plan.removed) for one in plans if isinstance(one, seglog.Retained)] == [
        len(row["deleted_segments"]) for row in rows[:-1]
    ]


def test_a_repair_is_planned_done_and_taken_back(pair: tuple[Path, Path]) -> None:
    mine, other = pair
    damage(mine / "t-0")
    damage(other / "t-0")
    before = files_of(mine)
    rows = [row for row in shown("verify", "--repair", "--dry-run", other) if row["type"] == "plan"]
    (planned,) = seglog.plan_repair(mine)
    assert list(planned.plan.rows()) == rows != []
    assert files_of(mine) == before
    (done,) = seglog.repair(mine, only=["log", "index", "snapshot", "epochs", "checkpoint"])
    assert done.complete and done.before.damaged and not done.after.damaged
    assert done.outcome.run is not None
    shown("verify", "--repair", other)
    assert files_of(mine) == files_of(other)
    undone = seglog.undo(done.outcome.run.name)  # by name, from anywhere
    assert undone.state.value == "undone"
    assert repr(undone) == f"<RunRecord {undone.name}: repair, undone, {len(undone.changed)} files>"
    assert files_of(mine) == before
    assert (mine.parent / QUARANTINE).is_dir()


def test_what_cannot_be_noted_in_the_state_directory_is_said_and_the_change_is_done(
    pair: tuple[Path, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "state").write_bytes(b"")
    damage(pair[0] / "t-0")
    (done,) = seglog.repair(pair[0])
    assert done.complete and done.outcome.run is not None
    seglog.clean(pair[0] / "u-0", policy="compact", roll=True)
    noted, kept = [record.getMessage() for record in caplog.records if record.name == "seglog"]
    assert f"seglog undo needs {done.outcome.run.folder}" in noted
    assert "the statistics could not be saved" in kept


def test_recovery_keeps_what_it_cuts(pair: tuple[Path, Path]) -> None:
    mine, other = pair
    damage(mine / "t-0")
    damage(other / "t-0")
    before = {name: data for name, data in files_of(mine / "t-0").items() if name.endswith(".log")}
    (row,) = shown("recover", "--dry-run", "--recovery-point", "0", other / "t-0")
    (plan,) = seglog.plan_recover(mine / "t-0", recovery_point=0)
    assert (plan.truncated_bytes, plan.log_end_offset) == (row["truncated_bytes"], row["log_end_offset"])
    (done,) = seglog.recover(mine / "t-0", recovery_point=0)
    assert done.truncated_bytes == plan.truncated_bytes > 0
    assert done.run is not None
    seglog.undo(done.run)
    assert {name: data for name, data in files_of(mine / "t-0").items() if name.endswith(".log")} == before


class Killed(BaseException):
    """Nothing of what would follow is done; a signal, which is caught, would take the run back."""


def test_a_cut_repair_is_settled_before_a_log_is_truncated(
    pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    damage(pair[0] / "t-0")

    def cut(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr("seglog.repairs.repair.finish_run", cut)
        seglog.repair(pair[0])
    with pytest.raises(seglog.RefusedError, match="a run of seglog was cut short here"):
        seglog.clean(pair[0] / "u-0", policy="compact")
    done = seglog.truncate(pair[0] / "u-0", to_offset=10)
    assert done.cut.end_offset <= 10 and done.run is not None
    assert not seglog.verify(pair[0] / "t-0", level="crc").summary.damaged


def test_a_cut_repair_is_settled_before_the_next_one_looks_at_the_log(
    pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Findings from before would be about files that settling the run has changed."""
    damage(pair[0] / "t-0")
    applied = 0

    def cut(*_: object) -> None:
        nonlocal applied
        applied += 1
        raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr("seglog.repairs.undo.apply._apply_group", cut)
        seglog.repair(pair[0] / "t-0")
    assert applied == 1 and (pair[0] / PENDING_FILE).exists()
    assert seglog.verify(pair[0] / "t-0", level="crc").summary.damaged
    (done,) = seglog.repair(pair[0] / "t-0")
    assert (done.before.damaged, done.outcome.run, done.complete) == (False, None, True)
    assert not (pair[0] / PENDING_FILE).exists()


def test_truncation_is_planned_without_a_change(pair: tuple[Path, Path]) -> None:
    before = files_of(pair[0])
    plan = seglog.plan_truncate(pair[0] / "t-0", to_offset=10)
    assert files_of(pair[0]) == before
    assert seglog.truncate(pair[0] / "t-0", to_offset=10, keep=False).cut == plan.cut
    assert not (pair[0].parent / QUARANTINE).exists()


def test_a_held_directory_is_not_changed(pair: tuple[Path, Path]) -> None:
    path = pair[0] / "t-0"
    with seglog.open_log(pair[0] / "u-0", writable=True):
        before = files_of(path)
        changes: list[Callable[[], object]] = [
            lambda: seglog.clean(path, policy="compact"),
            lambda: seglog.retain(path, retention_ms=1),
            lambda: seglog.repair(path),
            lambda: seglog.recover(path),
            lambda: seglog.truncate(path, to_offset=1),
        ]
        for change in changes:
            with pytest.raises(seglog.LockedError):
                change()
        assert files_of(path) == before


WRONG: dict[str, Callable[[Path], object]] = {
    "policy: 'compakt' is not one of compact": lambda p: seglog.clean(p / "t-0", policy="compakt"),
    "policy: only for named partitions": lambda p: seglog.clean(p, policy="compact"),
    "'newest'": lambda p: seglog.clean(p / "t-0", policy="compact", strategy="newest"),
    "'loss' is not one of smallest-loss, excise, truncate": lambda p: seglog.repair(p, policy="loss"),  # type: ignore
    "'logs' is not one of log, index": lambda p: seglog.repair(p, only="logs"),
    "a repair takes partition and log directories": lambda p: seglog.repair(p / "t-0" / "00000000000000000000.log"),
    "give to_offset or to_time_ms": lambda p: seglog.truncate(p / "t-0"),
    "retention_ms must be an integer, not 7.5": lambda p: seglog.retain(p / "t-0", retention_ms=7.5),  # type: ignore
    "free: it removes files at once": lambda p: seglog.retain(p, free=1, retention_ms=5),
    "recovery_point: -1 is less than 0": lambda p: seglog.recover(p, recovery_point=-1),
    "to_offset: -2 is less than 0": lambda p: seglog.truncate(p / "t-0", to_offset=-2),
    "delay_ms: -3 is less than 0": lambda p: seglog.retain(p / "t-0", retention_ms=5, delay_ms=-3),
    "free: takes a size above 0": lambda p: seglog.retain(p, free=0),
    "magic: 3 is not 0, 1 or 2": lambda p: seglog.convert(p / "t-0", p / "new-0", magic=3),  # type: ignore
    "output: new is not of the form topic-partition": lambda p: seglog.convert(p / "t-0", p / "new"),
    "'zip' is not one of none, gzip": lambda p: seglog.convert(p / "t-0", p / "new-0", codec="zip"),
}


@pytest.mark.parametrize("told", WRONG)
def test_wrong_arguments_are_named_and_nothing_is_done(pair: tuple[Path, Path], told: str) -> None:
    before = files_of(pair[0])
    with pytest.raises((ValueError, TypeError, seglog.ConfigError)) as error:
        WRONG[told](pair[0])
    assert told in str(error.value)
    assert files_of(pair[0]) == before
