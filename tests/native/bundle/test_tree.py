"""What goes into the bundle's tree, and what the finished tree may need."""

from __future__ import annotations

import json
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from native.building import BuildError
from native.bundle import tree
from native.bundle.registries import HERE
from seglog import extras
from tests.support.elf_files import shared_library

PROJECT = tomllib.loads((tree.ROOT / "pyproject.toml").read_text())["project"]


def pinned(name: str) -> dict[str, str]:
    """The versions in a file of pinned requirements, by package."""
    lines = (HERE / name).read_text().splitlines()
    pairs = (line.removesuffix(" \\").split("==") for line in lines if "==" in line)
    return {canonicalize_name(package): version for package, version in pairs}


def written(root: Path, name: str, data: bytes | str = "") -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def test_the_pins_are_what_the_project_asks_for() -> None:
    base, more = pinned("base.txt"), pinned("extras.txt")
    assert not set(base) & set(more)
    wanted = dict.fromkeys(PROJECT["dependencies"], base)
    wanted |= {text: base | more for extra in tree.EXTRAS for text in PROJECT["optional-dependencies"][extra]}
    for requirement, versions in {Requirement(text): versions for text, versions in wanted.items()}.items():
        assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)]), requirement


@pytest.mark.parametrize("name", ["base.txt", "extras.txt"])
def test_every_pin_has_hashes(name: str) -> None:
    entries = [entry for entry in (HERE / name).read_text().replace("\\\n", "").splitlines() if entry[:1] != "#"]
    assert entries and all("--hash=sha256:" in entry for entry in entries)


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("seglog/__init__.pyi", True),  # the public names
        ("seglog/kernels/arrays.py", True),
        ("seglog/kernels/_native.abi3.so", True),
        ("numpy/_core/_multiarray_umath.cpython-313-x86_64-linux-gnu.so", True),
        ("numpy/_core/_simd.cpython-313-x86_64-linux-gnu.so", False),
        ("numpy/_core/tests/test_ufunc.py", False),
        ("numpy/random/mtrand.pyi", False),
        ("numpy/linalg/_linalg.py", True),
        ("pygments/lexers/python.py", False),
        ("pygments/lexers/_mapping.py", True),
        ("pyarrow/libarrow_flight.so.2600", False),
        ("pyarrow/libarrow_python_flight.so.2600", False),
        ("pyarrow/libarrow_substrait.so.2600", True),  # others need it
        ("pyarrow/_dataset.cpython-313-x86_64-linux-gnu.so", True),
        ("rich-15.0.0.dist-info/METADATA", True),
        ("rich-15.0.0.dist-info/RECORD", False),
        ("seglog-0.1.0.data/data/share/man/man1/seglog.1", False),
    ],
)
def test_a_package_leaves_behind_what_nobody_imports(name: str, kept: bool) -> None:
    assert tree.is_kept(Path(name)) is kept


def test_python_goes_without_its_tests_and_with_the_place_of_its_modules(tmp_path: Path) -> None:
    python, root = tmp_path / "python", tmp_path / "root"
    library = f"lib/{tree.NAME}"
    codings = {f"encodings/{name}.py" for name in ("cp437", "cp1251", "koi8_r", "mac_greek", "cp850", "cp037")}
    for name in (
        "os.py",
        "json/decoder.py",
        "idlelib/run.py",
        "LICENSE.txt",
        "pydoc.py",
        "lib-dynload/_ssl.so",
        *codings,
    ):
        written(python, f"{library}/{name}")
    for name in (f"bin/{tree.NAME}", "licenses/libffi.txt", "licenses/zlib.txt", "licenses/openssl.txt"):
        written(python, name)
    tree.standard_library(python, root, base=True)
    tree.standard_library(python, tmp_path / "more", base=False)
    having = {str(path.relative_to(root / "python" / library)) for path in (root / "python" / library).rglob("*")}
    codings -= {"encodings/mac_greek.py", "encodings/cp850.py", "encodings/cp037.py"}
    assert having == {"os.py", "json", "json/decoder.py", "LICENSE.txt", "lib-dynload", "encodings", *codings}
    more = {path.name for path in (tmp_path / "more/python" / library).rglob("*.*")}
    assert more == {"pydoc.py", "_ssl.so"}
    assert (root / "licenses/zlib.txt").exists() and "Apache License" in (root / "LICENSE").read_text()


def test_two_packages_with_the_same_file_are_an_error(tmp_path: Path) -> None:
    for name in ("a", "b"):
        made = tmp_path / f"{name}-1-py3-none-any.whl"
        subprocess.run(["python3", "-m", "zipfile", "-c", made, written(tmp_path, "twice.py")], check=True)
    with pytest.raises(BuildError, match=r"two packages have twice\.py"):
        tree.packages(tmp_path.glob("*.whl"), tmp_path / "root")


def test_the_note_is_what_the_advice_for_an_extra_reads(tmp_path: Path) -> None:
    written(tmp_path / tree.SITE, "seglog/__init__.py")
    tree.note(tmp_path, "seglog-extras-1.tar.xz")
    folder = tmp_path / tree.SITE / "seglog"
    assert json.loads((folder / extras.NOTE).read_text())["extras"] == list(tree.EXTRAS)
    assert "unpack seglog-extras-1.tar.xz" in extras.advice("serve", folder)


def test_there_is_a_completion_for_each_shell(tmp_path: Path) -> None:
    tree.completions(tmp_path)
    texts = {shell: (tmp_path / "share" / name).read_text() for shell, name in tree.COMPLETIONS.items()}
    assert "complete -o default" in texts["bash"]
    assert texts["zsh"].startswith("#compdef seglog")
    assert "complete --command seglog" in texts["fish"]


def test_a_file_that_needs_a_newer_glibc_is_refused(tmp_path: Path) -> None:
    written(tmp_path, "lib/old.so", shared_library({"libc.so.6": ["GLIBC_2.17"]}))
    tree.check([tmp_path], "base")
    written(tmp_path, "lib/new.so", shared_library({"libc.so.6": ["GLIBC_2.28"]}))
    tree.check([tmp_path], "extras")
    with pytest.raises(BuildError, match=r"new\.so: needs glibc \(2, 28\)"):
        tree.check([tmp_path], "base")


def test_a_file_that_needs_a_library_of_some_systems_is_refused(tmp_path: Path) -> None:
    written(tmp_path, "user.so", shared_library({"libssl.so.3": [], "libm.so.6": ["GLIBC_2.2.5"]}))
    with pytest.raises(BuildError, match=r"libssl\.so\.3"):
        tree.check([tmp_path], "base")
    written(tmp_path / "base", "libssl.so.3", shared_library({"libc.so.6": []}))
    tree.check([tmp_path / "base", tmp_path], "base")
