"""`seglog serve` as a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from seglog.serve.endpoint import Address
from tests.support.command_line import COMMAND, ROOT

LIMIT_SECONDS = 60


@contextmanager
def served(*arguments: str | Path, cwd: Path = ROOT) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, Any]]]:
    """The process, and what it says when it is ready; it is stopped when the `with` ends."""
    command = [*COMMAND, "serve", "--json", "--listen", "127.0.0.1:0", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'core'}{os.pathsep}{ROOT}"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd, env=environment)
    assert process.stdout is not None and process.stderr is not None
    try:
        line = process.stdout.readline()
        assert line, process.stderr.read().decode()
        yield process, json.loads(line)
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=LIMIT_SECONDS)


def address_of(said: dict[str, Any], field: str = "listen") -> Address:
    host, _, port = said[field].rpartition(":")
    return Address(host, int(port))
