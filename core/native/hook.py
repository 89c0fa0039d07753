"""The hook that hatchling runs to build a wheel, or an editable one: it adds the library.

SEGLOG_BUILD_TARGET names another platform, or `none` for a wheel without compiled kernels. A platform that is not a
target also gets a wheel without them, and so does a Python that numba does not know, with a message.
"""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

OLDEST = (3, 11)  # as in pyproject.toml's requires-python
# Not by PYTHONPATH: pip's build environment removes paths that an earlier editable install has added.
_RUN = "import sys; sys.path.insert(0, sys.argv.pop(1)); from native.__main__ import main; sys.exit(main())"
_SPEED_WITHOUT = "it runs some hundred times slower unless numba compiles them at first use (extra jit)"


def _is_installed(tool: str) -> bool:
    return next(iter(importlib.metadata.distributions(name=tool)), None) is not None


class NativeKernels(BuildHookInterface):  # type: ignore[misc]
    """Adds the library of a platform, built by `python -m native`, to the wheel beside the kernels."""

    def dependencies(self) -> list[str]:
        """Returns what pip installs for this build: the compilers, unless a library of these sources is kept."""
        if sys.version_info < OLDEST:
            return []  # `initialize` says so
        _, library_cache, target = self._plan()
        if target is None or library_cache.kept(target.name, self.app.display_warning) is not None:
            return []
        return list(self.config["tools"])

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Builds the library and names the wheel; an editable wheel uses the library in the source tree."""
        if sys.version_info < OLDEST:  # pip asks for the metadata, and so comes here, before it compares versions
            raise SystemExit(f"seglog needs Python {'.'.join(map(str, OLDEST))} or later, and this is {sys.version}")
        building, library_cache, target = self._plan()
        missing = [tool for tool in building.TOOLS if not _is_installed(tool)]
        library = library_cache.kept(target.name, self.app.display_warning) if target is not None and missing else None
        is_asked = os.environ.get(building.TARGET_VARIABLE) is not None
        if target is None or (missing and library is None and not is_asked):
            reason = f" ({', '.join(missing)} not installed)" if missing and not is_asked else ""
            self.app.display_warning(f"seglog: built without compiled kernels{reason}: {_SPEED_WITHOUT}")
            return
        path = building.library_for(target.name)
        if library is not None:  # `dependencies` asked for no tools, because it is there
            building.put(library, path)
        else:
            command = [sys.executable, "-c", _RUN, str(Path(self.root) / "core"), "--target", target.name]
            done = subprocess.run(command, cwd=self.root, check=False)
            if done.returncode != 0:
                raise SystemExit(f"seglog: the compiled kernels for {target.name} could not be built (see above)")
        if version != "editable":
            build_data["force_include"][str(path)] = f"seglog/kernels/{building.LIBRARY}"
            build_data["pure_python"] = False
            build_data["tag"] = target.tag

    def _plan(self) -> tuple[Any, Any, Any]:
        """Returns the modules of the builder, and the target; None for a wheel without compiled kernels."""
        core = str(Path(self.root) / "core")
        sys.path.insert(0, core)
        try:
            from native import building, platforms
            from native.delivery import library_cache
        finally:
            sys.path.remove(core)
        asked = os.environ.get(building.TARGET_VARIABLE)
        if asked is None:
            return building, library_cache, platforms.this_platform()
        return building, library_cache, None if asked == "none" else platforms.named(asked)
