"""On a terminal: tables that fit, meaningful colours, next steps, moving progress; elsewhere none of these."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from seglog.units import rough_duration
from seglog_cli.progress import LiveProgress, Pace, PlainProgress, describe, seconds_text
from seglog_cli.tables import with_times
from seglog_cli.terminal import Screen
from tests.support.command_line import clean_logs, damage_logs, ended, environment, keep_partitions, run
from tests.support.log_files import batch, write_segment
from tests.support.terminals import Shown, on_terminal

WIDTHS = (80, 200)
KEPT = ("__cluster_metadata-0", "__consumer_offsets-0", "customers-0", "orders-lz4-0", "orders-none-0")


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Makes a log directory with four damaged batches and without offset indexes."""
    made = clean_logs(tmp_path_factory.mktemp("terminal"))
    keep_partitions(made, KEPT)
    damage_logs(made)
    return made


NOW = ("--now", "2026-11-22T00:00:00Z")
COMMANDS = (
    (("ls", "."), WIDTHS),
    (("ls", "orders-none-0"), (80,)),
    (("verify", "."), WIDTHS),
    (("doctor", "."), WIDTHS),
    (("stats", "--sizing", "customers-0"), WIDTHS),
    (("clean", "--dry-run", "--roll", "customers-0"), WIDTHS),
    (("explain", "--advise", "customers-0", *NOW), (80,)),
    (("retain", "--dry-run", "--retention-ms", "1d", "orders-lz4-0", *NOW), (80,)),
    (("groups", "."), (80,)),
)


@pytest.mark.parametrize(
    ("command", "columns"), [(command, columns) for command, widths in COMMANDS for columns in widths]
)
def test_nothing_is_wider_than_the_terminal(logs: Path, command: tuple[str, ...], columns: int) -> None:
    shown = on_terminal(columns, *command, directory=logs)
    assert shown.code in (0, 1)
    wide = [line for line in shown.lines if len(line) > columns]
    assert all(line.lstrip().startswith("seglog ") for line in wide)  # a command is never broken
    assert shown.colours


def test_a_table_fits_a_narrow_terminal_and_uses_a_wide_one(logs: Path) -> None:
    narrow, wide = (on_terminal(columns, "ls", ".", directory=logs).lines for columns in WIDTHS)
    assert narrow[0].split() == ["PARTITION", "STATE", "SEGMENTS", "SIZE", "START", "END", "NEWEST"]
    assert wide[0].split() == [*narrow[0].split(), "MODIFIED", "SHARE"]
    assert len(narrow) == len(wide) == len(KEPT) + 2
    both = [[line.split()[:6] for line in lines[1:-1]] for lines in (narrow, wide)]
    assert both[0] == both[1]
    assert narrow[1].endswith("2026-11-21 05:04Z")
    assert "2026-11-21T05:04:58.649Z" in wide[1]
    assert narrow[-1] == wide[-1] == "5 partitions, 9 segments, 158 kB"


def test_a_row_is_a_line_also_where_columns_must_go_for_it(logs: Path) -> None:
    wide, narrow = (on_terminal(columns, "groups", ".", directory=logs).lines for columns in (110, 80))
    assert len(wide) == len(narrow)
    headings = [next(line for line in lines if " TOPIC " in line).split() for lines in (wide, narrow)]
    assert headings[0] == [*headings[1], "COMMITTED", "CONSUMER-ID"]
    both = on_terminal(80, "ls", ".", f"../{logs.name}", directory=logs).lines
    assert len(both) == 2 * len(KEPT) + 2 and both[0].split()[0] == "PARTITION"
    config = on_terminal(80, "config", "show", "customers-0", directory=logs).lines
    assert "__cluster_metadata-0 offset 27" in config[1] and len(config) == 7


def test_a_long_name_leaves_room_for_the_newest_time(tmp_path: Path) -> None:
    """A topic that is named by a UUID fills half of a narrow terminal. A state stays if it tells something."""
    name = "3f0c7f52-9b7e-4c55-8d5e-2f1a7be0c1d4-0"
    write_segment(tmp_path / name, 0, batch(0, 3))
    heading, row = on_terminal(80, "ls", ".", directory=tmp_path).lines
    assert heading.split() == ["PARTITION", "STATE", "SIZE", "END", "NEWEST"]
    assert row.split()[0] == name and row.endswith("Z")
    (tmp_path / name).rename(tmp_path / f"payments-{name}")
    heading, row = on_terminal(80, "ls", ".", directory=tmp_path).lines
    assert heading.split() == ["PARTITION", "SIZE", "END", "NEWEST"] and len(row) <= 80
    write_segment(tmp_path / f"{name}.0123456789abcdef0123456789abcdef-stray", 0, batch(0, 3))
    assert "STATE" in on_terminal(80, "ls", ".", directory=tmp_path).lines[0]


def test_the_doctor_counts_partitions(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PlainProgress, "interval", 0.0)
    said = run("doctor", "--progress", "plain", logs).stderr.splitlines()
    assert [line for line in said if line.startswith("doctor: ")][-1] == "doctor: 4 of 4 partitions"


def test_gravity_has_a_colour_and_what_helps_stands_below(logs: Path) -> None:
    shown = on_terminal(80, "verify", ".", directory=logs)
    assert "\x1b[1;31merror\x1b[0m" in shown.written
    assert "\x1b[33mwarning\x1b[0m" in shown.written
    steps = shown.lines[shown.lines.index("what to do next:") :]
    assert steps[1] == "  seglog repair --dry-run ."
    doctor = on_terminal(80, "doctor", ".", directory=logs)
    assert "  seglog repair orders-none-0" in doctor.lines[doctor.lines.index("what to do next:") :]
    plan = on_terminal(80, "clean", "--dry-run", "--roll", "customers-0", directory=logs)
    assert plan.lines[-2] == "  seglog clean --roll customers-0"
    whole = on_terminal(80, "verify", "--level", "crc", "customers-0", directory=logs)
    assert whole.code == 0 and not any("what to do next" in line for line in whole.lines)


def test_without_colour_the_words_are_the_same(logs: Path) -> None:
    coloured = on_terminal(80, "verify", ".", directory=logs)
    plain = on_terminal(80, "verify", "--progress", "none", ".", directory=logs, NO_COLOR="1")
    assert plain.colours == set()
    assert "\x1b" not in plain.written
    assert plain.lines == coloured.lines


def test_the_steps_of_a_work_fit_a_terminal_that_was_resized(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LiveProgress, "interval", 0.0)
    written: list[bytes] = []
    width = 80
    progress = LiveProgress(Screen(written.append, width, color=False, measured=lambda: width), "clean", None, "")
    progress.begin("customers-uncleaned-with-a-long-name-0: indexing", 10_000_000)
    for width in (80, 40, 120):
        written.clear()
        progress.advance(1_000_000)
        (line,) = Shown(0, b"".join(written).decode()).lines
        assert len(line) <= width
        assert (len(line) > 40, "indexing" in line) == (width > 40, width == 120)
    progress.close()


def test_the_steps_of_a_work_are_drawn_in_place_and_leave_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LiveProgress, "interval", 0.0)
    written: list[bytes] = []
    screen = Screen(written.append, 80, color=False)

    def lines() -> list[str]:
        return Shown(0, b"".join(written).decode()).lines

    progress = LiveProgress(screen, "clean", None, "")
    progress.begin("customers-0: indexing", 1000)
    progress.advance(250)
    assert len(lines()) == 1 and lines()[0].startswith("customers-0: indexing") and "250 B of 1.0 kB" in lines()[0]
    progress.begin("customers-0: indexing, pass 2", 1000)
    progress.advance(10)
    assert ["indexing, pass 2" in line for line in lines()] == [False, True]
    assert "250 B in " in lines()[0]
    progress.wait("waiting for fsync")
    assert lines()[1].endswith("10 B of 1.0 kB, waiting for fsync")
    progress.clear()
    assert lines() == []
    progress.advance(10)
    assert len(lines()) == 2
    progress.close()
    assert lines() == []


def test_elsewhere_text_is_plain_whatever_the_width_and_rich_is_not_loaded(logs: Path) -> None:
    commands = [list(command) for command, _ in COMMANDS if command[0] not in ("clean", "stats")]  # they show durations
    script = (
        "import sys; from seglog_cli.app import run\n"
        f"for command in {commands}: run(command)\n"
        "print('rich' in sys.modules, file=sys.stderr)"
    )
    seen = set()
    for columns in ("80", "200"):
        given = environment(COLUMNS=columns)
        given.pop("NO_COLOR")
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, cwd=logs, env=given, check=True
        )
        assert done.stderr.endswith("False\n")
        assert "\x1b" not in done.stdout and "╭" not in done.stdout
        seen.add(done.stdout)
    assert len(seen) == 1


def test_colour_that_is_asked_for_goes_into_a_pipe(logs: Path) -> None:
    coloured = ended("verify", "--color", "always", logs / "orders-none-0").stdout
    plain = ended("verify", logs / "orders-none-0").stdout
    assert b"\x1b[1;31merror\x1b[0m CRC_MISMATCH" in coloured.replace(b"\x1b[1m", b"").replace(
        b"CRC_MISMATCH\x1b[0m", b"CRC_MISMATCH"
    )
    assert plain.startswith(b"error CRC_MISMATCH")


def test_names_cannot_draw_on_the_terminal(tmp_path: Path) -> None:
    odd = tmp_path / "a\x1b[31m[bold]b-0"
    odd.mkdir()
    (odd / f"{0:020d}.log").touch()
    shown = on_terminal(200, "ls", odd)
    assert "\x1b[31m" not in shown.written
    assert any("a\\x1b[31m[bold]b-0" in line for line in shown.lines)


def test_times_on_a_terminal_are_utc_and_milliseconds_stay_in_a_pipe(logs: Path) -> None:
    for line in (("read", "orders-lz4-0", "--limit", "1"), ("dump", "orders-lz4-0", "--records", "--limit", "1")):
        shown = " ".join(on_terminal(200, *line, directory=logs).lines)
        assert "timestamp=2026-11-21T00:03:24.773Z" in shown and "=17952" not in shown
        assert "timestamp=1795219404773" in run(line[0], logs / line[1], *line[2:]).stdout
        as_json = " ".join(on_terminal(200, *line, "--json", directory=logs).lines)
        assert '"timestamp":1795219404773' in as_json


def test_only_a_records_own_time_is_written_otherwise() -> None:
    lines = (
        b"  offset=0 timestamp=1795219404773 sequence=0"
        b' key="timestamp=1795219404773" value="max_timestamp=1795219404773"\n'
        b"batch position=0 base_timestamp=1795219404773 max_timestamp=-1 delete_horizon=null\n"
        b"timestamp=1795219404773\n"
    )
    assert with_times(lines) == (
        b"  offset=0 timestamp=2026-11-21T00:03:24.773Z sequence=0"
        b' key="timestamp=1795219404773" value="max_timestamp=1795219404773"\n'
        b"batch position=0 base_timestamp=2026-11-21T00:03:24.773Z max_timestamp=-1 delete_horizon=null\n"
        b"timestamp=1795219404773\n"
    )


def test_a_terminal_shows_one_size_in_one_unit(logs: Path) -> None:
    line = ("clean", "--dry-run", "--roll", "customers-0")
    assert not any("Mb/sec" in each or "Start size" in each for each in on_terminal(80, *line, directory=logs).lines)
    assert any("Start size" in each for each in on_terminal(80, *line, "-v", directory=logs).lines)
    assert "Start size" not in run("clean", "--dry-run", "--roll", logs / "customers-0").stdout


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, "0ms"), (999, "999ms"), (1000, "1s"), (61_500, "1m1s"), (97_806_002_000, "1132d"), (5_400_000, "1h30m")],
)
def test_a_duration_for_people_has_two_units_at_most(milliseconds: int, text: str) -> None:
    assert rough_duration(milliseconds) == text


# --- what progress says ---------------------------------------------------------------------------------------


def test_the_time_left_goes_by_the_last_half_minute() -> None:
    pace = Pace(0.0)
    for second in range(1, 101):
        pace.add(float(second), second * 10)
    for second in range(101, 141):
        pace.add(float(second), 1000 + (second - 100) * 1000)
    assert pace.rate() == 1000
    assert pace.left(101_000) == pytest.approx(60)


def test_no_time_is_told_before_there_is_something_to_go_by() -> None:
    pace = Pace(0.0)
    pace.add(1.0, 500)
    assert describe(500, 1000, pace) == "500 B of 1.0 kB, 500 B/s"
    pace.add(3.0, 5)
    assert Pace(0.0).left(10) is None
    slow = Pace(0.0)
    slow.add(60.0, 5)
    assert slow.left(1000) is None
    slow.add(61.0, 500)
    assert slow.left(1000) == pytest.approx(61.0)
    assert slow.left(None) is None


def test_what_is_done_never_exceeds_the_whole() -> None:
    pace = Pace(0.0)
    pace.add(10.0, 3800)
    assert describe(3800, 3700, pace) == "3.7 kB of 3.7 kB, 380 B/s, 0 s left"
    assert describe(3, 8, pace, "segments") == "3 of 8 segments, 0 s left"
    assert describe(3, None, pace, "segments") == "3 segments"


def test_durations_are_no_finer_than_anybody_knows() -> None:
    assert [seconds_text(seconds) for seconds in (0.2, 89, 91, 3600, 9000)] == [
        "0 s",
        "89 s",
        "2 min",
        "60 min",
        "2.5 h",
    ]


def test_a_command_stays_one_line_whatever_its_length(logs: Path, tmp_path: Path) -> None:
    deep = tmp_path / ("a long name of a directory " * 3).strip() / "kafka"
    deep.parent.mkdir()
    shutil.copytree(logs, deep)
    partition = shlex.quote(str(deep / "orders-none-0"))
    for line in (("verify", deep / "orders-none-0"), ("doctor", deep)):
        shown = on_terminal(80, *line, directory=tmp_path)
        commands = [each.strip().removeprefix("mend:").strip() for each in shown.lines if " seglog " in each]
        assert len(commands) >= 2
        for command in commands:
            words = shlex.split(command)
            assert words[0] == "seglog" and (str(deep) in command or words[1] in ("explain", "repair"))
        assert any(partition in command for command in commands) or line[0] == "doctor"
        assert not any(each.startswith(("│", "╭", "╰")) for each in shown.lines)


@pytest.mark.parametrize("width", [24, 40, 79])
def test_a_sentence_is_broken_around_a_command_and_not_within_it(width: int) -> None:
    command = "seglog retain --retention-ms 7d --policy delete /var/lib/kafka/data/orders-0"
    written: list[bytes] = []
    Screen(written.append, width, color=False).line(
        [("", f"  the oldest go: {command} takes them away; look first")], 4
    )
    lines = b"".join(written).decode().splitlines()
    assert [line.strip() for line in lines if "seglog" in line] == [command]
    assert " ".join(line.strip() for line in lines) == f"the oldest go: {command} takes them away; look first"
    assert all(len(line) <= width for line in lines if command not in line)


def test_only_the_continuation_of_a_long_line_is_indented() -> None:
    written: list[bytes] = []
    screen = Screen(written.append, 40, color=False)
    screen.line([("", "  size      " + "word " * 10)], hang=10)
    assert b"".join(written).decode().splitlines() == [
        "  size      word word word word word",
        "            word word word word word",
    ]
    written.clear()
    screen.line([("", "  " + "abcd " * 12)], hang=2)
    assert b"".join(written).decode().splitlines() == [
        "  abcd abcd abcd abcd abcd abcd abcd",
        "    abcd abcd abcd abcd abcd",
    ]
    written.clear()
    screen.line([("", "a" * 40 + " ")], hang=2)
    assert b"".join(written).decode() == "a" * 40 + "\n"


def test_further_sentences_of_an_explanation_stand_below_the_first(logs: Path) -> None:
    lines = on_terminal(80, "explain", "customers-0", directory=logs).lines
    section = lines[1 : next(i for i, line in enumerate(lines) if line.startswith("  deletion:"))]
    assert section[0].startswith("  cleaning: ")
    assert len(section) > 2
    assert {len(line) - len(line.lstrip()) for line in section[1:]} == {12}
