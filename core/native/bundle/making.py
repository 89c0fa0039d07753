"""Makes all of a bundle: `python -m native --bundle DIRECTORY`.

The archives, then a .deb and an .rpm of the same trees where their builders are. Two builds of one commit give the same
bytes: dates are the commit's, or SOURCE_DATE_EPOCH.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from native.building import BuildError
from native.bundle import archives, tree
from native.bundle.interpreter import NAME, interpreter
from native.bundle.registries import HERE, cache, fetch_wheels, run
from native.platforms import Target, this_platform

Say = Callable[[str], None]


def make(target: Target, own_wheel: Callable[[Path], None], place: Path, say: Say) -> None:
    """Writes a target's bundle to the directory `place`; `own_wheel` puts seglog's wheel into the directory it gets."""
    machine, _, system = target.name.partition("-")
    here = this_platform()
    if system != "linux" or here is None:
        raise BuildError(f"a bundle for {target.name} cannot be made here: Linux makes those for Linux")
    for folder in (cache(), place):
        folder.mkdir(parents=True, exist_ok=True)
    python = interpreter(target, say)
    compiler = interpreter(here, say) / "bin" / NAME
    name, date = f"{tree.version()}-{system}-{machine}", commit_date()
    with tempfile.TemporaryDirectory(prefix="bundle-", dir=cache()) as work:
        base, extras = (Path(work) / kind / f"seglog-{name}" for kind in ("base", "extras"))
        say("laying out the bundle")
        tree.standard_library(python, base, base=True)
        wheels = Path(work) / "wheels"
        fetch_wheels(HERE / "base.txt", machine, wheels, extras=False)
        own_wheel(wheels)
        tree.packages(wheels.glob("*.whl"), base)
        tree.note(base, f"seglog-extras-{name}.tar.xz")
        tree.completions(base)
        tree.launcher(target, base / "bin" / "seglog")
        tree.standard_library(python, extras, base=False)
        fetch_wheels(HERE / "extras.txt", machine, Path(work) / "more", extras=True)
        tree.packages((Path(work) / "more").glob("*.whl"), extras)
        for root in (base, extras):
            tree.shrink(root)
            tree.compile_sources(root, compiler)
        tree.check([base], "base")
        tree.check([base, extras], "extras")
        if here == target:
            tree.check_imports(base, extras)
        _pack(base, place / f"seglog-{name}.tar.xz", machine, date, say)
        _pack(extras, place / f"seglog-extras-{name}.tar.xz", machine, date, say)


def commit_date() -> int:
    """Returns the date of everything in a bundle, in seconds: SOURCE_DATE_EPOCH, else the commit's."""
    asked = os.environ.get("SOURCE_DATE_EPOCH")
    return int(asked or run(["git", "log", "-1", "--format=%ct"], tree.ROOT))


def _pack(top: Path, archive: Path, machine: str, date: int, say: Say) -> None:
    size = sum(path.stat().st_size for path in top.rglob("*") if path.is_file())
    archives.tar_xz(top, archive, date)
    say(f"{archive.name}: {archive.stat().st_size / 1e6:.1f} MB packed, {size / 1e6:.1f} MB unpacked")
    is_base = (top / "bin").is_dir()
    package, after = ("seglog", "") if is_base else ("seglog-extras", "seglog")
    glibc = ".".join(map(str, tree.OLDEST_GLIBC["base" if is_base else "extras"]))
    for tool, build in (("dpkg-deb", archives.deb), ("rpmbuild", archives.rpm)):
        if shutil.which(tool) is None:
            say(f"{tool} is not here: no package by it")
            continue
        made = build(package, tree.version(), machine, top, archive.parent, date, glibc, after)
        say(f"{made.name}: {made.stat().st_size / 1e6:.1f} MB")
