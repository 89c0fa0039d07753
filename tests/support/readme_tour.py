"""The README followed word for word, and its output written again.

`PYTHONPATH=core:. python -m tests.support.readme_tour` runs the page's console blocks in order, in one shell, where the
page's first command leaves a reader: in a clone whose `.venv` has seglog. `test_readme` holds the page to the output.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from tests.support.command_line import ROOT, environment

CONSOLE = re.compile(r"(```console\n)(.*?)(```\n)", re.DOTALL)
LIBRARY = re.compile(r"<!-- library -->\n```python\n(.*?)```\n", re.DOTALL)
_RUN = re.compile(r"\b\d{8}T\d{6}Z-[0-9a-f]{4}\b")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC")
_STEP = "--- step ---"


def installed_clone(directory: Path) -> Path:
    """A clone after the page's first command: the fixtures, and a `.venv` whose seglog and python are this tree's.

    Only `pip install` is left out: it builds the kernels for a minute.
    """
    clone = directory / "seglog"
    shutil.copytree(ROOT / "fixtures" / "kafka" / "4.3.0" / "clean", clone / "fixtures" / "kafka" / "4.3.0" / "clean")
    venv.create(clone / ".venv")
    for name, command in (("python", ""), ("seglog", " -m seglog_cli")):
        script = clone / ".venv" / "bin" / name
        script.unlink(missing_ok=True)
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}"{command} "$@"\n')
        script.chmod(0o755)
    return clone


def commands(readme: str) -> list[str]:
    """The commands of all console blocks, in order."""
    return [line[2:] for block in CONSOLE.findall(readme) for line in block[1].splitlines() if line.startswith("$ ")]


def shown(readme: str, clone: Path) -> list[list[str]]:
    """For each command what a reader sees: output, and an exit code but 0.

    The directories are shown as $PWD and CLONE, a run as RUN, its time as TODAY.

    The library's example is written where the page says, before the first command that names it.
    """
    script = []
    for command in commands(readme):
        if command == "python library.py":
            script.append(f"cat > library.py <<'END'\n{''.join(LIBRARY.findall(readme))}END")
        script += [f"echo '{_STEP}'", command, 'code=$?; [ $code = 0 ] || echo "[exit code $code]"']
    done = subprocess.run(
        [shutil.which("bash") or "/bin/bash", "-c", "\n".join(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=clone,
        env=environment(PATH=os.environ.get("PATH", "/usr/bin:/bin")),
        check=False,
        timeout=300,
    )
    output = done.stdout.replace(str(clone.resolve() / "tour"), "$PWD").replace(str(clone.resolve()), "CLONE")
    output = _MOMENT.sub("TODAY", _RUN.sub("RUN", output))
    steps = output.split(f"{_STEP}\n")
    return [step.splitlines() for step in steps[1:]]


def followed(readme: str, clone: Path) -> str:
    """The page with what its commands show."""
    results = iter(shown(readme, clone))

    def block(match: re.Match[str]) -> str:
        steps = ["\n".join([f"$ {command}", *next(results)]) for command in commands(match[0])]
        return match[1] + "\n".join(steps) + "\n" + match[3]

    return CONSOLE.sub(block, readme)


def main() -> None:
    """Rewrites the README."""
    path = ROOT / "README.md"
    with tempfile.TemporaryDirectory() as directory:
        path.write_text(followed(path.read_text(), installed_clone(Path(directory))))


if __name__ == "__main__":
    main()
