"""The hook that hatchling runs to build a wheel, or an editable one: it adds the library.

SEGLOG_BUILD_TARGET names another platform, or `none` for a wheel without compiled kernels. A platform that is not a
target also gets a wheel without them, with a message.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

OLDEST = (3, 11)  # as in pyproject.toml's requires-python
# Not by PYTHONPATH: pip's build environment removes paths that an earlier editable install has added.
_RUN = "import sys; sys.path.insert(0, sys.argv.pop(1)); from native.__main__ import main; sys.exit(main())"


class NativeKernels(BuildHookInterface):  # type: ignore[misc]
    """Adds the library of a platform, built by `python -m native`, to the wheel beside the kernels."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Builds the library and names the wheel; an editable wheel uses the library in the source tree."""
        if sys.version_info < OLDEST:  # pip asks for the metadata, and so comes here, before it compares versions
            raise SystemExit(f"seglog needs Python {'.'.join(map(str, OLDEST))} or later, and this is {sys.version}")
        core = Path(self.root) / "core"
        sys.path.insert(0, str(core))
        try:
            from native import building, platforms
        finally:
            sys.path.remove(str(core))
        asked = os.environ.get(building.TARGET_VARIABLE)
        here = platforms.this_platform()
        if asked == "none" or (asked is None and here is None):
            self.app.display_warning("seglog: built without compiled kernels")
            return
        target = platforms.named(asked) if asked is not None else here
        assert target is not None
        command = [sys.executable, "-c", _RUN, str(core), "--target", target.name]
        done = subprocess.run(command, cwd=self.root, check=False)
        if done.returncode != 0:
            raise SystemExit(f"seglog: the compiled kernels for {target.name} could not be built (see above)")
        if version != "editable":
            library = str(building.library_for(target.name))
            build_data["force_include"][library] = f"seglog/kernels/{building.LIBRARY}"
            build_data["pure_python"] = False
            build_data["tag"] = target.tag
