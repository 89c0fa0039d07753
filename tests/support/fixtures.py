"""Logs that real Kafka wrote (`fixtures/`), and what Kafka says about them (`fixtures/expected/`).

`fixtures/manifest.yaml` knows each fixture's files, their SHA-256 and their mtimes, which git does not keep
and Kafka's rules for retention, tombstones and lags need. Names: `4.3.0/clean`, `4.3.0/killed`,
`4.3.0/generated`, `0.10.2`, `0.8.2`, `0.7`.
"""

from __future__ import annotations

import json
import lzma
import os
import shutil
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

import yaml

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
KAFKA = FIXTURES / "kafka"
CLEAN = KAFKA / "4.3.0" / "clean"
EXPECTED = FIXTURES / "expected"


@cache
def manifest() -> dict[str, Any]:
    """Fixture name → `kafka`, `made_with`, `now_ms`, `files`, and `archive` where it is packed."""
    loaded: dict[str, Any] = yaml.load((FIXTURES / "manifest.yaml").read_text(), Loader=yaml.CSafeLoader)
    return loaded


def fixture_now_ms(name: str) -> int:
    """A second after the newest segment's mtime: the clock Kafka was given for the expected results."""
    return int(manifest()[name]["now_ms"])


def fixture_partitions(name: str) -> list[str]:
    """Names of the partition directories of a fixture."""
    return sorted({path.split("/")[0] for path in manifest()[name]["files"] if "/" in path})


def fixture_copy(name: str, directory: Path) -> Path:
    """A log directory of its own below `directory`, with the fixture's files and mtimes; returns its path."""
    entry = manifest()[name]
    target = directory / name.replace("/", "-")
    if "archive" in entry:
        with tarfile.open(FIXTURES / entry["archive"]) as archive:
            # as an attribute, which Pythons before 3.11.4 pass over: they know no filters
            archive.extraction_filter = getattr(tarfile, "data_filter", None)  # type: ignore[assignment]
            archive.extractall(target)
    else:
        shutil.copytree(KAFKA / name, target)
    _give_mtimes(target, entry["files"])
    return target


def clean_partition(name: str, directory: Path) -> Path:
    """A copy of one partition of `4.3.0/clean` in `directory`, with the fixture's mtimes; returns its path."""
    target = directory / name
    shutil.copytree(CLEAN / name, target)
    files = manifest()["4.3.0/clean"]["files"]
    _give_mtimes(directory, {path: facts for path, facts in files.items() if path.startswith(f"{name}/")})
    return target


def _give_mtimes(directory: Path, files: dict[str, Any]) -> None:
    for path, facts in files.items():
        nanoseconds = int(facts["mtime_ms"]) * 1_000_000
        os.utime(directory / path, ns=(nanoseconds, nanoseconds))


def expected(name: str, partition: str, kind: str) -> Any:
    """What Kafka says, in the harness's JSON shapes; the result depends on the kind.

    `list`: its batches and records; `list_digest`: their digest (`full` and `logical`); `index`: the contents
    of the other files; `recovered`, `cleaned`: the options, the answer, and digest and index of the outcome
    (see fixtures/README.md); `dump`: the text of kafka-dump-log --print-data-log on the .log files, without
    the directory in `Dumping` lines.
    """
    text = lzma.decompress(_expected_file(name, partition, kind).read_bytes()).decode()
    if kind == "dump":
        return text
    return [json.loads(line) for line in text.splitlines()] if kind == "list" else json.loads(text)


def expected_partitions(name: str, kind: str) -> list[str]:
    """Partitions of a fixture for which an expectation of this kind is recorded."""
    return [part for part in fixture_partitions(name) if _expected_file(name, part, kind).exists()]


def _expected_file(name: str, partition: str, kind: str) -> Path:
    suffix = {"list": "list.jsonl", "dump": "dump.txt"}.get(kind, f"{kind}.json")
    return EXPECTED / name / f"{partition}.{suffix}.xz"
