"""A manifest is untrusted: whatever is changed in it, it leads nowhere outside its repository."""

from __future__ import annotations

import hashlib
import json
import os
import random
from pathlib import Path

import pytest

from seglog.errors import CorruptTierError
from seglog.format.snapshot_manifest import Snapshot, format_snapshot, parse_snapshot
from seglog.storage.local import LocalFileSystem
from seglog.storage.routing import machine_files
from seglog_rescue.operations.backup import BackupRequest, backup
from tests.support.command_line import clean_logs
from tests.support.manual_clock import ManualClock


def stored(logs: Path, place: Path) -> Snapshot:
    """The snapshot of a run."""
    clock = ManualClock(1_700_000_000_000)
    return backup(LocalFileSystem(), machine_files(), clock, BackupRequest([logs], place)).snapshot


def test_mutated_manifests_are_refused_or_stay_inside_the_repository(tmp_path: Path) -> None:
    """SEGLOG_MANIFEST_MUTATIONS asks for more."""
    logs = clean_logs(tmp_path)
    snapshot = stored(logs, tmp_path / "backup")
    data, chance, refused = format_snapshot(snapshot), random.Random(45), 0
    assert parse_snapshot(data, "manifest", snapshot.id) == snapshot
    lines = data.splitlines(keepends=True)[:4]
    values = [
        b"-1",
        b"null",
        b"1e400",
        b'"../x"',
        b"[]",
        b"{}",
        b"9223372036854775808",
        b"true",
        b'"\\u0000"',
        b"/",
        b"]",
    ]
    rounds = int(os.environ.get("SEGLOG_MANIFEST_MUTATIONS", "300"))
    for _ in range(rounds):
        body = bytearray(b"".join(lines))
        for _ in range(chance.randint(1, 3)):
            at, value = chance.randrange(len(body)), chance.choice(values)
            body[at : at + chance.randint(0, 12)] = value
        count = len(bytes(body).splitlines())
        end = {"type": "end", "lines": count, "sha256": hashlib.sha256(body).hexdigest()}
        try:
            found = parse_snapshot(bytes(body) + json.dumps(end).encode() + b"\n", "manifest", snapshot.id)
        except CorruptTierError:
            refused += 1
            continue
        for name in found.objects():
            assert ".." not in Path(name).parts and not name.startswith("/")
        assert all("/" not in file.name and file.name not in ("", ".", "..") for file in found.all_files())
        assert all("/" not in each.name for directory in found.directories for each in directory.partitions)
    assert refused > rounds // 2


@pytest.mark.parametrize("end", [0, 1, -1, -40, -200])
def test_a_cut_manifest_is_refused(tmp_path: Path, end: int) -> None:
    snapshot = stored(clean_logs(tmp_path), tmp_path / "backup")
    with pytest.raises(CorruptTierError):
        parse_snapshot(format_snapshot(snapshot)[:end], "manifest", snapshot.id)
