"""Commands on a log directory in an object store ask for the small files of several partitions at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from seglog_stores.remote import routing
from tests.support.command_line import ended
from tests.support.fixtures import CLEAN
from tests.support.object_server import Meeting, ObjectServer, object_server

PARTITIONS = 24
AT_ONCE = 8  # seglog_stores.remote.limits
FILES = ("00000000000000000000.log", "00000000000000000000.index", "00000000000000000000.timeindex")


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
    store.fault = meeting = Meeting(AT_ONCE // 2 + 1, "/t-")
    found = ended(*command.split(), "--json", "s3://backup/logs")
    assert found.code in (0, 1), found.stderr
    assert AT_ONCE // 2 < meeting.most <= AT_ONCE
    asked = Counter("listing" if "list-type=2" in each else each.split()[1] for each in store.asked)
    listings = asked.pop("listing")
    assert listings <= 3 and set(asked.values()) == {1}, (listings, asked)
    assert len(asked) == PARTITIONS * len(FILES)
