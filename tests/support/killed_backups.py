"""Backups, prunes and erasures that are killed at any moment, in a directory or a bucket.

    python -m tests.support.killed_backups [--seed 7] [--kills 100] [--bucket]

A log directory grows, and `seglog backup`, `backup prune` or `backup redact` runs as a process, most of which are
killed (SIGKILL) at a moment after their first change to the repository, uniform over the time in which such a process
changes it. Whatever was killed: every snapshot that is listed restores to what its log directory was, without
what was erased since; an erasure counts in all snapshots or in none. Where it was cut short, no other run works before
`--resume` has ended it; and then no object has what was erased.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

from seglog import open_log
from seglog.locations import parse_location
from seglog.storage.local import LocalFileSystem
from seglog.storage.routing import RoutingFileSystem
from seglog_cli.exit_codes import ExitCode
from seglog_rescue.backup.erasures import known_erasures, unfinished_erasure
from seglog_rescue.backup.repository import PRUNED, Repository
from seglog_rescue.backup.restoring import restore_snapshots, verify_snapshots
from seglog_stores.formats.snapshot_manifest import MARKER, OBJECTS, PACKS, REDACTIONS, SNAPSHOTS
from seglog_stores.remote.filesystem import RemoteFileSystem
from tests.support.command_line import COMMAND, ROOT, environment
from tests.support.log_files import batch, contents_below
from tests.support.object_server import object_server

PARTITIONS = ("large-0", *(f"small-{number}" for number in range(6)))
BUCKET = "s3://bucket/backup"
ERASED_AT_ONCE = 3
TOPS = (MARKER, PRUNED, REDACTIONS, f"{SNAPSHOTS}-", SNAPSHOTS, OBJECTS, PACKS)

At = tuple[str, int]  # a partition's directory, and an offset
Records = Mapping[At, bytes | None]


def grow(logs: Path, chance: random.Random, offset: int) -> None:
    """Appends a batch to some partitions, and sometimes writes one anew, as a compaction does."""
    for name in PARTITIONS:
        log = logs / name / "00000000000000000000.log"
        size = 1_500_000 if name == "large-0" else 2000
        if not log.exists() or chance.random() < 0.1:
            log.parent.mkdir(parents=True, exist_ok=True)
            temporary = log.with_suffix(".new")
            temporary.write_bytes(batch(offset, value=chance.randbytes(size)))
            temporary.rename(log)
        elif chance.random() < 0.7:
            with log.open("ab") as file:
                file.write(batch(offset, value=chance.randbytes(size)))


def records_below(logs: Path) -> dict[At, bytes | None]:
    """The values in a log directory."""
    values = {}
    for name in PARTITIONS:
        with open_log(logs / name) as log:
            values |= {(name, record.offset): record.value for record in log.records(log.log_start_offset)}
    return values


@dataclass
class Kept:
    """What a snapshot was made of, and what was erased from it since."""

    contents: Mapping[str, bytes]
    records: Records
    erased: set[At] = field(default_factory=set)

    def without(self, more: set[At]) -> Records:
        """Its records when `more` is erased, too."""
        gone = self.erased | more
        return {at: None if at in gone else value for at, value in self.records.items()}


@dataclass
class KilledBackups:
    """A repository and the processes that work in it. `counts` is what there was: kills, by command and by where in the
    repository the process had made changes, and processes that ended."""

    root: Path
    chance: random.Random
    place: Path
    names: Callable[[], Mapping[str, int]]  # of what is stored, with their sizes
    read: Callable[[str], bytes]
    kept: dict[str, Kept] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    pending: set[At] = field(default_factory=set)
    _usual: dict[str, float] = field(default_factory=dict)  # seconds in which a process changes the repository
    _offset: int = 0

    @property
    def logs(self) -> Path:
        """The log directory."""
        return self.root / "logs"

    @property
    def kills(self) -> int:
        """How many processes were killed."""
        return sum(count for name, count in self.counts.items() if name.startswith("killed: "))

    def repository(self) -> Repository:
        """The repository, of which nothing is remembered."""
        return Repository(RoutingFileSystem(LocalFileSystem(), RemoteFileSystem), self.place)

    def step(self) -> None:
        """Runs a command, and judges what it leaves."""
        unfinished = unfinished_erasure(known_erasures(self.repository())) is not None
        draw = self.chance.random()
        if unfinished and draw < 0.7:
            self._erase(resume=True, may_kill=True)
        elif self.kept and draw < 0.3:
            self._erase(resume=False, may_kill=True, is_refused=unfinished)
        elif self.kept and draw < 0.45:
            self._run("prune", "--keep-last", "3", "--grace", "0s", may_kill=True, is_refused=unfinished)
            self._judge(set())
        else:
            self.back_up(may_kill=True, is_refused=unfinished)

    def back_up(self, *, may_kill: bool, is_refused: bool = False) -> None:
        """A run of `backup` on what has grown."""
        self._offset += 1
        grow(self.logs, self.chance, self._offset)
        self._run("backup", may_kill=may_kill, is_refused=is_refused)
        self._judge(set())

    def finish(self) -> None:
        """Ends what was cut short, makes a last snapshot, and judges all."""
        if unfinished_erasure(known_erasures(self.repository())) is not None:
            self._erase(resume=True, may_kill=False)
        self.back_up(may_kill=False)
        newest = max(self.kept)
        assert self.kept[newest].contents == contents_below(self.logs)
        self._judge(set(), everything=True)

    # --- processes ----------------------------------------------------------------------------------------

    def _erase(self, *, resume: bool, may_kill: bool, is_refused: bool = False) -> None:
        listed = self.repository().ids()
        if not resume:
            there = sorted({at for each in listed for at in self.kept[each].records} - self._erased_everywhere(listed))
            chosen = set(self.chance.sample(there, min(ERASED_AT_ONCE, len(there))))
            if not is_refused:
                self.pending = chosen
        if not self.pending:
            return
        rows = (f"{name.rpartition('-')[0]},{name.rpartition('-')[2]},{offset}\n" for name, offset in self.pending)
        table = self.root / "erased.csv"
        table.write_text("topic,partition,offset\n" + "".join(rows))
        words = ["--offsets-from", str(table), "--yes", *(["--resume"] if resume else [])]
        has_ended = self._run("redact", *words, may_kill=may_kill, is_refused=is_refused) and not is_refused
        self._judge(self.pending, must=has_ended)
        if has_ended:
            self._require_gone(listed)

    def _erased_everywhere(self, listed: list[str]) -> set[At]:
        return set.intersection(*(self.kept[each].erased for each in listed))

    def _require_gone(self, listed: list[str]) -> None:
        values = [
            value
            for at in self.pending
            for value in {self.kept[each].records.get(at) for each in listed}
            if value is not None
        ]
        for name in self.names():
            data = self.read(name)
            assert not any(value[:500] in data for value in values), f"{name} has what was erased"
        self.counts["objects searched"] += len(self.names())

    def _run(self, kind: str, *words: str, may_kill: bool, is_refused: bool = False) -> bool:
        """Runs a command; False if it was killed before it had ended."""
        to = ["--to", str(self.place), "--uncommitted"]
        given = ["backup", str(self.logs), *to] if kind == "backup" else ["backup", kind, str(self.place), *words]
        is_killed = may_kill and not is_refused and self.chance.random() < 0.9
        before, pipe = self.names(), subprocess.PIPE
        with subprocess.Popen([*COMMAND, *given], stdout=pipe, stderr=pipe, env=environment(), cwd=ROOT) as process:
            self._await(process, lambda: self.names() != before)
            changes, usual = _Changes(self.names), self._usual.get(kind, 0.3)
            limit = self.chance.uniform(0, 1.1 * usual) if is_killed else 600
            self._await(process, lambda: changes.seconds() >= limit)
            process.kill()  # nothing for one that has ended
            said = process.communicate()
            code = process.returncode
        if code < 0:
            assert is_killed, (given, code, said)
            now = self.names()
            changed = {name for name in now.keys() | before.keys() if now.get(name) != before.get(name)}
            where = " ".join(sorted(set(map(self._what, changed)))) or "nothing that is left"
            self.counts[f"killed: {kind} after {where}"] += 1
            return False
        self._usual[kind] = 0.5 * usual + 0.5 * (changes.last - changes.began)
        assert code == (ExitCode.REFUSED if is_refused else 0), (given, code, said)
        self.counts[f"{'refused' if is_refused else 'ended'}: {kind}"] += 1
        return True

    @staticmethod
    def _await(process: subprocess.Popen[bytes], is_there: Callable[[], bool]) -> None:
        while process.poll() is None and not is_there():
            time.sleep(0.0005)

    def _what(self, name: str) -> str:
        """The folder of the repository in which a name lies, or the marker."""
        top = next(top for top in TOPS if top in name.rpartition("/backup/")[2])
        return f"unfinished-{top}" if name.endswith((".part", ".tmp")) else top

    # --- snapshots ----------------------------------------------------------------------------------------

    def _judge(self, erasing: set[At], *, must: bool = False, everything: bool = False) -> None:
        """Restores what is listed: all of it after an erasure, else one snapshot and what is new."""
        repository = self.repository()
        ids = repository.ids()
        new = [identity for identity in ids if identity not in self.kept]
        assert len(new) <= 1, "a run made several snapshots"
        self.kept = {each: self.kept[each] for each in ids if each not in new}
        self.kept |= {each: Kept(contents_below(self.logs), records_below(self.logs)) for each in new}
        self.counts["snapshots"] += len(new)
        found = verify_snapshots(repository, ids if everything else ids[-3:], 1.0, self.chance, lambda _size: None)
        assert not found.problems
        chosen = ids if erasing or everything else [*new, *self.chance.sample(ids, min(1, len(ids)))]
        outcomes = {self._is_erased(repository, each, erasing) for each in chosen} - {None}
        assert len(outcomes) <= 1, "an erasure counts in some snapshots only"
        if outcomes == {True}:
            for kept in self.kept.values():
                kept.erased |= erasing & kept.records.keys()
        assert outcomes != {False} or not must, "an erasure that has ended does not count"

    def _is_erased(self, repository: Repository, identity: str, erasing: set[At]) -> bool | None:
        """Whether an erasure counts in a snapshot, None where it makes no difference. The rest must be as it was."""
        kept, self.counts["restored"] = self.kept[identity], self.counts["restored"] + 1
        with tempfile.TemporaryDirectory(dir=self.root) as into:
            target = Path(into) / "new"
            snapshot = repository.read(identity)
            restore_snapshots(repository, [snapshot], LocalFileSystem(), target, lambda _size: None)
            if not kept.erased and contents_below(target) == kept.contents:
                return False if erasing & kept.records.keys() else None
            records = records_below(target / self.logs.name if (target / self.logs.name).is_dir() else target)
        before, after = kept.without(set()), kept.without(erasing)
        assert records in (before, after), f"{identity} is not what it was"
        return None if before == after else records == after


@dataclass
class _Changes:
    """When a repository was changed: first, last, and how long that lasts. `names` are of what is stored."""

    names: Callable[[], Mapping[str, int]]
    began: float = field(default_factory=time.monotonic)
    last: float = 0.0
    _now: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.last, self._now = self.began, self.names()

    def seconds(self) -> float:
        """Looks; returns the time since the first change."""
        now, moment = self.names(), time.monotonic()
        if now != self._now:
            self.last, self._now = moment, now
        return moment - self.began


def sizes_below(place: Path) -> dict[str, int]:
    """The files in a directory in which a process is at work, with their sizes."""
    sizes = {}
    for top, _, names in os.walk(place):
        for name in names:
            with suppress(FileNotFoundError):  # it was removed meanwhile
                sizes[f"{top}/{name}"] = (Path(top) / name).stat().st_size
    return sizes


def killed_backups(root: Path, seed: int, kills: int, *, bucket: bool) -> Counter[str]:
    """Kills so many processes in a repository; returns what there was. AssertionError for what must not be."""
    with ExitStack() as stack:
        if bucket:
            server = stack.enter_context(object_server())
            stack.enter_context(patch.dict(os.environ, server.environment))
            work = KilledBackups(
                root,
                random.Random(seed),
                parse_location(BUCKET),
                lambda: {name: len(data) for name, data in dict(server.objects).items()},
                lambda name: server.objects[name],
            )
        else:
            place = root / "backup"
            work = KilledBackups(
                root,
                random.Random(seed),
                place,
                lambda: sizes_below(place),
                lambda name: Path(name).read_bytes(),
            )
        while work.kills < kills:
            work.step()
        work.finish()
    return work.counts


def main() -> int:
    """Kills, and says what there was."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--bucket", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="killed-backups-") as root:
        counts = killed_backups(Path(root), asked.seed, asked.kills, bucket=asked.bucket)
    sys.stdout.write(
        f"seed {asked.seed}, {'bucket' if asked.bucket else 'directory'}: {dict(sorted(counts.items()))}\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
