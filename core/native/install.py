"""README's first command: makes the environment `.venv` in the clone, then builds and installs seglog there.

    python3 core/native/install.py [EXTRA]...

It does what `python3 -m venv .venv && .venv/bin/pip install '.[EXTRA,...]'` does. Unless pip has a terminal, it says
nothing for a minute while the kernels are compiled: this says every few seconds which step runs, and for how long.
"""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Callable

OLDEST = (3, 11)  # as in pyproject.toml's requires-python; older ones must be able to read this file
ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 5.0  # seconds without a word
# What pip's steps do here, for those that take long.
STEPS = {
    "Installing build dependencies": "fetching what builds seglog",
    "Installing backend dependencies": "fetching numba and Zig's compiler, which pip drops afterwards",
    "Preparing metadata": "compiling the kernels takes a minute or two",
    "Installing collected packages": "writing files",
}


def main(extras: list[str]) -> int:
    """Returns the exit code: pip's, or that of making the environment."""
    if sys.version_info < OLDEST:
        print(f"seglog needs Python {'.'.join(map(str, OLDEST))} or later, and this is {sys.version}", file=sys.stderr)
        return 1
    unknown = sorted(set(extras) - set(known_extras()))
    if unknown:
        print(f"no such extra: {', '.join(unknown)} (there are {', '.join(known_extras())})", file=sys.stderr)
        return 2
    say(f"making the environment {ROOT / '.venv'}")
    code = run([sys.executable, "-m", "venv", str(ROOT / ".venv")], "making the environment")
    if code == 0:
        what = f"{ROOT}[{','.join(extras)}]" if extras else str(ROOT)
        pip = [str(ROOT / ".venv" / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install"]
        code = run([*pip, "--progress-bar", "off", what], "starting pip")
    return code


def known_extras() -> list[str]:
    """Returns the extras that pyproject.toml names."""
    import tomllib  # of Python 3.11

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return sorted(project["optional-dependencies"])


def run(command: list[str], step: str) -> int:
    """Runs a command and relays its lines, and the step whenever it is silent; returns its exit code."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as child:
        lines: queue.Queue[str | None] = queue.Queue()

        def listen() -> None:
            assert child.stdout is not None
            for line in child.stdout:
                lines.put(line.rstrip("\n"))
            lines.put(None)

        threading.Thread(target=listen, daemon=True).start()
        relay(step, lines.get, say, time.monotonic)
        return child.wait()


def relay(
    step: str, line_within: Callable[..., str | None], say: Callable[[str], None], clock: Callable[[], float]
) -> None:
    """Says each line, and after each PATIENCE without one the last line; `line_within` gets lines from a queue."""
    since = clock()
    while True:
        try:
            line = line_within(timeout=PATIENCE)
        except queue.Empty:
            about = next((f"{name} ({words})" for name, words in STEPS.items() if name in step), step.strip())
            say(f"  {clock() - since:.0f} s: {about}")
            continue
        if line is None:
            return
        say(line)
        step, since = line, clock()


def say(line: str) -> None:
    """Prints a line at once, also into a pipe."""
    print(line, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)  # pip has had the signal, too, and says so
