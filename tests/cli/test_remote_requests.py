"""What commands on a whole log directory ask of an object store: how often, and how much at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog_stores.remote import routing
from tests.support.command_line import ended
from tests.support.log_files import batch, write_segment
from tests.support.object_server import Meeting, object_server


@pytest.mark.parametrize("command", ["ls", "doctor"])
def test_partitions_are_looked_at_side_by_side_and_listed_together(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice the partitions make no more listings."""
    for number in range(24):
        write_segment(tmp_path / f"t-{number}", 0, batch(0, 3))
    files = {str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        files[name] = "\n".join(["0", "24", *(f"t {number} 3" for number in range(24)), ""]).encode()
    listings = {}
    with object_server() as server:
        for key, value in server.environment.items():
            monkeypatch.setenv(key, value)
        for count in (12, 24):
            shown = {
                name: data
                for name, data in files.items()
                if "/" not in name or int(name.partition("/")[0].removeprefix("t-")) < count
            }
            server.objects = {f"bkt/{count}/{name}": data for name, data in shown.items()}
            server.fault, server.asked[:] = Meeting(4, "/t-"), []
            monkeypatch.setattr(routing, "_shared", None)
            end = ended(command, f"s3://bkt/{count}")
            assert end.code in (0, 1), end.stderr
            assert server.fault.most >= 4
            listings[count] = sum("list-type=2" in each for each in server.asked)
    assert 0 < listings[24] <= max(listings[12], 2), listings
