"""A repository is untrusted: a manifest is refused by name, or all that it says is proved; so is what objects hold."""

from __future__ import annotations

import os
import random
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from seglog.errors import CorruptTierError
from seglog.storage.routing import machine_files
from seglog_rescue.backup.repository import Repository
from seglog_rescue.backup.restoring import verify_snapshots
from seglog_stores.formats.snapshot_manifest import FILE_BYTES_LIMIT, format_snapshot
from seglog_stores.formats.snapshot_reading import parse_snapshot
from tests.support.hostile_backups import Repositories, Trial
from tests.support.hostile_manifests import formatted, sealed


@pytest.fixture(scope="module")
def repositories(tmp_path_factory: pytest.TempPathFactory) -> Repositories:
    return Repositories(tmp_path_factory.mktemp("hostile"))


def test_mutated_manifests_and_objects_are_refused_or_restore_as_they_say(repositories: Repositories) -> None:
    """`python -m tests.support.hostile_backups` tries 100,000."""
    outcomes: set[str] = set()
    for seed in range(300):
        trial = Trial(repositories, random.Random(seed))
        trial.run()
        outcomes |= trial.outcomes.keys()
    assert outcomes >= {"refused", "found by its digests", "restored as it says", "taken by the commands, too"}


def test_a_log_that_is_said_to_have_more_bytes_than_any_disk_is_refused_in_no_time(tmp_path: Path) -> None:
    """This seed exchanges the size of an extent; names of packs decide which of them, about every second time."""
    for number in range(8):
        Trial(Repositories(tmp_path / str(number)), random.Random(51582), 1.0).run()


@pytest.mark.parametrize("more", [0, 1])
def test_a_file_larger_than_a_log_can_have_is_refused(repositories: Repositories, more: int) -> None:
    snapshot = repositories.repository.read(repositories.ids[0])
    (directory, *others) = snapshot.directories
    file = directory.files[0]
    (extent,) = file.extents
    large = replace(file, extents=(replace(extent, size=FILE_BYTES_LIMIT + more),))
    changed = replace(directory, files=(large, *directory.files[1:]))
    data = format_snapshot(replace(snapshot, directories=(changed, *others)))
    with pytest.raises(CorruptTierError, match="more than a file of a log") if more else nullcontext():
        parse_snapshot(data, "manifest", snapshot.id)


def other_manifest(repositories: Repositories, old: str, new: str) -> None:
    path = repositories.repository.manifest_path(repositories.ids[0])
    text = b"".join(formatted(repositories.lines["backup"][repositories.ids[0]])).decode()
    assert old in text
    path.write_bytes(sealed([text.replace(old, new, 1).encode()]))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"name": "meta.properties"', '"name": "orders-0"'),  # a file and a partition
        ("objects/orders-0/", "objects/orders-1/"),
        ("00000000000000000000-0-", "00000000000000000007-0-"),
        ('.log"', '.index"'),
    ],
)
def test_parts_of_other_files_are_refused(tmp_path: Path, old: str, new: str) -> None:
    repositories = Repositories(tmp_path)
    other_manifest(repositories, old, new)
    with pytest.raises(CorruptTierError, match=repositories.ids[0]):
        repositories.repository.read(repositories.ids[0])


def test_bytes_that_manifests_name_in_two_ways_are_told_and_read_once(tmp_path: Path) -> None:
    """A manifest of a few megabytes could name some bytes so often that nobody lives to see them read."""
    repositories = Repositories(tmp_path)
    lines = repositories.lines["backup"][repositories.ids[0]]
    file = next(file for line in lines for file in line.get("files", ()) if file["extents"][0][0].startswith("packs/"))
    name, position, size, digest = file["extents"][0]
    file["extents"] += [[name, position + at, size - at, digest] for at in range(1, size)]
    manifest = repositories.repository.manifest_path(repositories.ids[0])
    manifest.write_bytes(sealed(formatted(lines)))
    done = verify_snapshots(repositories.repository, repositories.ids, 1, random.Random(1), lambda _size: None)
    objects = sum(status.size for _, status in repositories.repository.objects())
    assert len(done.problems) == size - 1 and done.bytes <= objects


@pytest.mark.parametrize("top", ["snapshots", "packs"])
def test_verify_goes_on_after_what_a_disk_cannot_read(tmp_path: Path, top: str) -> None:
    repositories = Repositories(tmp_path)
    place = repositories.place / "backup" / top
    path = sorted(place.iterdir())[0]
    path.unlink()
    os.mkfifo(path)
    repository = Repository(machine_files(), repositories.place / "backup")
    done = verify_snapshots(repository, repositories.ids, 1, random.Random(1), lambda _size: None)
    assert done.problems and all(error.path == path for error, _ in done.problems)
    assert done.extents > len(done.problems)


@pytest.mark.parametrize("text", ["", "{}", '{"snapshots": "../x"}', '{"snapshots": "snapshots-1"}', "[1]"])
def test_a_mark_that_names_no_folder_of_manifests_is_refused(tmp_path: Path, text: str) -> None:
    repository = Repositories(tmp_path).repository
    repository.create("redactions/00000001.committed", text.encode())
    with pytest.raises(CorruptTierError, match=r"00000001\.committed"):
        repository.ids()
