"""Command lines to try on a log directory: commands that only look, and commands that change something."""

from __future__ import annotations

import random
from pathlib import Path

from tests.support.open_logs import START_MS

METADATA = "__cluster_metadata-0"


def looks(root: Path, partition: Path, file: Path, other: Path, out: Path, chance: random.Random) -> list[list[str]]:
    """Commands that must not change anything."""
    place = str(chance.choice([root, partition, partition, file]))
    offset = str(chance.choice([0, 0, 1, 7, 20, 39, 2**31, 2**63 - 1]))
    return [
        ["ls", place],
        ["read", str(partition), "--from-offset", offset, *chance.choice([[], ["--isolation", "read_committed"]])],
        ["read", str(partition), "--since", str(START_MS + 10)],
        ["dump", place],
        ["dump", "--records", place, *chance.choice([[], ["--untrusted"], ["-j", "2"]])],
        ["dump-log", "--files", str(file), *chance.choice([[], ["--print-data-log"], ["--deep-iteration"]])],
        ["dump-log", "--verify-index-only", "--files", str(file)],
        ["verify", place, "--level", chance.choice(["header", "crc", "record", "index", "semantic"])],
        ["verify", "--repair", "--dry-run", str(chance.choice([root, partition]))],
        ["recover", "--dry-run", str(chance.choice([root, partition]))],
        ["reindex", "--dry-run", str(partition)],
        ["truncate", "--dry-run", "--to-offset", offset, str(partition)],
        ["truncate", "--dry-run", "--at-damage", str(partition)],
        ["retain", "--dry-run", "--retention-ms", "1", str(chance.choice([root, partition]))],
        ["retain", "--dry-run", "--free", "+1MB", str(root)],
        ["clean", "--dry-run", "--policy", "compact", "--override-policy", str(partition)],
        ["clean", "--dry-run", "--policy", "compact", "--override-policy", "--roll", str(partition)],
        ["clean", "--dry-run", str(root)],
        ["stats", place, *chance.choice([[], ["--sizing"]])],
        ["explain", "--advise", str(partition)],
        ["txn", str(partition)],
        ["doctor", str(root)],
        ["groups", str(root), *chance.choice([[], ["--csv"], ["--at", str(START_MS + 10)]])],
        ["diff", str(partition), str(other)],
        ["config", "show", str(chance.choice([root, partition]))],
        ["metadata", str(chance.choice([root, root / METADATA])), *chance.choice([[], ["--at", "2"]])],
        ["metadata", str(root / METADATA), "--diff", str(chance.choice([root, root / METADATA, file]))],
        ["rebuild", str(root), "-o", str(out / "made"), *chance.choice([[], ["--allow-missing"]])],
        ["restore", "--dry-run", str(chance.choice([root, partition])), "-o", str(out)],
        ["transplant", "--dry-run", str(chance.choice([root, partition])), "--into", str(root)],
        ["tiers", place],
        ["export", str(partition), "-o", str(out / "export.jsonl")],
        ["export", str(partition), "--format", "csv", "-o", str(out / "export.csv")],
    ]


def changes(root: Path, partition: Path, file: Path, other: Path, out: Path, chance: random.Random) -> list[list[str]]:
    """Commands that change the directory, or make another one."""
    place = str(chance.choice([root, partition]))
    codec = chance.choice(["none", "gzip", "snappy", "lz4", "zstd"])
    policy = chance.choice(["smallest-loss", "truncate", "excise"])
    return [
        ["verify", "--repair", "--policy", policy, place],
        ["verify", "--repair", place],
        ["recover", place],
        ["reindex", str(partition)],
        ["truncate", "--to-offset", str(chance.choice([0, 1, 7, 20, 39, 2**31])), str(partition)],
        ["truncate", "--to-time", str(START_MS + 10), str(partition)],
        ["truncate", "--at-damage", str(partition)],
        ["retain", "--retention-ms", "1", *chance.choice([[], ["--delay", "0"]]), place],
        ["retain", "--retention-bytes", "1", place],
        ["retain", "--free", "+1kB", str(root)],
        ["clean", "--policy", "compact", "--override-policy", str(partition)],
        ["clean", "--policy", "compact", "--override-policy", "--roll", "--expire", str(partition)],
        ["clean", str(root)],
        ["cleaner", "--once", "--set", "cleanup.policy=compact", "--override-policy", str(root)],
        ["append", str(partition)],
        ["salvage", str(partition), "-o", str(out / "salvaged-0")],
        ["salvage", "--carve", str(chance.choice([partition, file])), "-o", str(out / "carved-9")],
        ["salvage", "--carve", "--into-one", str(partition), "-o", str(out / "carved-9")],
        ["convert", str(partition), "-o", str(out / "converted-0"), "--codec", codec],
        ["convert", str(partition), "-o", str(out / "converted-0"), "--magic", chance.choice("012")],
        ["convert", str(partition), "-o", str(out / "converted-0")],
        ["restore", str(chance.choice([root, partition])), "-o", str(out)],
        ["fetch", str(partition), "-o", str(out / "fetched-0"), *chance.choice([[], ["--allow-gaps"]])],
        ["transplant", str(other), "--into", str(root)],
    ]


def others(root: Path, partition: Path, file: Path, other: Path, out: Path, chance: random.Random) -> list[list[str]]:
    """Commands that look at what other commands left, or that need more than a log directory."""
    run = chance.choice(["20261121T015349Z-7f3a", str(out), str(file), str(other), "..", ""])
    return [
        ["append", "--create", str(root / "new-0")],
        ["append", str(partition), str(file)],
        ["config", "show", str(partition)],
        ["quarantine", "ls", str(root)],
        ["quarantine", "show", run],
        ["quarantine", "restore", run, "-o", str(out / "restored")],
        ["quarantine", "purge", "--yes", run],
        ["undo", run],
        ["txn", str(partition), "abort-cmd"],
        ["export", str(partition), "-o", str(out / "export.parquet")],
        ["diff", "--level", chance.choice(["bytes", "batches", "view"]), str(partition), str(other)],
        ["stats", "--sizing", "--plot", str(root)],
    ]
