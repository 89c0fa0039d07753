"""Running seglog's command line in tests: in this process, or as a process of its own, on copies of fixtures.

SEGLOG_COMMAND names another seglog, for instance that of a bundle: then every command line runs as its process.
"""

from __future__ import annotations

import io
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import seglog_cli.app
from seglog_cli.app import COMMANDS, build
from tests.support.fixtures import fixture_copy

ROOT = Path(__file__).resolve().parents[2]
ANOTHER = os.environ.get("SEGLOG_COMMAND")
COMMAND = [ANOTHER] if ANOTHER else [sys.executable, "-m", "seglog_cli"]


def needs_this_process() -> None:
    """Skips a test that reaches into seglog's process, if that is another seglog's."""
    if ANOTHER is not None:
        pytest.skip("it reaches into the process of this tree's seglog, and SEGLOG_COMMAND names another")


def run(*arguments: str | Path, input_text: str | bytes | None = None) -> Result:
    """The command line in this process."""
    given = [str(argument) for argument in arguments]
    if ANOTHER:
        data = input_text.encode() if isinstance(input_text, str) else input_text
        done = process(*given, input_bytes=data)
        code = done.returncode
        return Result(CliRunner(), done.stdout, done.stderr, done.stdout + done.stderr, None, code, None)
    names = [given[0]] if given and given[0] in COMMANDS else COMMANDS
    return CliRunner().invoke(build(names), given, input=input_text, catch_exceptions=False)


@dataclass(frozen=True)
class Ended:
    """How a command line ended, and the bytes that it wrote."""

    code: int
    stdout: bytes
    stderr: bytes


def ended(*arguments: str | Path, input_bytes: bytes = b"") -> Ended:
    """The command line in this process, with all that turns errors into exit codes, on standard streams of bytes."""
    if ANOTHER:
        done = process(*arguments, input_bytes=input_bytes)
        return Ended(done.returncode, done.stdout, done.stderr)
    streams = [
        io.TextIOWrapper(io.BytesIO(data), "utf-8", errors)
        for data, errors in ((input_bytes, "strict"), (b"", "strict"), (b"", "backslashreplace"))
    ]
    given = sys.stdin, sys.stdout, sys.stderr
    sys.stdin, sys.stdout, sys.stderr = streams
    try:
        code = seglog_cli.app.run([str(argument) for argument in arguments])
    finally:
        sys.stdin, sys.stdout, sys.stderr = given
    for stream in streams:
        stream.flush()
    stdout, stderr = (stream.buffer.getvalue() for stream in streams[1:])  # type: ignore[attr-defined]
    return Ended(code, stdout, stderr)


def json_lines(result: Result) -> list[dict[str, Any]]:
    """Standard output as JSON lines."""
    return [json.loads(line) for line in result.stdout.splitlines()]


def environment(**more: str) -> dict[str, str]:
    """The environment of a seglog process: this interpreter's modules, no configuration, no colour."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("SEGLOG_") or k == "SEGLOG_KERNELS"}
    path = os.pathsep.join([str(ROOT / "core"), str(ROOT)])
    return {**kept, "PYTHONPATH": path, "NO_COLOR": "1", "COLUMNS": "100", **more}


def process(
    *arguments: str | Path,
    input_bytes: bytes | None = None,
    directory: Path | None = None,
    variables: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """The command line as a process."""
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(
        command,
        input=input_bytes,
        capture_output=True,
        cwd=directory,
        env=environment(**(variables or {})),
        check=False,
        timeout=120,
    )


def shell(script: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """A line of bash in `directory`, where `seglog` is this tree's command line; stdout and stderr are one."""
    wrapper = directory.parent / "bin" / "seglog"
    if not wrapper.exists():
        wrapper.parent.mkdir(exist_ok=True)
        wrapper.write_text(f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n')
        wrapper.chmod(0o755)
    path = f"{wrapper.parent}{os.pathsep}{os.environ.get('PATH', '/usr/bin:/bin')}"
    return subprocess.run(
        [shutil.which("bash") or "/bin/bash", "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=directory,
        env=environment(PATH=path),
        check=False,
        timeout=120,
    )


def keep_partitions(logs: Path, names: Collection[str]) -> None:
    """Takes all other partitions out of a log directory, and out of its checkpoints."""
    for path in logs.iterdir():
        if path.is_dir() and path.name not in names:
            shutil.rmtree(path)
    for path in logs.glob("*-offset-checkpoint"):
        entries = [line for line in path.read_text().splitlines()[2:] if "-".join(line.split()[:2]) in names]
        path.write_text("\n".join(["0", str(len(entries)), *entries, ""]))


def damage_logs(logs: Path) -> None:
    """Damages a batch in each of the four segments of orders-none-0, and takes all offset indexes away."""
    for log in (logs / "orders-none-0").glob("*.log"):
        data = bytearray(log.read_bytes())
        data[700:704] = b"XXXX"
        log.write_bytes(data)
    for index in logs.glob("*/*.index"):
        index.unlink()


def clean_logs(directory: Path) -> Path:
    """A copy of the log directory of a Kafka 4.3 broker that was stopped in order."""
    return fixture_copy("4.3.0/clean", directory)
