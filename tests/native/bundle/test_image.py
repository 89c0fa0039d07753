"""The image: the lines of its Dockerfile, and what buildah makes of them where there is a bundle (core/BUILDING.md)."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from native.bundle.registries import HERE
from native.bundle.tree import SYSTEM_LIBRARIES, version
from tests.support.bundles import DIRECTORY, TOP, made, needs_mounts
from tests.support.command_line import clean_logs
from tests.support.images import Builder, small_debian
from tests.support.other_users import open_directory

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


def copied_libraries() -> set[str]:
    """The C libraries that the first stage copies, without their numbers."""
    named = re.search(r"for name in ([^;]+);", TEXT)
    assert named is not None
    return set(named[1].split())


def test_it_has_the_libraries_that_a_bundle_may_need() -> None:
    libraries = {f"{name}.so.{6 if '++' in name else 1}" for name in copied_libraries()}
    assert all(SYSTEM_LIBRARIES.fullmatch(library) for library in libraries)
    assert len(libraries) == 9 and "ld-linux-x86-64.so.2" in TEXT


@pytest.mark.slow
def test_buildah_makes_an_image_that_runs_as_another_user(tmp_path: Path) -> None:
    needs_mounts()
    made(f"{TOP}.tar.xz")
    builder = Builder(tmp_path)
    libraries = [
        path.name for name in copied_libraries() for path in Path("/lib/x86_64-linux-gnu").glob(f"{name}.so.?")
    ]
    begin = builder.imported(small_debian(tmp_path / "debian", libraries), "debian")
    options = [
        "--isolation",
        "chroot",
        "--network",
        "host",
        "--pull=never",
        "--build-arg",
        f"BASE={begin}",
        "--tag",
        "seglog",
    ]
    builder.run("build", *options, "--file", str(HERE / "Dockerfile"), str(DIRECTORY))
    (image,) = json.loads(builder.run("images", "--json", "seglog"))
    assert int(builder.run("inspect", "--format", "{{.Docker.Size}}", image["id"])) < 120e6
    assert builder.run("inspect", "--format", "{{.OCIv1.Config.User}}", image["id"]).strip() == "1000:1000"
    container = builder.run("from", "seglog").strip()
    with open_directory() as folder:
        logs = clean_logs(folder)
        options = ["--isolation", "chroot", "--volume", f"{logs}:/data:ro"]
        said = builder.run("run", *options, container, "--", "/opt/seglog/bin/seglog", "verify", "/data")
    assert said.endswith("nothing wrong\n")
