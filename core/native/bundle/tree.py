"""The bundle's directory: what goes in, and what stays out because seglog never loads it.

    bin/seglog                 the launcher
    python/bin, python/lib     CPython, and in its site-packages the wheels
    python/start.py            what the launcher runs
    share/                     manual pages, completion for bash, zsh and fish
    licenses/                  of CPython and the libraries in it; packages have theirs beside them

The extras are a second tree to unpack over the first one.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from native.building import BuildError
from native.bundle import elf
from native.bundle.interpreter import NAME, zig
from native.bundle.registries import HERE, run
from native.platforms import Target
from seglog import extras

ROOT = HERE.parents[2]
# The extras that the second archive has; pyproject.toml names them.
EXTRAS = ("arrow", "remote", "serve", "sql", "tiers")
SITE = Path("python") / "lib" / NAME / "site-packages"
OLDEST_GLIBC = {"base": (2, 17), "extras": (2, 28)}
# Libraries that every Linux with glibc has which can run a Java broker; the wheels' own standard allows the same.
SYSTEM_LIBRARIES = re.compile(
    r"(lib(c|m|dl|rt|util|pthread)|ld-linux-(x86-64|aarch64))\.so\.\d|libgcc_s\.so\.1|libstdc\+\+\.so\.6|libz\.so\.1"
)
COMPLETIONS = {
    "bash": "bash-completion/completions/seglog",
    "zsh": "zsh/site-functions/_seglog",
    "fish": "fish/vendor_completions.d/seglog.fish",
}
# The last three have twins in C.
_STANDARD_LIBRARY_OUT = set(
    """__phello__ ensurepip idlelib tkinter turtledemo turtle.py venv pydoc_data pydoc.py doctest.py unittest test
    sqlite3 curses dbm wsgiref xmlrpc _pyrepl _ios_support.py _apple_support.py _android_support.py _aix_support.py
    antigravity.py this.py webbrowser.py imaplib.py poplib.py smtplib.py ftplib.py mailbox.py cProfile.py profile.py
    pstats.py trace.py tabnanny.py pyclbr.py zipapp.py pdb.py bdb.py pickletools.py site-packages lib-dynload
    _pydatetime.py _pydecimal.py _pyio.py""".split()  # noqa: SIM905
)
# Code pages of DOS, mainframes and old Macintoshes: no locale of Linux has them. Zip archives name files in cp437.
_CODE_PAGES_OUT = re.compile(r"encodings/(mac_|cp(?!437|125\d|932|949|950)\d)")
# What the extras need of it, and the base does not.
_STANDARD_LIBRARY_MORE = {"lib-dynload", "pydoc.py", "_pyrepl"}
# Modules whose import shows that each tree is whole; for the base also every command.
_IMPORTED = {
    "base": ("numpy", "yaml", "rich.table", "typer", "cramjam", "crc32c", "backports.zstd", "seglog.kernels"),
    "extras": ("pyarrow.dataset", "pyarrow.parquet", "duckdb", "obstore.store", "kio.schema", "cryptography", "ssl"),
}
# Directories and files of packages that only their developers use.
_PACKAGES_OUT = {"tests", "test", "testing", "__pycache__", "include", "f2py", "_pyinstaller", "examples", "RECORD"}
_SUFFIXES_OUT = (".pyi", ".pyx", ".pxd", ".pxi", ".c", ".h", ".a", ".lib", ".f90", ".cpp", ".hpp", "py.typed")
_STUB_OF_NAMES = Path("seglog/__init__.pyi")  # seglog itself reads where its public names are
# Parts that nothing in seglog imports: code highlighting, random numbers, transforms, NumPy's tests of itself, Arrow's
# remote calls.
_PARTS_OUT = re.compile(
    r"pygments/lexers/(?!(__init__|_mapping|special)\.py)|pydantic/(v1/|mypy\.py)|numpy/(random|fft|polynomial|distutils)/"
    r"|numpy/_core/(_simd|_\w+_tests)\.|pyarrow/(src|includes)/|pyarrow/(lib)?_?(arrow_)?(python_)?flight[._]"
)


def standard_library(python: Path, root: Path, base: bool) -> None:
    """Copies Python to the tree: for the base all but what stays out, for the extras some of that."""
    library = root / "python" / "lib" / NAME
    if not base:
        _copy(python / "lib" / NAME, library, lambda path: path.parts[0] in _STANDARD_LIBRARY_MORE)
        _copy_file(python / "licenses" / "openssl.txt", root / "licenses" / "openssl.txt")
        return
    _copy(python / "lib" / NAME, library, _is_standard)
    (library / "lib-dynload").mkdir()  # Python looks for it when it finds its own place
    _copy_file(python / "bin" / NAME, root / "python" / "bin" / NAME)
    (root / "python" / "start.py").write_text("from seglog_cli.__main__ import main\n\nmain()\n")
    for name in ("libffi", "zlib"):
        _copy_file(python / "licenses" / f"{name}.txt", root / "licenses" / f"{name}.txt")
    shutil.copy(library / "LICENSE.txt", root / "licenses" / "python.txt")
    shutil.copy(ROOT / "LICENSE", root / "LICENSE")


def _is_standard(path: Path) -> bool:
    return path.parts[0] not in _STANDARD_LIBRARY_OUT and not _CODE_PAGES_OUT.match(path.as_posix())


def packages(wheels: Iterable[Path], root: Path) -> None:
    """Unpacks wheels to site-packages, and their shared data (manual pages) to the top of the tree."""
    for wheel in sorted(wheels):
        with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
            for data in Path(folder).glob("*.data/data"):
                _copy(data, root, lambda _: True)
            _copy(Path(folder), root / SITE, is_kept)


def is_kept(path: Path) -> bool:
    """True if a package's file, named relative to site-packages, belongs into the bundle."""
    if path == _STUB_OF_NAMES:
        return True
    out = path.parts[0].endswith(".data") or bool(_PACKAGES_OUT & set(path.parts))
    return not out and not path.name.endswith(_SUFFIXES_OUT) and not _PARTS_OUT.match(path.as_posix())


def note(root: Path, archive: str) -> None:
    """Writes the note from which `seglog.extras` knows that this is a bundle."""
    text = json.dumps({"archive": archive, "extras": list(EXTRAS)})
    (root / SITE / "seglog" / extras.NOTE).write_text(text + "\n")


def completions(root: Path) -> None:
    """Writes the completion script of each shell, as seglog prints it."""
    for shell, name in COMPLETIONS.items():
        place = root / "share" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "seglog_cli", "--show-completion", shell]
        place.write_text(run(command, ROOT, {"PYTHONPATH": f"{ROOT / 'core'}:{ROOT}"}))


def launcher(target: Target, place: Path) -> None:
    """Compiles the launcher, a static program on musl."""
    place.parent.mkdir(parents=True, exist_ok=True)
    machine = target.name.partition("-")[0]
    with tempfile.TemporaryDirectory() as work:
        command = ["zig-cc", "-target", f"{machine}-linux-musl", "-static", "-Os", "-s", "-Wall", "-Wextra", "-Werror"]
        command += [f'-DPYTHON_NAME="{NAME}"', "-o", str(place), "launcher.c"]
        run(command, HERE, zig(Path(work)))


def compile_sources(root: Path, python: Path) -> None:
    """Byte-compiles every module, so that a read-only bundle starts fast; Python never compares them with the sources.

    `python` is a program of the same version that runs on this machine.
    """
    command = [str(python), "-m", "compileall", "-q", "-f", "--invalidation-mode", "unchecked-hash"]
    command += ["-s", str(root), str(root / "python" / "lib")]
    run(command, root, {"PYTHONHASHSEED": "0", "PYTHONNODEBUGRANGES": "1", "PYTHONDONTWRITEBYTECODE": "1"})


def shrink(root: Path) -> None:
    """Takes from every ELF file what no loader reads."""
    for path in elf_files(root):
        path.write_bytes(elf.without_sections(path.read_bytes()))


def elf_files(root: Path) -> Iterator[Path]:
    """All ELF files of a tree, in order."""
    return (path for path in sorted(root.rglob("*")) if path.is_file() and not path.is_symlink() and elf.is_elf(path))


def check(roots: Sequence[Path], kind: str) -> None:
    """Raises BuildError if a file of the last tree needs a newer glibc than its kind may, or an unknown library."""
    own = {path.name for root in roots for path in elf_files(root)}
    for path in elf_files(roots[-1]):
        needs = elf.needs(path)
        unknown = [name for name in needs.libraries if name not in own and not SYSTEM_LIBRARIES.fullmatch(name)]
        newest = needs.newest("GLIBC")
        if newest > OLDEST_GLIBC[kind] or unknown:
            raise BuildError(f"{path}: needs glibc {newest}, and libraries that no system must have: {unknown}")


def check_imports(base: Path, extras_root: Path) -> None:
    """Imports packages and every command with the bundle's own Python. Raises BuildError if a module is missing."""
    commands = sorted(path.stem for path in (base / SITE / "seglog_cli" / "commands").glob("[a-z]*.py"))
    python = [str(base / "python" / "bin" / NAME), "-IBc"]
    more = [str(extras_root / SITE), *(str(extras_root / SITE.parent / name) for name in ("", "lib-dynload"))]
    modules = [*_IMPORTED["base"], *(f"seglog_cli.commands.{name}" for name in commands)]
    run([*python, f"import {', '.join(modules)}"])
    run([*python, f"import sys; sys.path += {more!r}; import {', '.join(_IMPORTED['extras'])}"])


def version() -> str:
    """Returns seglog's version."""
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


def _copy(source: Path, place: Path, wanted: Callable[[Path], bool]) -> None:
    for path in sorted(source.rglob("*")):
        relative = path.relative_to(source)
        if path.is_file() and wanted(relative):
            if (place / relative).exists():
                raise BuildError(f"two packages have {relative}")
            _copy_file(path, place / relative)


def _copy_file(source: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, place)
    program = elf.is_elf(source) and bool(elf.needs(source).interpreter)
    place.chmod(0o755 if program else 0o644)
