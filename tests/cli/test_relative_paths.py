"""A path means the same from any directory: `.` in a partition is the partition, in a log directory all of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import clean_logs, run

# Of each command what comes before the path, and after it.
COMMANDS = (
    ("verify", ""),
    ("verify --level record --sample 50%", ""),
    ("verify --repair --dry-run", ""),
    ("dump --limit 3", ""),
    ("dump --records --limit 3", ""),
    ("read --limit 3", ""),
    ("export --replace -o ../out.jsonl", ""),
    ("stats --sizing", ""),
    ("explain", ""),
    ("ls", ""),
    ("config show", ""),
    ("diff", "../customers-1"),
    ("diff --level view", "../customers-1"),
    ("txn", "stat"),
    ("retain --dry-run --retention-ms 1", ""),
    ("truncate --dry-run --to-offset 1100", ""),
    ("reindex --dry-run", ""),
    ("clean --dry-run", ""),
    ("recover --dry-run --recovery-point 0", ""),
)


OF_DIRECTORIES = (
    ("verify", ""),
    ("stats", ""),
    ("ls --long", ""),
    ("doctor", ""),
    ("groups", ""),
    ("metadata", ""),
    ("config show", ""),
    ("export --replace -o ../out.jsonl", "customers-0"),
    ("retain --dry-run --retention-ms 1", ""),
    ("reindex --dry-run", ""),
    ("clean --dry-run", ""),
    ("recover --dry-run --recovery-point 0", ""),
    ("verify --repair --dry-run", ""),
)


@pytest.mark.parametrize(("before", "after"), COMMANDS, ids=lambda words: words.replace("/", "") or "-")
def test_a_partition_is_the_same_from_within(
    before: str, after: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(clean_logs(tmp_path) / "customers-0")
    code, lines = the_same(before, "../customers-0", after)
    assert lines and code == (1 if before.startswith("diff") else 0)


@pytest.mark.parametrize(("before", "after"), OF_DIRECTORIES, ids=lambda words: words.replace("/", "") or "-")
def test_a_log_directory_is_the_same_from_within(
    before: str, after: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = clean_logs(tmp_path)
    monkeypatch.chdir(logs)
    _, lines = the_same(before, f"../{logs.name}", after)
    assert lines


def the_same(before: str, path: str, after: str) -> tuple[int, list[str]]:
    """Returns the output of a command for `.` and for `path`: exit code and lines, without those that hold times."""
    said = []
    for named in (".", path):
        done = run(*before.split(), "--now", "2026-11-22", named, *after.split())
        text = (done.stdout + done.stderr).replace(f"{path}/", "").replace(path, ".")
        said.append((done.exit_code, [line for line in text.splitlines() if not line.startswith("\t")]))
    assert said[0] == said[1]
    assert "no such" not in "".join(said[0][1])
    return said[0]
