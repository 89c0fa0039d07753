"""Builds the library unless it is up to date; also wheels for all or the named targets, or the bundle of a target."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

from native import building, platforms
from native.bundle import making

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Returns the exit code."""
    options = _options()
    # Kernels are compiled through numba's JIT, without the user's settings of numba.
    for name in [name for name in os.environ if name.startswith("NUMBA_")]:
        del os.environ[name]
    os.environ["SEGLOG_KERNELS"] = "jit"
    try:
        names = options.target or [target.name for target in platforms.TARGETS if options.wheels]
        if not names:
            here = platforms.this_platform()
            if here is None:
                _say("this platform is not a target: numba compiles its kernels, or they run interpreted")
                return 1
            names = [here.name]
        wanted = [(platforms.named(name).name, building.library_for(name)) for name in names]
        late = [(name, path) for name, path in wanted if options.force or not _is_there(name, path)]
        if late:
            building.build(late, _say)
        for name in names if options.wheels else ():
            _wheel(name, options.wheels)
        for name in names if options.bundle else ():
            making.make(platforms.named(name), partial(_wheel, name), options.bundle, _say)
    except (building.BuildError, TypeError, ValueError) as error:
        _say(str(error))
        return 1
    return 0


def _is_there(name: str, path: Path) -> bool:
    return building.is_current(path, name) or building.borrow(path, name)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m native", description=__doc__)
    known = ", ".join(target.name for target in platforms.TARGETS)
    default = "default: this platform, with --wheels all"
    parser.add_argument("--target", action="append", metavar="NAME", help=f"{known} ({default}); repeatable")
    parser.add_argument("--wheels", type=Path, metavar="DIRECTORY", help="make wheels there; needs hatchling")
    bundle = "make the bundle there, for hosts without Python: archives and packages"
    parser.add_argument("--bundle", type=Path, metavar="DIRECTORY", help=bundle)
    parser.add_argument("--force", action="store_true", help="build even if up to date")
    return parser.parse_args()


def _wheel(target: str, directory: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory.resolve())]
    variables = {**os.environ, building.TARGET_VARIABLE: target}
    subprocess.run(command, cwd=ROOT, env=variables, check=True)


def _say(what: str) -> None:
    print(f"native: {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
