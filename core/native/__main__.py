"""Builds the library unless it is up to date; also wheels for all or the named targets, a bundle, or a release."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from native import building, platforms
from native.bundle import making
from native.delivery import library_cache, release

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Returns the exit code."""
    options = _options()
    # Kernels are compiled through numba's JIT, without the user's settings of numba.
    for name in [name for name in os.environ if name.startswith("NUMBA_")]:
        del os.environ[name]
    os.environ["SEGLOG_KERNELS"] = "jit"
    try:
        names = options.target or [target.name for target in platforms.TARGETS if options.wheels or options.release]
        here = platforms.this_platform()
        if not names:
            if here is None:
                _say("this platform is not a target: numba compiles its kernels, or they run interpreted")
                return 1
            names = [here.name]
        targets = [platforms.named(name) for name in names]
        wanted = [(target.name, building.library_for(target.name)) for target in targets]
        late = [(name, path) for name, path in wanted if options.force or not _is_there(name, path)]
        if late:
            building.build(late, _say)
            for name, path in late:
                library_cache.keep(path.read_bytes(), name, _say)
        wheels = [partial(_build, "wheel", target.name) for target in targets]
        for wheel in wheels if options.wheels else ():
            wheel(options.wheels)
        if options.bundle:
            _bundles(targets, options.bundle)
        if options.release:
            bundles = partial(_bundles, [target for target in targets if target == here])
            release.make(options.release, [*wheels, partial(_build, "sdist", "none"), bundles], _say)
    except (building.BuildError, subprocess.CalledProcessError, TypeError, ValueError) as error:
        _say(str(error))
        return 1
    return 0


def _bundles(targets: Iterable[platforms.Target], place: Path) -> None:
    for target in targets:
        making.make(target, partial(_build, "wheel", target.name), place, _say)


def _is_there(name: str, path: Path) -> bool:
    if building.is_current(path, name) or building.borrow(path, name):
        return True
    library = library_cache.kept(name, _say)
    if library is None or building.stamp(name).encode() not in library:  # the tools here may be others than the pinned
        return False
    building.put(library, path)
    return True


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m native", description=__doc__)
    known = ", ".join(target.name for target in platforms.TARGETS)
    default = "default: this platform, with --wheels and --release all"
    parser.add_argument("--target", action="append", metavar="NAME", help=f"{known} ({default}); repeatable")
    parser.add_argument("--wheels", type=Path, metavar="DIRECTORY", help="make wheels there; needs hatchling")
    bundle = "make the bundle there, for hosts without Python: archives and packages"
    parser.add_argument("--bundle", type=Path, metavar="DIRECTORY", help=bundle)
    files = "make a release there: wheels, sources, the bundle of this platform, checksums"
    parser.add_argument("--release", type=Path, metavar="DIRECTORY", help=files)
    parser.add_argument("--force", action="store_true", help="build even if up to date")
    return parser.parse_args()


def _build(kind: str, target: str, directory: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(directory.resolve())]
    variables = {**os.environ, building.TARGET_VARIABLE: target}
    subprocess.run(command, cwd=ROOT, env=variables, check=True)


def _say(what: str) -> None:
    print(f"native: {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
