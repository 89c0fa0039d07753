"""Backup repositories in which manifests and objects were changed, and what every command must make of them.

    python -m tests.support.hostile_backups [--mutations 100000] [--seed 45] [--commands 0.03]

A manifest is refused with an error that names it, or all that it says is proved: what a restore makes is, byte for
byte, what the named parts of objects hold, their digests are right, and nothing is made elsewhere. `Trial.run` takes
one mutation through list, verify, restore, and the reading in place, and a share of them through the commands. What it
takes is limited in memory and in time.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType

from seglog.errors import CorruptTierError, SeglogError
from seglog.storage.filesystem import read_whole
from seglog.storage.local import LocalFileSystem
from seglog.storage.routing import machine_files
from seglog_cli.exit_codes import ExitCode
from seglog_rescue.backup import sending
from seglog_rescue.backup.repository import Repository, digest_of
from seglog_rescue.backup.restoring import damage_of, restore_snapshots, size_of, verify_snapshots
from seglog_rescue.backup.summaries import SnapshotSummary, Summaries
from seglog_rescue.operations.backup import BackupRequest, backup, chosen_snapshots
from seglog_stores.formats.snapshot_manifest import Snapshot, directory_names, packed_manifest
from seglog_stores.formats.snapshot_reading import unpacked_manifest
from seglog_stores.tiers.snapshots import ShownSnapshot, files_of_kept
from tests.support.command_line import ended
from tests.support.hostile_manifests import CHANGES, Lines, formatted, raw_change, sealed
from tests.support.log_files import batch
from tests.support.manual_clock import ManualClock

NOW = 1_764_331_200_000
OF_COMMANDS = 0.03
LARGE_BYTES = 4096  # of an object of its own, here
MOST_SECONDS = 20  # for one mutation: more is a hang


class HangError(Exception):
    """A mutation took too long."""


class Repositories:
    """A repository with three snapshots, of a broker with two log directories and of another with one; and another
    repository with other content, in which names are the same.
    """

    def __init__(self, place: Path) -> None:
        self.place = place
        usual, sending.LARGE_BYTES = sending.LARGE_BYTES, LARGE_BYTES
        try:
            for name in ("backup", "other"):
                self._fill(place / name, random.Random(name))
        finally:
            sending.LARGE_BYTES = usual
        self.repository = Repository(machine_files(), place / "backup")
        self.ids = self.repository.ids()
        self.lines = {name: self._lines(place / name) for name in ("backup", "other")}
        self.objects = {name: [path for path, _ in repository.objects()] for name, repository in self._both()}

    def _both(self) -> Iterator[tuple[str, Repository]]:
        for name in ("backup", "other"):
            yield name, Repository(machine_files(), self.place / name)

    def _fill(self, target: Path, chance: random.Random) -> None:
        logs = target.with_name(f"{target.name}-logs")
        directories = [logs / "data-1" / "kafka", logs / "data-2" / "kafka", logs / "data-3" / "kafka"]
        for number, directory in enumerate(directories):
            for partition in ("orders-0", f"orders-{number + 1}", f"small.topic-{number}"):
                (directory / partition).mkdir(parents=True)
            broker = number // 2
            (directory / "meta.properties").write_text(f"version=1\nnode.id={broker}\ncluster.id=abc\n")
            (directory / "recovery-point-offset-checkpoint").write_text("0\n1\norders-0 2\n")
        for time_of_run in range(2):
            for directory in directories:
                self._append(directory, chance)
            for named in (directories[:2], directories[2:])[: 2 - time_of_run]:
                clock = ManualClock(NOW + 1000 * time_of_run)
                backup(LocalFileSystem(), machine_files(), clock, BackupRequest(named, target))
        shutil.rmtree(logs)

    @staticmethod
    def _append(directory: Path, chance: random.Random) -> None:
        for partition in directory.iterdir():
            if partition.is_dir():
                size = 100 if partition.name.startswith("small") else 3000
                with (partition / "00000000000000000000.log").open("ab") as log:
                    first = log.tell() // size
                    log.writelines(batch(first + i, value=chance.randbytes(size)) for i in range(2))
                (partition / "00000000000000000000.index").write_bytes(chance.randbytes(16))
                (partition / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")

    @staticmethod
    def _lines(place: Path) -> dict[str, Lines]:
        manifests = sorted((place / "snapshots").iterdir())
        texts = {path.stem: unpacked_manifest(path.read_bytes(), path) for path in manifests}
        return {name: [json.loads(line) for line in text.splitlines()[:-1]] for name, text in texts.items()}


# --- trials -----------------------------------------------------------------------------------------------


class Trial:
    """What happens with mutations of the repository's manifests and objects."""

    def __init__(self, repositories: Repositories, chance: random.Random, of_commands: float = OF_COMMANDS) -> None:
        self.repositories, self.chance, self._of_commands = repositories, chance, of_commands
        self.outcomes: Counter[str] = Counter()
        self.what = ""  # the last mutation
        self._target = repositories.place / "restored"

    def run(self) -> None:
        """Makes one mutation, tries every command, and takes it back. Raises AssertionError, or what escapes."""
        identity = self.chance.choice(self.repositories.ids)
        with limited(), self._mutated(identity):
            self._try(identity)
            if self.chance.random() < self._of_commands:
                self._try_commands(identity)

    @contextmanager
    def _mutated(self, identity: str) -> Iterator[None]:
        if self.chance.random() < 0.15:
            with self._other_object():
                yield
            return
        path = self.repositories.repository.manifest_path(identity)
        before = path.read_bytes()
        path.write_bytes(self._other_manifest(identity, before))
        try:
            yield
        finally:
            path.write_bytes(before)

    def _other_manifest(self, identity: str, before: bytes) -> bytes:
        chance, lines = self.chance, copy.deepcopy(self.repositories.lines["backup"][identity])
        if chance.random() < 0.25:
            self.what = "bytes"
            if chance.random() < 0.3:
                return raw_change(before, chance)  # a frame that does not expand, or to something else
            text = sealed([raw_change(b"".join(formatted(lines)), chance)])
            return raw_change(text, chance) if chance.random() < 0.2 else text  # the last line does not fit, too
        others = chance.choice(
            [*self.repositories.lines["backup"].values(), *self.repositories.lines["other"].values()]
        )
        change = chance.choice(CHANGES)
        self.what = change.__name__
        change(lines, others, chance)
        text = sealed(formatted(lines))
        return packed_manifest(text) if chance.random() < 0.5 else text

    @contextmanager
    def _other_object(self) -> Iterator[None]:
        chance, place = self.chance, self.repositories.place
        path = place / "backup" / chance.choice(self.repositories.objects["backup"])
        other = place / "backup" / chance.choice(self.repositories.objects["backup"])
        foreign = place / "other" / chance.choice(self.repositories.objects["other"])
        data, others = path.read_bytes(), other.read_bytes()
        at = chance.randrange(len(data))
        kinds: dict[str, Callable[[], object]] = {
            "an object that was cut": lambda: path.write_bytes(data[:at]),
            "an object with another byte": lambda: path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]),
            "an object that grew": lambda: path.write_bytes(data + others),
            "exchanged objects": lambda: (path.write_bytes(others), other.write_bytes(data)),
            "an object of another repository": lambda: path.write_bytes(foreign.read_bytes()),
            "no object": path.unlink,
            "a directory in place of an object": lambda: (path.unlink(), path.mkdir()),
            "a pipe in place of an object": lambda: (path.unlink(), os.mkfifo(path)),
            "a link to a device in place of an object": lambda: (path.unlink(), path.symlink_to("/dev/zero")),
            "a link to a file in place of an object": lambda: (path.unlink(), path.symlink_to("/etc/passwd")),
            "a link to itself in place of an object": lambda: (path.unlink(), path.symlink_to(path)),
        }
        self.what = chance.choice(list(kinds))
        kinds[self.what]()
        try:
            yield
        finally:
            if path.is_dir() and not path.is_symlink():
                path.rmdir()
            path.unlink(missing_ok=True)
            path.write_bytes(data)
            other.write_bytes(others)

    def _try(self, identity: str) -> None:
        repository = self.repositories.repository
        manifest = repository.manifest_path(identity)
        listed = self._listed(identity)
        try:
            snapshot = repository.read(identity)
        except CorruptTierError as error:
            assert str(manifest) in str(error), error
            assert str(listed) == str(error), "it is listed as something else"
            self.outcomes["refused"] += 1
            self._require_refusal(identity)
            return
        except OSError as error:
            assert self._is_named(error), error
            self.outcomes["refused"] += 1
            return
        damage = [str(line) for line in damage_of(snapshot)]
        assert isinstance(listed, SnapshotSummary), listed
        counted = [(replace(each, partitions=()), len(each.partitions)) for each in snapshot.directories]
        assert (list(listed.directories), listed.size, listed.damaged) == (counted, snapshot.size, len(damage))
        checked = verify_snapshots(repository, [identity], 1, random.Random(1), lambda _: None)
        made = self._restored(identity)
        right = self._content(snapshot)
        if right is None:
            assert checked.problems and made is None, "nobody noticed"
            self.outcomes["found by its digests"] += 1
        elif made is None:
            self.outcomes["sound, and cannot be made"] += 1
        else:
            assert made == right, "it restored something else"
            self.outcomes["restored as it says" + (", overlaps told" if checked.problems else "")] += 1
        self._read_in_place(snapshot, right)

    def _listed(self, identity: str) -> SnapshotSummary | SeglogError | OSError:
        """What a list says of a manifest after the others, with which it has lines in common."""
        repository, summaries = self.repositories.repository, Summaries()
        for other in self.repositories.ids:
            if other != identity:
                summaries.of(repository.manifest(other))
        try:
            return summaries.of(repository.manifest(identity))
        except (SeglogError, OSError) as error:
            return error

    def _require_refusal(self, identity: str) -> None:
        """The other commands refuse it as well, and go on with others."""
        repository = self.repositories.repository
        checked = verify_snapshots(repository, self.repositories.ids, 1, random.Random(1), lambda _: None)
        assert [named for _, named in checked.problems] == [(identity,)], checked.problems
        try:
            chosen_snapshots(repository, identity, None)
        except SeglogError:
            return
        raise AssertionError("it was chosen")

    def _restored(self, identity: str) -> dict[str, bytes] | None:
        """Returns what a restore makes, None if it is refused."""
        repository, target = self.repositories.repository, self._target
        before = sorted(self.repositories.place.iterdir())
        try:
            chosen = chosen_snapshots(repository, identity, None)
            size_of(chosen)
            restore_snapshots(repository, chosen, LocalFileSystem(), target, lambda _: None)
        except (SeglogError, OSError) as error:
            assert self._is_named(error), error
            assert not target.exists() and sorted(self.repositories.place.iterdir()) == before, "something was left"
            return None
        made = {str(path.relative_to(target)): path.read_bytes() for path in target.rglob("*") if path.is_file()}
        assert not any(path.is_symlink() for path in target.rglob("*"))
        shutil.rmtree(target)
        assert sorted(self.repositories.place.iterdir()) == before, "something was made elsewhere"
        return made

    def _content(self, snapshot: Snapshot) -> dict[str, bytes] | None:
        """Returns what the manifest says, by reading the objects plainly; None if an extent is not what it says."""
        files: dict[str, bytes] = {}
        place = self.repositories.repository.place
        for directory, shown in zip(snapshot.directories, directory_names(snapshot.directories), strict=True):
            named = [(f"{shown}/{file.name}", file) for file in directory.files]
            named += [
                (f"{shown}/{each.name}/{file.name}", file) for each in directory.partitions for file in each.files
            ]
            for name, file in named:
                parts = []
                for extent in file.extents:
                    path = place / extent.object
                    if not path.is_file() or path.stat().st_size < extent.position + extent.size:
                        return None
                    with LocalFileSystem().open(path, "r") as opened:
                        if digest_of(opened, extent.position, extent.position + extent.size) != extent.digest:
                            return None
                        parts.append(opened.read_at(extent.position, extent.size))
                files[name.removeprefix("/")] = b"".join(parts)
        return files

    def _read_in_place(self, snapshot: Snapshot, right: dict[str, bytes] | None) -> None:
        """Reads all files where they are: as the restore made them, or an error that names the object."""
        repository = self.repositories.repository
        root = repository.place.with_name(f"{repository.place.name}#{snapshot.id}")
        status = repository.fs.status(repository.manifest_path(snapshot.id))
        assert status is not None
        shown = ShownSnapshot(repository.fs, root, repository.place, status, snapshot)
        stored = dict(shown.files())
        for place in shown.places():
            assert place.kept is not None
            stored |= {place.directory / name: file for name, file in files_of_kept(repository.fs, place.kept).items()}
        for path, file in stored.items():
            try:
                with file.open(path) as opened:
                    data = read_whole(opened, 1 << 26)
            except (SeglogError, OSError) as error:
                assert right is None or file.status.size > 1 << 20, error
                assert self._is_named(error), error
                continue
            assert right is None or right[str(path.relative_to(root))] == data, path

    def _try_commands(self, identity: str) -> None:
        """No command ends with a traceback, whatever it finds."""
        place = self.repositories.repository.place
        shown = f"{place}#{identity}"
        lines: list[list[str | Path]] = [
            ["backup", "list", place],
            ["backup", "list", "--json", place],
            ["backup", "verify", place],
            ["backup", "verify", "--json", "--sample", "50%", place],
            ["backup", "prune", "--keep-last", "1", "--dry-run", place],
            ["backup", "restore", place, "--snapshot", identity, "-o", self._target],
        ]
        for name in ("ls", "verify", "stats", "read"):
            lines.append([name, shown])
            lines.append([name, f"{shown}/orders-0"])
        for line in lines:
            done = ended(*line)
            assert done.code != ExitCode.INTERNAL and b"Traceback" not in done.stderr, (line, done.stderr[-400:])
        shutil.rmtree(self._target, ignore_errors=True)
        self.outcomes["taken by the commands, too"] += 1

    def _is_named(self, error: Exception) -> bool:
        text = str(error)
        return str(self.repositories.place) in text or (isinstance(error, OSError) and error.filename is not None)


@contextmanager
def limited() -> Iterator[None]:
    """Ends what takes too long with a HangError."""

    def ring(_signal: int, _frame: FrameType | None) -> None:
        raise HangError

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(MOST_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def main() -> int:
    """Tries mutations; prints their outcomes, and the seed of each that fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutations", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=45)
    parser.add_argument("--commands", type=float, default=OF_COMMANDS)
    given = parser.parse_args()
    began, failures, outcomes = time.process_time(), 0, Counter[str]()
    with tempfile.TemporaryDirectory(prefix="hostile-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as place:
        repositories = Repositories(Path(place))
        for count, seed in enumerate(range(given.seed, given.seed + given.mutations)):
            if count and count % 5000 == 0:
                sys.stdout.write(f"{count} so far, {failures} failures: {dict(outcomes)}\n")
                sys.stdout.flush()
            trial = Trial(repositories, random.Random(seed), given.commands)
            try:
                trial.run()
            except Exception as error:  # noqa: BLE001, what is looked for
                failures += 1
                sys.stdout.write(f"seed {seed}, {trial.what}: {type(error).__name__}: {str(error)[:300]}\n")
                sys.stdout.flush()
                shutil.rmtree(Path(place) / "restored", ignore_errors=True)
            outcomes.update(trial.outcomes)
    for name, times in sorted(outcomes.items()):
        sys.stdout.write(f"{times:>8}  {name}\n")
    sys.stdout.write(f"{given.mutations} mutations, {failures} failures, {time.process_time() - began:.0f} CPU s\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
