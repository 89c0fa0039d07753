"""Commands on a log directory in an object store ask for the small files of several partitions at once."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from seglog.remote import routing
from tests.support.command_line import ended
from tests.support.fixtures import CLEAN
from tests.support.object_server import Fault, ObjectServer, object_server

PARTITIONS = 24
AT_ONCE = 8  # seglog.remote.limits
FILES = ("00000000000000000000.log", "00000000000000000000.index", "00000000000000000000.timeindex")
DELAY_S = 0.03


@dataclass
class Waiting:
    """The requests that are being answered, and what was asked for; each answer takes a while."""

    now: int = 0
    most: int = 0
    asked: Counter[str] = field(default_factory=Counter)
    guard: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, method: str, path: str) -> Fault | None:
        if method not in ("GET", "HEAD"):
            return None
        with self.guard:
            self.now += 1
            self.most = max(self.most, self.now)
            self.asked["listing" if "list-type" in path else path.partition("?")[0]] += 1
        time.sleep(DELAY_S)
        with self.guard:
            self.now -= 1
        return None


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    """A bucket with a log directory of many small partitions."""
    with object_server() as server:
        for i in range(PARTITIONS):
            for name in FILES:
                server.objects[f"backup/logs/t-{i}/{name}"] = (CLEAN / "customers-0" / name).read_bytes()
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(routing, "_shared", None)
        yield server


@pytest.mark.parametrize("command", ["ls", "doctor", "doctor --quick", "verify", "dump"])
def test_small_files_of_several_partitions_come_at_once_and_each_once(store: ObjectServer, command: str) -> None:
    store.fault = waiting = Waiting()
    found = ended(*command.split(), "--json", "s3://backup/logs")
    assert found.code in (0, 1), found.stderr
    assert AT_ONCE // 2 < waiting.most <= AT_ONCE
    listings = waiting.asked.pop("listing")
    assert listings <= 3 and set(waiting.asked.values()) == {1}, (listings, waiting.asked)
    assert len(waiting.asked) == PARTITIONS * len(FILES)
