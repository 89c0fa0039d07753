"""CPython, compiled from source by Zig for an old glibc.

The standard library's extension modules are part of the program, but for `_ssl`, which the extras bring: it contains
OpenSSL. zlib and libffi are linked in. Compilers are called by name and work on relative paths, so that the bytes do
not depend on where the build is. What is built is kept in the cache, under a digest of all that determines it.

Tried before: no registry has a CPython for glibc 2.28 or older. Maven's bytedeco cpython 3.13.0 needs glibc 2.30;
PyPI's byt3d4nc3 is RustPython, which loads no extension module of a wheel; npm's portable-python downloads from
elsewhere when it is installed. A static Python on musl cannot load the wheels, which need glibc.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from native.building import BuildError
from native.bundle.registries import PYTHON, cache, fetch_sources, run, sources
from native.platforms import Target, this_platform

NAME = f"python{PYTHON[0]}.{PYTHON[1]}"
JOBS = str(min(2, os.cpu_count() or 1))
_HERE = Path(__file__).parent
# Hidden: the program exports what its libraries show, and a library of a wheel would then take these for its own.
_FLAGS = ("-O2", "-fPIC", "-fvisibility=hidden", "-fno-sanitize=undefined")
_ZLIB = (
    "adler32 compress crc32 deflate infback inffast inflate inftrees trees uncompr zutil gzclose gzlib gzread gzwrite"
)
_FFI = ("prep_cif.c", "types.c", "raw_api.c", "closures.c", "tramp.c")
# For each machine: libffi's name of its calling convention, its sources, and OpenSSL's name of the platform.
_MACHINES = {
    "x86_64": ("X86_64", ("x86/ffi64.c", "x86/ffiw64.c", "x86/unix64.S", "x86/win64.S"), "linux-x86_64"),
    "aarch64": ("AARCH64", ("aarch64/ffi.c", "aarch64/sysv.S"), "linux-aarch64"),
}
_OPENSSL = "no-shared no-tests no-apps no-docs no-legacy no-engine no-dso no-module no-comp no-quic"
# Modules that seglog never loads, or that would need another library.
_LEFT_OUT = """_bz2 _lzma _dbm _gdbm _sqlite3 _tkinter _curses _curses_panel readline _hashlib _uuid xxsubtype _lsprof
_codecs_cn _codecs_hk _codecs_iso2022 _codecs_jp _codecs_kr _codecs_tw"""
# What configure finds out by running a program, which a cross build cannot.
_CROSS = {
    "ac_cv_file__dev_ptmx": "yes",
    "ac_cv_file__dev_ptc": "no",
    "ac_cv_buggy_getaddrinfo": "no",
    "ac_cv_working_tzset": "yes",
    "ac_cv_posix_semaphores_enabled": "yes",
    "ac_cv_broken_sem_getvalue": "no",
}


def interpreter(target: Target, say: Callable[[str], None]) -> Path:
    """Returns a directory with `bin` and `lib` of the target's Python, built unless the cache has it."""
    made = cache() / f"python-{target.name}-{_digest(target)}"
    if made.is_dir():
        return made
    here = this_platform()
    if here is None or not here.name.endswith("-linux"):
        raise BuildError("a bundle is built on x86-64 or 64-bit ARM Linux")
    native = interpreter(here, say) if here.name != target.name else None
    downloads = cache() / "sources"
    fetch_sources(sources().values(), downloads)
    say(f"compiling CPython and OpenSSL for {target.name}, which takes some ten minutes")
    with tempfile.TemporaryDirectory(prefix="build-", dir=cache()) as work:
        built = _Build(target, Path(work), downloads)
        built.libraries()
        built.openssl()
        built.cpython(native)
        built.install(Path(work) / "installed")
        (Path(work) / "installed").rename(made)
    return made


def zig(work: Path) -> dict[str, str]:
    """Returns environment variables with which `zig-cc`, `zig-ar` and `zig-ranlib` are Zig's.

    What it compiles of C libraries stays in the cache, what it compiles of ours in `work`.
    """
    package = importlib.util.find_spec("ziglang")
    if package is None or package.origin is None:
        raise BuildError("compiling for a bundle needs ziglang: pip installs it")
    tools, program = work / "tools", Path(package.origin).with_name("zig")
    tools.mkdir(parents=True, exist_ok=True)
    for name in ("cc", "ar", "ranlib"):
        script = tools / f"zig-{name}"
        script.write_text(f'#!/bin/sh\nexec "{program}" {name} "$@"\n')
        script.chmod(0o755)
    caches = {"ZIG_LOCAL_CACHE_DIR": str(work / "zig"), "ZIG_GLOBAL_CACHE_DIR": str(cache() / "zig")}
    return {"PATH": f"{tools}{os.pathsep}{os.environ.get('PATH', os.defpath)}", "LC_ALL": "C", **caches}


def _digest(target: Target) -> str:
    digest = hashlib.blake2b((_HERE / "pins.toml").read_bytes(), digest_size=8)
    for name in ("interpreter.py", "fficonfig.h"):
        digest.update((_HERE / name).read_bytes())
    digest.update(f"{target.zig} {importlib.metadata.version('ziglang')}".encode())
    return digest.hexdigest()


class _Build:
    """One build: sources unpacked beside each other in `work`, all compiled for one target."""

    def __init__(self, target: Target, work: Path, downloads: Path) -> None:
        self._target = target
        self._work = work
        self._machine = target.name.partition("-")[0]
        self._convention, self._ffi_sources, self._openssl_platform = _MACHINES[self._machine]
        self._variables = {**zig(work), "SOURCE_DATE_EPOCH": "0"}
        for name, source in sources().items():
            with tarfile.open(downloads / source.file) as archive:
                archive.extractall(work / "unpacked", filter="data")
            (top,) = (work / "unpacked").iterdir()
            top.rename(work / name)
        for folder in ("include", "lib", "objects"):
            (work / folder).mkdir()

    @property
    def _compiler(self) -> str:
        return f"zig-cc -target {self._target.zig}"

    def _run(self, command: list[str], directory: str = ".", **variables: str) -> str:
        return run(command, self._work / directory, {**self._variables, **variables})

    def libraries(self) -> None:
        """Compiles zlib and libffi. Their own scripts of configuration are not needed for so little."""
        work, ffi = self._work, self._work / "libffi"
        for name in ("zlib.h", "zconf.h"):
            shutil.copy(work / "zlib" / name, work / "include")
        header = (ffi / "include" / "ffi.h.in").read_text()
        values = {"VERSION": sources()["libffi"].version, "TARGET": self._convention, "HAVE_LONG_DOUBLE": "1"}
        values |= {"FFI_EXEC_TRAMPOLINE_TABLE": "0", "FFI_VERSION_STRING": values["VERSION"]}
        values |= {"FFI_VERSION_NUMBER": "{:d}{:02d}{:02d}".format(*map(int, values["VERSION"].split(".")))}
        for name, value in values.items():
            header = header.replace(f"@{name}@", value)
        (work / "include" / "ffi.h").write_text(header)
        shutil.copy(ffi / "src" / self._ffi_sources[0].partition("/")[0] / "ffitarget.h", work / "include")
        shutil.copy(_HERE / "fficonfig.h", work / "include")
        zlib = ["-DHAVE_UNISTD_H", "-DHAVE_STDARG_H", "-D_LARGEFILE64_SOURCE=1"]
        self._archive("z", [f"zlib/{name}.c" for name in _ZLIB.split()], zlib)
        wanted = ["-D_GNU_SOURCE", "-Iinclude", "-Ilibffi/include"]
        self._archive("ffi", [f"libffi/src/{name}" for name in (*_FFI, *self._ffi_sources)], wanted)

    def _archive(self, name: str, files: list[str], flags: list[str]) -> None:
        def compiled(file: str) -> str:
            made = f"objects/{name}-{Path(file).name}.o"
            self._run([*self._compiler.split(), *_FLAGS, *flags, "-c", file, "-o", made])
            return made

        with ThreadPoolExecutor(int(JOBS)) as pool:
            objects = list(pool.map(compiled, files))
        self._run(["zig-ar", "rcsD", f"lib/lib{name}.a", *objects])

    def openssl(self) -> None:
        """Compiles OpenSSL's static libraries."""
        tools = {"CC": self._compiler, "AR": "zig-ar", "RANLIB": "zig-ranlib"}
        command = [
            "perl",
            "Configure",
            self._openssl_platform,
            *_OPENSSL.split(),
            "--prefix=/usr",
            "--openssldir=/etc/ssl",
        ]
        self._run([*command, "--libdir=lib", "-fno-sanitize=undefined", "-fvisibility=hidden"], "openssl", **tools)
        self._run(["make", "-s", "-j", JOBS, "build_libs"], "openssl")

    def cpython(self, native: Path | None) -> None:
        """Configures and compiles CPython; `native` is this machine's, for another machine's build."""
        libraries = "../openssl/libssl.a ../openssl/libcrypto.a"
        shared = f"*shared*\n_ssl _ssl.c -I../openssl/include {libraries}\n"
        (self._work / "cpython" / "Modules" / "Setup.local").write_text(
            shared + "\n".join(["*disabled*", *_LEFT_OUT.split(), ""])
        )
        here = this_platform()
        assert here is not None
        names = [f"--build={here.name}-gnu", f"--host={self._target.name}-gnu"]
        variables = {
            "CC": self._compiler,
            "AR": "zig-ar",
            "RANLIB": "zig-ranlib",
            "READELF": "true",
            "PKG_CONFIG": "false",
            "CFLAGS": "-fno-sanitize=undefined",
            "OPT": "-DNDEBUG -O3",
            "LDFLAGS": "-s",
            "CPPFLAGS": r"-DDATE=\"1-Jan-1980\" -DTIME=\"00:00:00\"",
            "MODULE_BUILDTYPE": "static",
            "ZLIB_CFLAGS": "-I../include",
            "ZLIB_LIBS": "../lib/libz.a",
            "LIBFFI_CFLAGS": "-I../include",
            "LIBFFI_LIBS": "../lib/libffi.a",
        }
        if native is not None:
            names.append(f"--with-build-python={native / 'bin' / NAME}")
            variables |= _CROSS
        options = ["--prefix=/seglog", "--without-ensurepip", "--disable-test-modules", "--with-readline=no"]
        self._run(["./configure", "-q", *names, *options], "cpython", **variables)
        self._run(["make", "-s", "-j", JOBS, "python", "sharedmods"], "cpython")

    def install(self, folder: Path) -> None:
        """Copies program and library to `folder`; Makefile's own installation would byte-compile all tests."""
        source, library = self._work / "cpython", folder / "lib" / NAME
        shutil.copytree(source / "Lib", library, ignore=shutil.ignore_patterns("__pycache__", "test", "idlelib"))
        (folder / "bin").mkdir()
        shutil.copy(source / "python", folder / "bin" / NAME)
        shutil.copy(source / "LICENSE", library / "LICENSE.txt")
        (library / "lib-dynload").mkdir()
        built = source / (source / "pybuilddir.txt").read_text().strip()
        for path in built.glob("_sysconfigdata*.py"):  # it names the directory of the build
            (library / path.name).write_text(path.read_text().replace(str(self._work), "/seglog"))
        for path in (source / "Modules").glob("_ssl.*.so"):
            shutil.copy(path, library / "lib-dynload" / path.name)
        for name in ("openssl/LICENSE.txt", "zlib/LICENSE", "libffi/LICENSE"):
            place = folder / "licenses" / f"{name.partition('/')[0]}.txt"
            place.parent.mkdir(exist_ok=True)
            shutil.copy(self._work / name, place)
