"""Writes the output of the README's tour again: `PYTHONPATH=core:. python -m tests.support.readme_tour`.

The commands are those that stand in the README, run in order on a fresh copy of the fixture; `test_readme`
then holds the page to them.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from tests.support.command_line import ROOT, clean_logs, shell

TOUR = re.compile(r"(<!-- tour -->\n```console\n)(.*?)(```\n)", re.DOTALL)


def shown_lines(command: str, logs: Path) -> list[str]:
    """What a reader sees: the output, with the directory as $PWD, and an exit code that is not 0."""
    done = shell(command, logs)
    lines = done.stdout.replace(str(logs.resolve()), "$PWD").splitlines()
    return [*lines, *([f"[exit code {done.returncode}]"] if done.returncode else [])]


def commands(readme: str) -> list[str]:
    """The tour's commands, in order."""
    match = TOUR.search(readme)
    assert match is not None
    return [line[2:] for line in match[2].splitlines() if line.startswith("$ ")]


def main() -> None:
    """Rewrites the README."""
    path = ROOT / "README.md"
    readme = path.read_text()
    with tempfile.TemporaryDirectory() as directory:
        logs = clean_logs(Path(directory))
        steps = ["\n".join([f"$ {command}", *shown_lines(command, logs)]) for command in commands(readme)]
    path.write_text(TOUR.sub(lambda match: match[1] + "\n".join(steps) + "\n" + match[3], readme))


if __name__ == "__main__":
    main()
