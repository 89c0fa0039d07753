"""Makes the pictures of the terminal in README: runs commands on a pseudo-terminal and draws them with rich as SVG.

    python -m tests.support.pictures [DIRECTORY]

writes them to `pictures/`. The logs are a copy of a fixture, damaged on the way; nothing else is needed, except for the
picture of the report's page: without Chromium it stays as it is.
"""

from __future__ import annotations

import argparse
import fcntl
import io
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FIXTURE = ROOT / "fixtures" / "kafka" / "4.3.0" / "clean"
KEPT = ("customers-0", "orders-none-0", "payments-0", "__consumer_offsets-0", "__transaction_state-0")
NOW = "2026-11-22T00:00:00Z"
PICTURES = {
    "ls": (80, "seglog ls ."),
    "verify": (80, "seglog verify orders-none-0"),
    "doctor": (80, "seglog doctor ."),
    "stats": (80, "seglog stats --sizing customers-0"),
    "top": (100, "seglog top --once --every 100ms ."),
    "clean": (80, "seglog clean --dry-run --roll customers-0"),
}
REPORT = "report.png"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_ALONE = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=980,1650"),
    "--force-device-scale-factor=0.75",
)
# Runs a command line with options that `sys.argv`, which the panel "what to do next" repeats, does not have.
_RUN = "import sys; from seglog_cli.process import main; main([*sys.argv[1:], *{hidden}])"
_CONTROLS = re.compile(r"\x1b\[[0-9;?]*[A-Zl-lh]|\r")  # of the cursor; sequences that set a style stay
# rich's own page loads fonts from other machines; a picture in a repository loads nothing.
_PAGE = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""


def write(directory: Path) -> list[Path]:
    """Writes all pictures; returns their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    made = []
    with tempfile.TemporaryDirectory() as scratch:
        logs = damaged_copy(Path(scratch) / "kafka")
        for name, (columns, line) in PICTURES.items():
            path = directory / f"{name}.svg"
            path.write_text(picture(line, shown(line, columns, logs), columns))
            made.append(path)
        browser = next(filter(None, map(shutil.which, BROWSERS)), None)
        if browser is not None:
            made.append(report_picture(browser, FIXTURE, Path(scratch), directory / REPORT))
    return made


def report_picture(browser: str, logs: Path, scratch: Path, target: Path) -> Path:
    """Draws the page of a report on logs with a browser that asks nobody; returns the picture's path."""
    page = scratch / "report.html"
    report: list[str | Path] = [
        sys.executable,
        "-m",
        "seglog_cli",
        "report",
        "--now",
        NOW,
        "--progress",
        "none",
        "-o",
        page,
    ]
    subprocess.run([*report, logs], stdout=subprocess.DEVNULL, check=False, env=_environment())
    page.write_text(page.read_text().replace(str(logs), "/var/lib/kafka/data"))
    options = [*_ALONE, f"--user-data-dir={scratch / 'browser'}", f"--screenshot={target.absolute()}", page.as_uri()]
    subprocess.run([browser, *options], capture_output=True, timeout=120, check=True)
    return target


def damaged_copy(directory: Path) -> Path:
    """Copies the log directory of a broker; damages four batches, removes an index, gives all files one age."""
    shutil.copytree(FIXTURE, directory)
    for partition in directory.iterdir():
        if partition.is_dir() and partition.name not in (*KEPT, "__cluster_metadata-0"):
            shutil.rmtree(partition)
    for checkpoint in directory.glob("*-offset-checkpoint"):
        lines = checkpoint.read_text().splitlines()
        left = [line for line in lines[2:] if "-".join(line.split()[:2]) in KEPT]
        checkpoint.write_text("\n".join([lines[0], str(len(left)), *left, ""]))
    for log in (directory / "orders-none-0").glob("*.log"):
        data = bytearray(log.read_bytes())
        data[700:704] = b"XXXX"
        log.write_bytes(data)
    (directory / "payments-0" / f"{0:020d}.index").unlink()
    for path in directory.rglob("*"):
        os.utime(path, (1_795_237_498, 1_795_237_498))
    return directory


def shown(line: str, columns: int, directory: Path) -> str:
    """Returns what a command writes to a terminal of this width, including styles."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    words = line.split()[1:]
    hidden = ["--progress", "none", *(["--now", NOW] if words[0] != "ls" else [])]
    command = [sys.executable, "-c", _RUN.format(hidden=hidden), *words]
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, cwd=directory, env=_environment()
    )
    os.close(theirs)
    written = b""
    while piece := _read(ours):
        written += piece
    os.close(ours)
    child.wait()
    return _CONTROLS.sub("", written.decode())


def _environment() -> dict[str, str]:
    variables = {**os.environ, "TERM": "xterm-256color", "PYTHONPATH": os.pathsep.join(sys.path)}
    for name in ("NO_COLOR", "COLUMNS"):
        variables.pop(name, None)
    return variables


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:  # the other end is closed and everything is read
        return b""


def picture(line: str, text: str, columns: int) -> str:
    """Returns the SVG of a terminal that shows a command line and its output."""
    from rich.console import Console
    from rich.text import Text

    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text(f"$ {line}", style="bold"))
    console.print(Text.from_ansi(text.replace("\t", "    ")))
    return console.export_svg(title="seglog", code_format=_PAGE, unique_id="seglog")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.pictures", description="Writes README's pictures.")
    parser.add_argument("directory", nargs="?", type=Path, default=ROOT / "pictures")
    for path in write(parser.parse_args().directory):
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
