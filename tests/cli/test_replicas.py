"""`seglog replicas`: facts and directories say the same, and the exit code and files are what the page says."""

from __future__ import annotations

import json
import stat
from pathlib import Path

from tests.support.command_line import run
from tests.support.lost_clusters import broker_directory, registration, topic_records
from tests.support.metadata_records import write_metadata_log


def cluster(place: Path) -> list[Path]:
    one = broker_directory(place / "1", 1, {"orders-0": [0] * 6, "orders-1": [0] * 3})
    two = broker_directory(place / "2", 2, {"orders-0": [0] * 9, "orders-1": [0] * 3})
    write_metadata_log(two, [registration(1), registration(2), *topic_records("orders", [[1, 2], [1, 2]], isr=[1])])
    return [one, two]


def test_a_row_for_the_partition_in_question_and_steps_that_a_script_holds(tmp_path: Path) -> None:
    directories = cluster(tmp_path)
    done = run("replicas", *directories, "-o", tmp_path / "steps")
    assert done.exit_code == 1
    (row,) = [line.split() for line in done.stdout.splitlines() if line.startswith("orders-0 ")]
    assert row[1:3] == ["1", "6"] and "6 to 8 (3 records" in done.stdout
    assert "2 partitions: 1 agrees on all brokers" in done.stdout
    assert "orders-1 " not in done.stdout
    script = (tmp_path / "steps" / "steps.sh").read_text()
    assert all(line in done.stdout for line in script.splitlines())
    again = run("replicas", *directories, "-o", tmp_path / "steps")
    assert again.exit_code == 12


def test_facts_and_directories_print_the_same(tmp_path: Path) -> None:
    directories = cluster(tmp_path)
    facts = [tmp_path / f"{directory.name}.facts" for directory in directories]
    for directory, file in zip(directories, facts, strict=True):
        assert run("replicas", "--collect", file, directory).exit_code == 0
        assert stat.S_ISREG(file.stat().st_mode)
    assert run("replicas", *facts, "--json").stdout == run("replicas", *directories, "--json").stdout
    assert run("replicas", "--collect", facts[0], directories[0]).exit_code == 12
    assert run("replicas", "--replace", "--collect", facts[0], directories[0]).exit_code == 0


def test_the_exit_code_is_0_if_all_agree_and_3_if_something_could_not_be_read(tmp_path: Path) -> None:
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0] * 6})
    two = broker_directory(tmp_path / "2", 2, {"orders-0": [0] * 6})
    write_metadata_log(two, [registration(1), registration(2), *topic_records("orders", [[1, 2]])])
    assert run("replicas", one, two).exit_code == 0
    log = one / "orders-0" / f"{0:020}.log"
    log.unlink()
    log.mkdir()
    done = run("replicas", one, two, "--json")
    assert done.exit_code == 3
    row, *_ = map(json.loads, done.stdout.splitlines())
    assert (row["broker"], [copy["broker"] for copy in row["copies"] if copy["problem"]]) == (2, [1])


def test_options_that_do_not_belong_together_are_wrong_usage(tmp_path: Path) -> None:
    one, _ = cluster(tmp_path)
    assert run("replicas", "--replace", one).exit_code == 2
    assert run("replicas", "--collect", tmp_path / "f", "-o", tmp_path / "o", one).exit_code == 2
    assert run("replicas", "--collect", tmp_path / "f", tmp_path / "none").exit_code == 10
    (tmp_path / "f").write_text('{"type":"facts","format":"seglog-replicas","version":"9.0"}\n')
    assert run("replicas", tmp_path / "f").exit_code == 13


def test_what_an_election_gave_up_although_it_was_acknowledged_is_said_in_words(tmp_path: Path) -> None:
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0] * 6})
    two = broker_directory(tmp_path / "2", 2, {"orders-0": [0] * 4 + [2]})
    (one / "replication-offset-checkpoint").write_text("0\n1\norders 0 6\n")
    write_metadata_log(two, [registration(1), registration(2), *topic_records("orders", [[1, 2]], epoch=2, isr=[2])])
    (said,) = [line for line in run("replicas", one, two).stdout.splitlines() if "a later leader" in line]
    assert said.startswith("orders-0: broker 1 has acknowledged records (offsets 4 to 5) that a later leader lacked")


def test_a_snapshot_is_refused_by_name(tmp_path: Path) -> None:
    one, _ = cluster(tmp_path)
    for options in ((), ("--collect", tmp_path / "facts")):
        done = run("replicas", *options, f"{one}#latest")
        assert done.exit_code == 10 and "`seglog backup restore` it to a disk first" in done.stderr
