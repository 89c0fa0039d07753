"""Log directories with compacted logs, for the cleaner's manager, service and commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from seglog.cleaner.round import CleanerOptions
from seglog.clock import Clock
from seglog.configuration.keys import LogConfig
from seglog.configuration.precedence import ResolvedConfig
from seglog.configuration.settings import load_settings
from seglog.log.directory import LogDirectory
from seglog.model import Record, TopicPartition
from seglog.operations.clean import DirectoryCleaning, Outcome, clean_directories, directories_of
from seglog.operations.workspace import by_log_directory
from seglog.scan.listing import list_log_directory, resolve_paths
from seglog.storage.filesystem import FileSystem
from seglog.storage.local import LocalFileSystem
from tests.support.manual_clock import ManualClock
from tests.support.open_logs import START_MS

FS = LocalFileSystem()


class Topics:
    """Configuration by topic: what is given counts as known, every other topic has Kafka's defaults."""

    def __init__(self, **values: object) -> None:
        self.values = {name.replace("_", "."): value for name, value in values.items()}
        self.settings = load_settings(FS, environment={"HOME": "/nowhere"}, working_directory=Path("/nowhere"))

    def resolve(self, topic: str | None) -> ResolvedConfig:
        return self.settings.resolve(topic, chosen=self.values)

    def __call__(self, topic: str) -> LogConfig:
        return self.resolve(topic).log


def fill(directory: LogDirectory, name: str, segments: int, keys: int, records: int = 40, value: bytes = b"v") -> None:
    """Appends to a partition: so many closed segments of `records` records each, over `keys` keys."""
    topic, _, partition = name.rpartition("-")
    log = directory.log(TopicPartition(topic, int(partition)), create=True)
    for _ in range(segments):
        start = log.log_end_offset
        keyed = (Record(value, b"k%d" % ((start + n) % keys), START_MS + start + n) for n in range(records))
        log.append(list(keyed), batch_records=5)
        log.roll()


def broker_directory(path: Path, contents: Mapping[str, tuple[int, int]], **config: object) -> Path:
    """A log directory as a broker leaves it; `contents` maps partitions to (closed segments, keys)."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "meta.properties").write_text("version=1\ncluster.id=test\nnode.id=1\n")
    with opened(path, **config) as directory:
        for name, (segments, keys) in contents.items():
            fill(directory, name, segments, keys)
    return path


def opened(path: Path, *, writable: bool = True, clock: Clock | None = None, **config: object) -> LogDirectory:
    """The directory, every topic configured by `config` (fields of LogConfig)."""
    chosen = LogConfig(**{"cleanup_policy": frozenset({"compact"}), **config})  # type: ignore[arg-type]
    return LogDirectory.open(
        path, fs=FS, clock=clock or ManualClock(START_MS), config_of=lambda _: chosen, writable=writable
    )


def keys_of(path: Path, name: str) -> list[bytes | None]:
    """The keys in a partition, in order."""
    topic, _, partition = name.rpartition("-")
    with opened(path, writable=False) as directory:
        return [record.key for record in directory.log(TopicPartition(topic, int(partition))).records()]


def partitions(path: Path) -> list[str]:
    """The live partitions by name."""
    return [str(found.topic_partition) for found in list_log_directory(FS, path).live]


def clean(
    fs: FileSystem,
    paths: Sequence[Path],
    topics: object,
    clock: Clock,
    options: CleanerOptions,
    *,
    dry_run: bool = False,
) -> list[Outcome]:
    """`operations.clean.clean` with any configuration and options."""
    work = cleanings(fs, paths, topics, options)
    return list(clean_directories(fs, clock, work, dry_run=dry_run))


def cleanings(
    fs: FileSystem, paths: Sequence[Path], topics: object, options: CleanerOptions
) -> list[DirectoryCleaning]:
    """The work of a cleaning with any configuration and options."""
    return directories_of(fs, by_log_directory(resolve_paths(fs, paths)), lambda _: topics, options)  # type: ignore[arg-type,return-value]
