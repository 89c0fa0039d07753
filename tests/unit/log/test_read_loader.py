"""Opening for reading shows what a starting broker would serve, builds none of its state, and touches nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from seglog.api.opening import opened_for_reading
from seglog.clock import FixedClock
from seglog.configuration.keys import LogConfig
from seglog.errors import NotALogError, UnsupportedError
from seglog.log import loader, producer_state
from seglog.log.loader import LoadOptions, load_log
from seglog.log.log import Log
from seglog.log.read_loader import LogPlace, load_for_reading
from seglog.model import Isolation
from seglog.storage.filesystem import File, FileStatus, OpenMode, PassingFileSystem
from tests.support.log_files import FS, batch, files_of, transactional, write_three_segments

T = TypeVar("T")
CLOCK = FixedClock(5000)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    write_three_segments(tmp_path / "t-0")
    return tmp_path / "t-0"


def place_of(directory: Path, start: int = 0) -> LogPlace:
    options = LoadOptions(clean_shutdown=False, writable=False, log_start_offset=start)
    return LogPlace(FS, directory, CLOCK, start, lambda: options)


def add(directory: Path, name: str, data: bytes = b"") -> None:
    (directory / name).write_bytes(data)


def extend(directory: Path, base: int, data: bytes) -> None:
    path = directory / f"{base:020d}.log"
    path.write_bytes(path.read_bytes() + data)


def merged(directory: Path) -> bytes:
    return b"".join((directory / f"{base:020d}.log").read_bytes() for base in (0, 20))


def epochs(*lines: str) -> bytes:
    return "\n".join(("0", str(len(lines)), *lines, "")).encode()


STATES: dict[str, Callable[[Path], object]] = {
    "closed": lambda log: None,
    "a torn end": lambda log: extend(log, 40, b"\x00\x01torn"),
    "zeros at the end": lambda log: extend(log, 40, bytes(4096)),
    "an empty active segment": lambda log: add(log, f"{60:020d}.log"),
    "an open transaction": lambda log: extend(log, 40, transactional(60, 7, 0)),
    "no index": lambda log: (log / f"{40:020d}.index").unlink(),
    "padded indexes": lambda log: add(log, f"{40:020d}.index", bytes(800)),
    "a finished swap": lambda log: add(log, f"{0:020d}.log.swap", merged(log)),
    "a swap that holds less": lambda log: add(log, f"{20:020d}.log.swap", batch(20, 3)),
    "a swap that was not finished": lambda log: [
        add(log, f"{0:020d}.log.cleaned", b"half"),
        add(log, f"{20:020d}.log.swap", batch(20, 5)),
    ],
    "a cleaning cut short": lambda log: add(log, f"{0:020d}.log.cleaned", b"half"),
    "deleted files": lambda log: add(log, f"{0:020d}.log.deleted", batch(0, 1)),
    "an index without a log": lambda log: add(log, f"{99:020d}.index", bytes(8)),
    "a stray snapshot": lambda log: add(log, f"{33:020d}.snapshot", b"nothing"),
    "a name that is no offset": lambda log: add(log, "x.log"),
    "a transaction index that lies": lambda log: add(log, f"{40:020d}.txnindex", bytes(34)),
    "epochs beyond the end": lambda log: add(log, "leader-epoch-checkpoint", epochs("1 0", "2 30", "3 60")),
    "epochs that cannot be read": lambda log: add(log, "leader-epoch-checkpoint", b"rubbish"),
    "no segment": lambda log: [path.unlink() for path in log.iterdir()],
    "damage in the middle": lambda log: extend(log, 20, b"\xff" * 40),
}


@pytest.mark.parametrize("start", [0, 25, 60, 1000])
@pytest.mark.parametrize("state", STATES)
def test_it_shows_what_the_loader_shows(state: str, start: int, log: Path) -> None:
    """Whatever a crash left, and wherever the checkpoint has the log start."""
    STATES[state](log)
    before = files_of(log)
    options = LoadOptions(clean_shutdown=False, writable=False, log_start_offset=start)
    loaded, ours = load_log(FS, log, CLOCK, options), load_for_reading(place_of(log, start))
    assert (ours.log_start_offset, ours.log_end_offset) == (loaded.log_start_offset, loaded.log_end_offset)
    assert [(s.base_offset, s.size, s.trailing_bytes) for s in ours.segments] == [
        (s.base_offset, s.size, s.trailing_bytes) for s in loaded.segments
    ]
    assert ours.leader_epochs.entries == loaded.leader_epochs.entries
    assert ours.producers.open_transactions == loaded.producers.open_transactions
    assert (ours.recovery_point, ours.report) == (loaded.recovery_point, loaded.report)
    assert ours.settled == ("swap" in state or state == "no segment" or start == 1000)
    assert files_of(log) == before


def test_reading_builds_no_writers_state(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the loader runs nor are producers made; the last stable offset, and only that, asks for them."""
    extend(log, 40, transactional(60, 7, 0))
    built: list[object] = []
    for module, name in ((loader, "_Loader"), (producer_state, "ProducerStateManager")):
        real = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *args, real=real, **more: (built.append(real), real(*args, **more))[1])
    with Log.open_for_reading(place_of(log), LogConfig()) as opened:
        assert [record.offset for record in opened.records(58)] == [58, 59, 60]
        assert (opened.high_watermark, opened.leader_epoch, opened.segments.active.base_offset) == (61, 0, 40)
        assert built == []
        assert [record.offset for record in opened.records(58, Isolation.READ_COMMITTED)] == [58, 59]
        assert opened.last_stable_offset == 60
        assert len(built) == 1


def test_of_the_log_directory_only_the_log_starts_are_read(log: Path) -> None:
    """A partition is read beside others that are damaged, and a checkpoint that is not asked for may be."""
    add(log.parent, "log-start-offset-checkpoint", b"0\n1\nt 0 25\n")
    add(log.parent, "recovery-point-offset-checkpoint", b"rubbish")
    with opened_for_reading(log, fs=FS, clock=CLOCK, config_of=lambda _: LogConfig()) as opened:
        assert next(opened.records()).offset == 25
        assert opened.log_start_offset == 25


def test_a_brokers_log_start_is_not_that_of_a_deleted_partition(log: Path) -> None:
    """A broker's checkpoint speaks of the live one; where no broker is, it speaks of the directory with that name."""
    deleted = log.rename(log.with_name("t-0.0123456789abcdef0123456789abcdef-delete"))
    add(log.parent, "log-start-offset-checkpoint", b"0\n1\nt 0 25\n")
    with opened_for_reading(deleted, fs=FS, clock=CLOCK, config_of=lambda _: LogConfig()) as opened:
        assert opened.log_start_offset == 25
    add(log.parent, "meta.properties", b"version=1\n")
    with opened_for_reading(deleted, fs=FS, clock=CLOCK, config_of=lambda _: LogConfig()) as opened:
        assert opened.log_start_offset == 0


class GoingFileSystem(PassingFileSystem):
    """A broker deletes a partition after so many looks at it."""

    def __init__(self, directory: Path, looks: int) -> None:
        super().__init__(FS)
        self._directory, self.left = directory, looks

    def status(self, path: Path, follow: bool = True) -> FileStatus | None:
        return self._looked(super().status(path, follow))

    def list(self, directory: Path) -> list[str]:
        return self._looked(super().list(directory))

    def entries(self, directory: Path) -> Sequence[tuple[str, FileStatus]]:
        return self._looked(super().entries(directory))

    def open(self, path: Path, mode: OpenMode) -> File:
        return self._looked(super().open(path, mode))

    def _looked(self, found: T) -> T:
        self.left -= 1
        if self.left == 0:
            shutil.rmtree(self._directory)
        return found


def test_a_partition_that_goes_while_it_is_opened_is_no_log_any_more(log: Path, tmp_path: Path) -> None:
    gone = looks = 0
    while True:
        looks += 1
        copy = shutil.copytree(log, tmp_path / str(looks) / "t-0")
        fs = GoingFileSystem(copy, looks)
        try:
            with opened_for_reading(copy, fs=fs, clock=CLOCK, config_of=lambda _: LogConfig()):
                pass
        except NotALogError:
            gone += 1
        if fs.left > 0:
            break
    assert gone > 3


def test_what_is_no_partition_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotALogError, match="no such directory"):
        load_for_reading(place_of(tmp_path / "t-0"))
    add(tmp_path, "00000000000000000000.kafka")
    with pytest.raises(UnsupportedError, match=r"0\.7"):
        load_for_reading(place_of(tmp_path))
