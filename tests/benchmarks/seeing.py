"""What `seglog report` and `seglog top` cost, beside their goals.

`python -m tests.benchmarks.seeing [LOGDIR…]`

Without a path, log directories of 1,000 and 10,000 partitions are made of hard links (`many_partitions`). Figures are
CPU seconds of the process (best of three): the report beside `ls` and one reading of all time indexes; the page's size,
also for 100,000 partitions; the first frame of `top`, and its share of a core at two seconds. With Chromium, the time
until the page's script has run, by the browser's own clock.
"""

from __future__ import annotations

import dataclasses
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import seglog
from seglog_cli.report_page.page import page
from tests.benchmarks.many_partitions import directory_of

COUNTS = (1_000, 10_000)
_FIRST = """
import os, sys, time
from seglog_cli.commands.top import View
def ended(self, fresh):
    open({file!r}, "w").write(str(time.process_time()))
    os._exit(0)
View._detail = ended
from seglog_cli.process import main
main(["top", {logs!r}])
"""
_CLOCK = """<script>addEventListener("load", () => {
  const times = performance.getEntriesByType("navigation")[0];
  document.documentElement.dataset.ready = times.domContentLoadedEventEnd;
});</script>"""
_INDEXES = """
import sys
from pathlib import Path
from seglog.scan.index_files import read_index
from seglog.storage.local import LocalFileSystem
for path in Path({logs!r}).rglob("*.timeindex"):
    read_index(LocalFileSystem(), path, int(path.stem))
"""
_SECONDS = 20.0


def say(text: str) -> None:
    """Writes a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def cpu_of(*command: str) -> float:
    """User and system seconds of a command, the best of three."""
    found = []
    for _ in range(3):
        before = os.times()
        subprocess.run([sys.executable, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        after = os.times()
        found.append(after.children_user + after.children_system - before.children_user - before.children_system)
    return min(found)


def first_frame(logs: Path, scratch: Path) -> float:
    """CPU seconds of a process until `top` has drawn its first frame."""
    found = []
    for _ in range(3):
        file = scratch / "frame"
        ours, theirs = pty.openpty()
        command = [sys.executable, "-c", _FIRST.format(file=str(file), logs=str(logs))]
        child = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=terminal())
        while child.poll() is None:
            if select.select([ours], [], [], 0.1)[0]:
                os.read(ours, 1 << 16)
        os.close(ours)
        os.close(theirs)
        found.append(float(file.read_text()))
    return min(found)


def share_of_a_core(logs: Path) -> float:
    """The CPU share of `top` at two seconds, from ten seconds after its start on."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "seglog_cli", "top", str(logs)]
    child = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=terminal())

    def drain(seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if select.select([ours], [], [], 0.1)[0]:
                os.read(ours, 1 << 16)

    drain(10)
    before = used(child.pid)
    drain(_SECONDS)
    share = (used(child.pid) - before) / _SECONDS
    os.write(ours, b"q")
    drain(1)
    child.wait(30)
    return share


def used(pid: int) -> float:
    """The CPU seconds of a running process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def terminal() -> dict[str, str]:
    return {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}


def ready(html: Path, scratch: Path) -> float | None:
    """Seconds until a browser has the page and has run its script; None without Chromium.

    The browser's own clock tells, read by a script that a copy of the page gets in place of its content policy.
    """
    browser = shutil.which("chromium")
    if browser is None:
        return None
    copy = scratch / "copy.html"
    copy.write_text(re.sub("<meta http-equiv=[^>]*>", "", html.read_text()) + _CLOCK)
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
    options += ["--disable-background-networking", "--disable-component-update", f"--user-data-dir={scratch / 'b'}"]
    found = []
    for _ in range(3):
        command = [browser, *options, "--dump-dom", copy.as_uri()]
        shown = subprocess.run(command, capture_output=True, check=True, text=True).stdout
        (time_ms,) = re.findall(r'data-ready="([0-9.]+)"', shown)
        found.append(float(time_ms) / 1000)
    return min(found)


def measure(logs: Path, scratch: Path) -> None:
    """Prints the figures of one log directory."""
    report = seglog.report(logs)
    html = scratch / "report.html"
    say(f"{logs}: {len(report.partitions):,} partitions, {report.segments:,} segments")
    ls = cpu_of("-m", "seglog_cli", "ls", str(logs))
    indexes = cpu_of("-c", _INDEXES.format(logs=str(logs))) - cpu_of("-c", "import seglog.scan.index_files")
    made = cpu_of("-m", "seglog_cli", "report", str(logs), "-o", str(html), "--replace")
    say(f"  report {made:.2f} s, ls {ls:.2f} + time indexes {indexes:.2f}: {made / (ls + indexes):.2f} x (goal 1.5)")
    say(f"  page {html.stat().st_size / 1e6:.2f} MB (goal for 10,000 partitions: 1)")
    shown = ready(html, scratch)
    say("  no Chromium" if shown is None else f"  ready after {shown:.2f} s (goal 0.5)")
    say(f"  top: first frame after {first_frame(logs, scratch):.2f} CPU s (goal for 1,000: 0.3)")
    say(f"  top: {100 * share_of_a_core(logs):.1f} % of a core at 2 s (goals: 3 for 1,000, 15 for 10,000)")
    if len(report.partitions) >= 10_000:
        times = 100_000 // len(report.partitions)
        many = tuple(
            dataclasses.replace(one, partition=f"copy{n}.{one.partition}", topic=f"copy{n}.{one.topic}")
            for n in range(times)
            for one in report.partitions
        )
        text = page(dataclasses.replace(report, partitions=many))
        say(f"  page for {len(many):,} partitions {len(text.encode()) / 1e6:.2f} MB (goal 5)")


def main() -> None:
    """The command."""
    with tempfile.TemporaryDirectory() as scratch:
        named = [Path(word) for word in sys.argv[1:]] or [directory_of(Path(scratch), count) for count in COUNTS]
        for logs in named:
            measure(logs, Path(scratch))


if __name__ == "__main__":
    main()
