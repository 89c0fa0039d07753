"""The lines of the image's Dockerfile; building it needs a builder and the bundle (core/BUILDING.md)."""

from __future__ import annotations

import json
import re

from native.bundle.registries import HERE
from native.bundle.tree import SYSTEM_LIBRARIES, version

TEXT = (HERE / "Dockerfile").read_text()
# Instruction and rest of each line, with continued lines joined.
LINES = [line.split(maxsplit=1) for line in TEXT.replace("\\\n", " ").splitlines() if line and line[0] != "#"]


def test_the_second_stage_starts_from_nothing_and_is_no_root() -> None:
    stages = [rest for word, rest in LINES if word == "FROM"]
    assert (len(stages), stages[1]) == (2, "scratch")
    last = dict(LINES[LINES.index(["FROM", "scratch"]) :])
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", last["USER"])
    assert "RUN" not in last
    assert json.loads(last["ENTRYPOINT"]) == ["/opt/seglog/bin/seglog"]


def test_it_adds_the_archive_of_the_base_alone() -> None:
    pattern = next(rest.split()[0] for word, rest in LINES if word == "ADD")
    matched = re.compile(pattern.replace(".", r"\.").replace("*", ".*"))
    assert matched.fullmatch(f"seglog-{version()}-linux-x86_64.tar.xz")
    assert not matched.fullmatch(f"seglog-extras-{version()}-linux-x86_64.tar.xz")


def test_it_has_the_libraries_that_a_bundle_may_need() -> None:
    named = re.search(r"for name in ([^;]+);", TEXT)
    assert named is not None
    libraries = {f"{name}.so.1" for name in named[1].split()} - {"libstdc++.so.1"} | {"libstdc++.so.6"}
    assert all(SYSTEM_LIBRARIES.fullmatch(library) for library in libraries)
    assert len(libraries) == 9 and "ld-linux-x86-64.so.2" in TEXT
