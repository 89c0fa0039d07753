"""What Kafka answered, kept: a test against Kafka's classes runs again without Java on the answers of a live run.

    python -m pytest --record-kafka tests/interop/test_cleaner.py -k "plain or transactions"

asks real Kafka, and writes `fixtures/recorded/test_cleaner.tar.xz`: the tests that ran and passed, and each answer with
the files that Kafka left. An answer is filed under what was asked: the command, its options, and the contents of every
file below the paths that it names. So a replayed Kafka cannot answer for files that it has never seen: if seglog
writes other bytes than it did then, the test fails, and the live test (`--whole`) says who is right.

Steps with a log that stays open (`KafkaHarness.live`) depend on more than files, and cannot be recorded.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import tarfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.kafka.kafka import Answer, KafkaFailure, KafkaHarness, Lines

RECORDED = Path(__file__).resolve().parents[3] / "fixtures" / "recorded"
_INDEX = "index.json"  # the archive's first member
_PARTITION = re.compile(r"-\d+$")
_UNRECORDED = ("live", "measure")
_ROOT = str(RECORDED.parents[1])

Files = dict[str, tuple[bytes, int]]  # place/name below it → contents, modification time in ns


def _places(value: Any) -> Iterator[Path]:
    """The paths that a request names, in order."""
    if isinstance(value, Path):
        yield value
    elif isinstance(value, str):
        yield from (Path(part) for part in value.split(",") if part.startswith("/"))  # --files has several
    elif isinstance(value, dict):
        for one in value.values():
            yield from _places(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _places(one)


def _files(places: list[Path]) -> Files:
    """The files at and below the places, and those beside a partition: checkpoints."""
    found: Files = {}
    for number, place in enumerate(places):
        partition = _PARTITION.search(place.name) and place.parent.is_dir()
        beside = [path for path in place.parent.iterdir() if path.is_file()] if partition else []
        for path in sorted({*beside, *(each for each in (place, *place.rglob("*")) if each.is_file())}):
            name = f"{number}/{os.path.relpath(path, place)}"
            found[name] = (path.read_bytes(), path.stat().st_mtime_ns)
    return found


def _without_places(text: str, places: list[Path]) -> str:
    for number, place in sorted(enumerate(places), key=lambda each: -len(str(each[1]))):
        text = text.replace(str(place), f"<{number}>").replace(str(place.parent), f"<beside {number}>")
    return text.replace(_ROOT, "<project>")


def _with_places(text: str, places: list[Path]) -> str:
    for number, place in enumerate(places):
        text = text.replace(f"<{number}>", str(place)).replace(f"<beside {number}>", str(place.parent))
    return text.replace("<project>", _ROOT)


def _key(command: str, fields: dict[str, Any], places: list[Path], before: Files) -> str:
    asked = _without_places(json.dumps({"command": command, **fields}, default=str, sort_keys=True), places)
    named = [place.name for place in places if place.is_file() or _PARTITION.search(place.name)]
    held = hashlib.sha256(f"{asked} {named}".encode())
    for name, (data, _) in sorted(before.items()):
        held.update(f"\n{name} {hashlib.sha256(data).hexdigest()}".encode())
    return held.hexdigest()


class RecordingKafka(KafkaHarness):
    """Real Kafka, whose answers are kept; `close` writes them, an archive for each test module."""

    module = ""  # whose tests ask

    def __init__(self) -> None:
        super().__init__()
        self._passed: dict[str, list[str]] = {}
        self._calls: dict[str, dict[str, Any]] = {}
        self._contents: dict[str, dict[str, bytes]] = {}

    def passed(self, module: str, test: str) -> None:
        self._passed.setdefault(module, []).append(test)

    def _ask(self, command: str, lines: Lines | None = None, **fields: Any) -> Answer:
        assert command not in _UNRECORDED, f"{command} cannot be recorded"
        places = list(dict.fromkeys(_places(fields)))
        before = _files(places)
        said: Lines = [] if lines is None else lines
        entry: dict[str, Any]
        try:
            answer = super()._ask(command, lines, **fields)
            entry = {"answer": _without_places(json.dumps(answer), places), "lines": list(said)}
        except KafkaFailure as failure:
            entry = {"error": failure.error, "message": _without_places(failure.message, places)}
            self._keep(command, fields, places, before, entry)
            raise
        self._keep(command, fields, places, before, entry)
        return answer

    def _keep(self, command: str, fields: dict[str, Any], places: list[Path], before: Files, entry: Any) -> None:
        after = _files(places)
        contents = self._contents.setdefault(self.module, {})
        changed: dict[str, Any] = dict.fromkeys(set(before) - set(after))
        for name, (data, time) in after.items():
            if before.get(name) != (data, time):
                digest = hashlib.sha256(data).hexdigest()
                contents[digest] = data
                changed[name] = [digest, time]
        key = _key(command, fields, places, before)
        self._calls.setdefault(self.module, {})[key] = {**entry, "files": changed}

    def close(self) -> None:
        super().close()
        RECORDED.mkdir(exist_ok=True)
        for module, tests in self._passed.items():
            calls = self._calls.get(module, {})
            index = json.dumps({"tests": sorted(tests), "calls": calls}, sort_keys=True).encode()
            contents = sorted(self._contents.get(module, {}).items())
            with tarfile.open(RECORDED / f"{module}.tar.xz", "w:xz", preset=9) as archive:
                for name, data in [(_INDEX, index), *contents]:
                    member = tarfile.TarInfo(name)
                    member.size = len(data)
                    archive.addfile(member, io.BytesIO(data))


@cache
def _archive(module: str) -> tuple[dict[str, Any], dict[str, bytes]]:
    with tarfile.open(RECORDED / f"{module}.tar.xz") as archive:
        held = {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]
    return json.loads(held.pop(_INDEX)), held


@cache
def recorded_tests(module: str) -> frozenset[str]:
    """The names of a module's tests that can run on recorded answers."""
    if not (RECORDED / f"{module}.tar.xz").exists():
        return frozenset()
    with tarfile.open(RECORDED / f"{module}.tar.xz") as archive:
        first = archive.next()
        assert first is not None and first.name == _INDEX
        return frozenset(json.load(archive.extractfile(first))["tests"])  # type: ignore[arg-type]


class ReplayedKafka(KafkaHarness):
    """Answers as Kafka did when it was recorded, and leaves the files that it left then."""

    module = ""

    def __init__(self) -> None:
        """Starts nothing."""

    def close(self) -> None:
        """No process runs."""

    def _ask(self, command: str, lines: Lines | None = None, **fields: Any) -> Answer:
        index, contents = _archive(self.module)
        places = list(dict.fromkeys(_places(fields)))
        entry = index["calls"].get(_key(command, fields, places, _files(places)))
        if entry is None:
            raise AssertionError(
                f"Kafka was not asked to {command} these files when {self.module} was recorded: seglog wrote other "
                "bytes than then, or the test has changed. --whole asks Kafka; --record-kafka records it anew"
            )
        for name, held in entry["files"].items():
            number, _, below = name.partition("/")
            path = places[int(number)] / below if below != "." else places[int(number)]
            if held is None:
                path.unlink()
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(contents[held[0]])
            os.utime(path, ns=(held[1], held[1]))
        if "error" in entry:
            raise KafkaFailure(entry["error"], _with_places(entry["message"], places))
        if lines is not None:
            lines.extend(entry["lines"])
        answer: Answer = json.loads(_with_places(entry["answer"], places))
        return answer
