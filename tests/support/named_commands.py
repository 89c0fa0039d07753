"""Running the commands that doctor names as a shell would, without one."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from seglog.format.filenames import CLUSTER_METADATA_TOPIC
from seglog_rescue.doctor.mends import ASIDE
from tests.support.command_line import run
from tests.support.rebuilt import copy_snapshots


def run_named(command: str, aside: Path) -> list[int]:
    """Runs a command that a diagnosis names, with `aside` for the place that the operator knows; returns exit codes."""
    ended = []
    for part in command.replace(str(ASIDE), shlex.quote(str(aside))).split(" && "):
        words = shlex.split(part)
        done = run(*words[1:]) if words[0] == "seglog" else subprocess.run(words, check=False)
        ended.append(done.returncode if isinstance(done, subprocess.CompletedProcess) else done.exit_code)
    return ended


def follow_rebuild(directories: Sequence[Path], aside: Path) -> None:
    """Does what `seglog rebuild` says after it has made its snapshot beside the first directory."""
    made = directories[0].with_name(f"{directories[0].name}.rebuilt")
    for number, directory in enumerate(directories):
        if (metadata := directory / f"{CLUSTER_METADATA_TOPIC}-0").exists():
            shutil.move(metadata, aside / f"metadata-{number}")
    owner = directories[0].stat()
    for path in copy_snapshots(made, directories[0]):
        os.chown(path, owner.st_uid, owner.st_gid)
