"""What an operation needs of its surroundings: files, clock, threads, and where configuration comes from.

A command of the command line makes one of its common options, the library of a function's keyword arguments.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from seglog.clock import Clock, SystemClock
from seglog.configuration.precedence import Settings
from seglog.configuration.settings import DirectorySettings, load_settings
from seglog.ordered_pool import available_threads
from seglog.remote.routing import machine_files
from seglog.scan.listing import Target, TargetKind
from seglog.storage import links
from seglog.storage.filesystem import FileSystem


@dataclass(frozen=True)
class Sources:
    """What a verb's own options say of configuration: values by Kafka's key (None where an option was not given),
    whether the user insists on what goes against the cluster's, and the log directory with the cluster's metadata."""

    chosen: Mapping[str, object] = field(default_factory=dict)
    override_policy: bool = False
    metadata_directory: Path | None = None


@dataclass(frozen=True)
class Workspace:
    """`overrides` (`KEY=VALUE`) and `config_file` are the options --set and --config, `jobs` --jobs (None: all cores);
    `environment` has SEGLOG_CONFIG and the variables of single keys."""

    fs: FileSystem = field(default_factory=machine_files)
    clock: Clock = field(default_factory=SystemClock)
    overrides: tuple[str, ...] = ()
    config_file: Path | None = None
    jobs: int | None = None
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)

    @property
    def threads(self) -> int:
        """How many threads an operation may use."""
        return self.jobs or available_threads()

    def given_settings(self) -> Settings:
        """The sources that hold for every log directory. ConfigError for an unknown key or impossible value."""
        return load_settings(
            self.fs,
            overrides=self.overrides,
            environment=self.environment,
            config=self.config_file,
            working_directory=Path.cwd(),
        )

    def settings(self, log_directory: Path, sources: Sources | None = None) -> DirectorySettings:
        """The configuration of each topic in a log directory. ConfigError as above."""
        said = sources or Sources()
        chosen = {key: value for key, value in said.chosen.items() if value is not None}
        if said.metadata_directory is not None:
            chosen["metadata.log.dir"] = links.resolve(said.metadata_directory)
        given = self.given_settings()
        return DirectorySettings(self.fs, log_directory, given, chosen, override_policy=said.override_policy)

    def given_options(self) -> list[str]:
        """The options of the command line that say the same, for commands that are advised."""
        options = [part for override in self.overrides for part in ("--set", override)]
        return [*options, *(["--config", str(self.config_file)] if self.config_file is not None else [])]


def policy_misuse(name: str, policy: str | None, policies: Sequence[str], targets: Sequence[Target]) -> str:
    """What is wrong with a policy that the user gives for `targets` by the option `name`; empty where nothing is."""
    if policy is None:
        return ""
    if policy not in policies:
        return f"{name}: {policy!r} is not one of {', '.join(policies)}"
    if any(target.kind is TargetKind.LOG_DIRECTORY for target in targets):
        return f"{name} is only for named partitions, not for a whole log directory"
    return ""
