"""A transplant that is killed between two of its partitions, and a real broker that is started next."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.repairs.undo.quarantine import BARRIER
from seglog.storage.local import LocalFileSystem
from tests.support.command_line import json_lines, run
from tests.support.consumers import librdkafka_rows
from tests.support.fixtures import fixture_copy, fixture_now_ms
from tests.support.kafka.broker import Broker
from tests.support.open_logs import opened_log
from tests.support.serving import local_rows
from tests.support.target_directories import request, transplanted

pytestmark = pytest.mark.kafka

NAME = "4.3.0/killed"
PLACES = [("clicks", 0), ("orders-lz4", 0)]


class Killed(BaseException):
    """Nothing of what would follow is done."""


class Mortal(LocalFileSystem):
    """Dies when the log of the second partition is to get its place."""

    def rename(self, source: Path, target: Path) -> None:
        if ".log" in target.name and target.parent.parent.name == "logs" and target.parent.name == "orders-lz4-0":
            raise Killed
        super().rename(source, target)


def test_no_broker_starts_before_a_killed_run_is_over(tmp_path: Path) -> None:
    dead, target = fixture_copy(NAME, tmp_path / "dead"), tmp_path / "logs"
    with Broker(target) as broker:
        for topic, _ in PLACES:
            broker.create_topic(topic, retention_ms=-1)
    fs, sources = Mortal(), [dead / f"{topic}-0" for topic, _ in PLACES]
    with pytest.raises(Killed):
        transplanted(fs, fixture_now_ms(NAME), request(fs, target, *sources))
    left = contents(target)
    sizes = [sum(len(left[name]) for name in left if Path(name).parent == Path(f"{topic}-0")) for topic, _ in PLACES]
    assert sizes[0] > 1000 > sizes[1], "one of two is there"
    with pytest.raises(RuntimeError, match=f"Found directory .*{BARRIER}"):
        Broker(target)
    assert contents(target) == left
    told = run("doctor", target, "--json")
    (row,) = [row for row in json_lines(told) if row.get("code") == "RUN_UNFINISHED"]
    assert (told.exit_code, row["severity"]) == (1, "blocker")
    settled = run("verify", "--repair", target)
    assert (settled.exit_code, "the transplant " in settled.output) == (0, True), settled.output
    again = run("transplant", *sources, "--into", target)
    assert (again.exit_code, "nothing to do" in again.output) == (0, True), again.output
    with Broker(target) as broker:
        found = librdkafka_rows(broker.bootstrap, PLACES, "read_uncommitted")
        assert "truncat" not in broker.log_text().lower()
    for (topic, number), source in zip(PLACES, sources, strict=True):
        with opened_log(source, writable=False) as log:
            assert found[topic, number] == local_rows(log) != []


def contents(target: Path) -> dict[str, bytes]:
    """What a run may touch: the topic's partitions and the checkpoints."""
    paths = [*(path for topic, _ in PLACES for path in target.glob(f"{topic}-0/*")), *target.glob("*-checkpoint")]
    return {str(path.relative_to(target)): path.read_bytes() for path in paths}
