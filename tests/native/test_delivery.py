"""How seglog comes to a machine: libraries kept between builds, the first command's words, the files of a release."""

from __future__ import annotations

import hashlib
import os
import queue
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from native import building, hook, install, platforms
from native.building import BuildError
from native.delivery import library_cache, release

LIBRARY = b"\x7fELF machine code"
TARGET = "x86_64-linux"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(library_cache.VARIABLE, str(tmp_path / "kept"))
    return tmp_path / "kept"


@pytest.fixture
def kept_file(folder: Path) -> Path:
    library_cache.keep(LIBRARY, TARGET, pytest.fail)
    (path,) = folder.iterdir()
    return path


def taken() -> tuple[bytes | None, str]:
    """The library that a build would take, and what it says of those that it does not."""
    said: list[str] = []
    return library_cache.kept(TARGET, said.append), "; ".join(said)


def test_a_library_of_the_same_sources_is_kept_for_this_user_alone(kept_file: Path) -> None:
    assert taken() == (LIBRARY, "")
    assert kept_file.parent.stat().st_mode & 0o777 == 0o700
    assert library_cache.kept("aarch64-linux", pytest.fail) is None


def test_a_library_of_other_sources_or_tools_is_not_taken(kept_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library_cache, "tools", lambda: ["numba==0"])
    assert taken() == (None, "")
    monkeypatch.undo()
    monkeypatch.setenv(library_cache.VARIABLE, str(kept_file.parent))
    monkeypatch.setattr(building, "sources_digest", lambda: "others")
    assert taken() == (None, "")


def linked(path: Path) -> None:
    path.rename(path.parent.parent / "elsewhere.so")
    path.symlink_to(path.parent.parent / "elsewhere.so")


HARM: dict[str, tuple[Callable[[Path], object], str]] = {
    "other bytes": (lambda path: path.write_bytes(LIBRARY + b"!"), "do not have the digest in its name"),
    "cut": (lambda path: path.write_bytes(LIBRARY[:5]), "do not have the digest in its name"),
    "empty": (lambda path: path.write_bytes(b""), "do not have the digest in its name"),
    "a link": (linked, "is not used"),
    "another name": (lambda path: os.link(path, path.parent.parent / "other"), "has another name"),
    "writable by others": (lambda path: path.chmod(0o666), "may be written by other users"),
    "a folder that others write": (lambda path: path.parent.chmod(0o777), "may be written by other users"),
    "a pipe": (lambda path: (path.unlink(), os.mkfifo(path)), "is not a plain file"),
    "a directory": (lambda path: (path.unlink(), path.mkdir()), "is not used"),
}


@pytest.mark.parametrize(("harm", "said"), HARM.values(), ids=HARM)
def test_a_kept_library_that_somebody_may_have_changed_is_not_used(
    harm: Callable[[Path], object], said: str, kept_file: Path
) -> None:
    harm(kept_file)
    library, words = taken()
    assert library is None
    assert said in words


def test_a_kept_library_of_another_user_is_not_used(kept_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: kept_file.stat().st_uid + 1)
    library, words = taken()
    assert (library, "belongs to the user with uid" in words) == (None, True)
    said: list[str] = []
    library_cache.keep(b"planted", TARGET, said.append)
    assert "are not kept for the next build" in said[0]
    assert [path.read_bytes() for path in kept_file.parent.iterdir()] == [LIBRARY]


def test_the_oldest_libraries_go_and_one_of_the_same_sources_stays(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    for number in range(library_cache.KEPT + 3):
        path = folder / f"{TARGET}-{number}-0.so"
        path.write_bytes(b"")
        os.utime(path, (number, number))
    library_cache.keep(b"earlier", TARGET, pytest.fail)
    library_cache.keep(LIBRARY, TARGET, pytest.fail)
    names = sorted(path.name for path in folder.iterdir())
    assert len(names) == library_cache.KEPT - 1  # the earlier one of these sources has gone, too
    assert f"{TARGET}-0-0.so" not in names and f"{TARGET}-{library_cache.KEPT + 2}-0.so" in names
    assert taken() == (LIBRARY, "")


def test_nothing_is_kept_where_it_is_not_wanted_or_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(library_cache.VARIABLE, "none")
    library_cache.keep(LIBRARY, TARGET, pytest.fail)
    assert taken() == (None, "")
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv(library_cache.VARIABLE, str(tmp_path / "file" / "below"))
    said: list[str] = []
    library_cache.keep(LIBRARY, TARGET, said.append)
    assert "are not kept for the next build" in said[0]
    monkeypatch.delenv(library_cache.VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert library_cache.folder() == tmp_path / "seglog-kernels"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert library_cache.folder() == tmp_path / ".cache" / "seglog-kernels"


def built_hook() -> hook.NativeKernels:
    application = SimpleNamespace(display_warning=pytest.fail)
    made: Any = object.__new__(hook.NativeKernels)
    made.__dict__.update({f"_BuildHookInterface__{name}": value for name, value in {"app": application}.items()})
    made.__dict__["_BuildHookInterface__root"] = str(install.ROOT)
    made.__dict__["_BuildHookInterface__config"] = {"tools": library_cache.tools()}
    return made


def test_a_build_with_a_kept_library_asks_for_no_compiler(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(building.TARGET_VARIABLE, TARGET)
    assert any(tool.startswith("numba==") for tool in built_hook().dependencies())
    library_cache.keep(LIBRARY, TARGET, pytest.fail)
    assert built_hook().dependencies() == []
    monkeypatch.setattr(building, "TOOLS", ("a-tool-that-nobody-has",))
    monkeypatch.setattr(building, "library_for", lambda target: tmp_path / target / building.LIBRARY)
    data: dict[str, Any] = {"force_include": {}}
    built_hook().initialize("standard", data)
    assert (tmp_path / TARGET / building.LIBRARY).read_bytes() == LIBRARY
    assert data["tag"] == platforms.named(TARGET).tag
    assert list(data["force_include"].values()) == [f"seglog/kernels/{building.LIBRARY}"]


def test_a_build_without_compiled_kernels_asks_for_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(building.TARGET_VARIABLE, "none")
    assert built_hook().dependencies() == []


def test_the_first_command_names_the_step_whenever_pip_is_silent() -> None:
    step = "  Preparing metadata (pyproject.toml): started"
    heard = iter(["Processing .", step, queue.Empty, queue.Empty, "done", None])
    moments = iter(range(100, 200, 10))

    def line_within(timeout: float) -> str | None:
        assert 0 < timeout <= 10
        line = next(heard)
        if line is queue.Empty:
            raise queue.Empty
        return line

    said: list[str] = []
    install.relay("making the environment", line_within, said.append, lambda: next(moments))
    assert said == [
        "Processing .",
        step,
        "  10 s: Preparing metadata (compiling the kernels takes a minute or two)",
        "  20 s: Preparing metadata (compiling the kernels takes a minute or two)",
        "done",
    ]


def test_the_first_command_relays_all_lines_and_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    script = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)"
    assert install.run([sys.executable, "-u", "-c", script], "running") == 7
    assert capsys.readouterr().out == "out\nerr\n"


def test_the_first_command_knows_the_extras(capsys: pytest.CaptureFixture[str]) -> None:
    assert install.main(["sql", "sequel"]) == 2
    assert "no such extra: sequel (there are arrow, aws," in capsys.readouterr().err


def written(name: str, data: bytes, folder: Path) -> None:
    (folder / name).write_bytes(data)


def test_a_release_has_checksums_over_all_its_files(tmp_path: Path) -> None:
    place, said = tmp_path / "release", []
    contents = {"a.whl": b"wheel", "b.tar": b""}
    parts = [partial(written, name, data) for name, data in contents.items()]
    release.make(place, parts, said.append)
    assert (place / release.SUMS).read_text().splitlines() == [
        f"{hashlib.sha256(data).hexdigest()}  {name}" for name, data in contents.items()
    ]
    done = subprocess.run(["sha256sum", "-c", release.SUMS], cwd=place, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "a.whl: OK\nb.tar: OK\n")
    assert [line.partition(":")[0] for line in said] == [str(place / name) for name in ("SHA256SUMS", "a.whl", "b.tar")]


def test_a_release_needs_a_directory_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "of another release.whl").write_bytes(b"")
    with pytest.raises(BuildError, match="is not empty"):
        release.make(tmp_path, [], pytest.fail)
    assert len(list(tmp_path.iterdir())) == 1
