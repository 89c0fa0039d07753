"""What commands on a whole log directory ask of an object store: how often, and how much at once."""

from __future__ import annotations

from pathlib import Path
from threading import Lock
from time import sleep

import pytest

from seglog.remote import routing
from tests.support.command_line import ended
from tests.support.log_files import batch, write_segment
from tests.support.object_server import object_server


@pytest.mark.parametrize("command", ["ls", "doctor"])
def test_partitions_are_looked_at_side_by_side_and_listed_together(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each answer takes a while, as in a real store; twice the partitions make no more listings."""
    for number in range(24):
        write_segment(tmp_path / f"t-{number}", 0, batch(0, 3))
    files = {str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        files[name] = "\n".join(["0", "24", *(f"t {number} 3" for number in range(24)), ""]).encode()
    listings = {}
    with object_server() as server:
        for key, value in server.environment.items():
            monkeypatch.setenv(key, value)
        under_way, most, guard = 0, 0, Lock()

        def slowly(_method: str, _path: str) -> None:
            nonlocal under_way, most
            with guard:
                under_way += 1
                most = max(most, under_way)
            sleep(0.01)
            with guard:
                under_way -= 1

        for count in (12, 24):
            shown = {
                name: data
                for name, data in files.items()
                if "/" not in name or int(name.partition("/")[0].removeprefix("t-")) < count
            }
            server.objects = {f"bkt/{count}/{name}": data for name, data in shown.items()}
            server.fault, server.asked[:] = slowly, []
            monkeypatch.setattr(routing, "_shared", None)
            end = ended(command, f"s3://bkt/{count}")
            assert end.code in (0, 1), end.stderr
            listings[count] = sum("list-type=2" in each for each in server.asked)
    assert most >= 4 and 0 < listings[24] <= max(listings[12], 2), (most, listings)
