"""What `seglog --help` shows: the commands in groups by task, and the pages of `seglog help`.

A command is one line in GROUPS and one module in `commands/` with a `run` (or, for a group of commands, an `app`).
Nothing is imported here, so that the overview costs no more than starting Python.
"""

from __future__ import annotations

VERSION = "0.1.0"  # a test compares it with pyproject.toml
SUMMARY = """Apache Kafka's log engine outside the broker.

Appends to, reads, dumps, verifies, repairs, recovers, retains and cleans partition logs on disk.
PATH is a segment or any other log file, a partition directory, or a log directory.

Run `seglog COMMAND --help` for a command, and `man seglog` for exit codes, configuration and files.
"""

# At most seven commands in a group, so that it is taken in at a glance.
GROUPS: dict[str, dict[str, str]] = {
    "See what is there": {
        "ls": "Lists partitions, segments and leftovers: sizes, offsets, times.",
        "read": "Reads records from an offset or a time on.",
        "dump": "Shows batches and records, and the contents of any Kafka file.",
        "dump-log": "Takes kafka-dump-log's options and prints its text.",
        "config": "Shows which configuration values apply to a log, and why.",
    },
    "Ask what is in it": {
        "sql": "Answers a query over logs in SQL.",
        "latest": "Shows the newest value of a key, or of every key.",
        "schemas": "Shows a lost registry's schemas; writes what a new one takes.",
        "where": "Tells which partition a key goes to, and by which partitioner.",
    },
    "Measure and watch": {
        "top": "Watches partitions: sizes, growth, compaction, retention.",
        "report": "Shows where bytes are, what grows, and what needs a hand.",
        "stats": "Shows distributions, past rounds, and what the cleaner needs.",
    },
    "Find what is wrong": {
        "doctor": "Tells whether a broker would start here, and what it would do.",
        "verify": "Verifies logs, past damage too; --repair repairs them.",
        "explain": "Explains why a log is not cleaned, deleted or readable; or a code.",
        "diff": "Compares copies of a partition, such as replicas or a backup.",
        "txn": "Shows transactions: finished ones, open ones, and those that hang.",
    },
    "Repair": {
        "repair": "Repairs damaged logs; every good batch stays.",
        "recover": "Recovers a log as a broker does when it starts after a crash.",
        "truncate": "Cuts off the end of a log, as a broker truncates a follower.",
        "reindex": "Rebuilds indexes, snapshots and leader epochs from the records.",
        "salvage": "Copies every good batch from damaged files into a new, valid log.",
        "undo": "Takes a repair back: restores its partitions bit for bit.",
        "quarantine": "Shows, restores or deletes data that repairs removed from logs.",
    },
    "Make room, and erase": {
        "retain": "Deletes old segments by the retention rules of a broker.",
        "clean": "Compacts logs: the last record of each key stays.",
        "cleaner": "Keeps compacted logs clean, as a broker's cleaner threads do.",
        "redact": "Erases named records from every segment, and proves it.",
    },
    "Write and convert": {
        "append": "Appends records, and reports what is safe on disk.",
        "export": "Writes the records of a partition or topic to a file.",
        "convert": "Copies a partition with another record format or codec.",
        "spark": "Verifies, measures, cleans, exports and compares logs with Spark.",
    },
    "Get partitions back": {
        "backup": "Stores log directories as snapshots, beside a broker too.",
        "restore": "Makes partitions from directories that a broker set aside.",
        "tiers": "Shows which segments are in tiered storage, and which are missing.",
        "fetch": "Copies partitions from tiered storage into a log directory.",
    },
    "Rescue a dead cluster": {
        "replicas": "Shows which copy to start from, and what each choice loses.",
        "metadata": "Shows the cluster that a controller's metadata log describes.",
        "groups": "Shows committed offsets, lag and members of consumer groups.",
        "serve": "Serves partitions to Kafka clients, read-only.",
        "replay": "Produces the records of partitions to another, running cluster.",
        "transplant": "Copies a dead cluster's partitions into another cluster's broker.",
        "rebuild": "Rebuilds a cluster's lost metadata from its log directories.",
    },
}
COMMANDS: dict[str, str] = {name: summary for group in GROUPS.values() for name, summary in group.items()}

PAGES = {
    "options": "The options of every command.",
    "exit-codes": "What a script learns from the exit code.",
    "dead-cluster": "From a dead cluster's disks to running consumers.",
}

# What other tools call things, and what does it here.
ELSEWHERE = {
    "compact": "clean",
    "compaction": "clean",
    "gc": "retain",
    "delete": "retain",
    "prune": "retain",
    "trim": "retain",
    "purge": "retain",
    "expire": "retain",
    "fsck": "verify, or doctor",
    "check": "verify, or doctor",
    "validate": "verify",
    "scrub": "verify",
    "health": "doctor",
    "status": "doctor",
    "fix": "repair",
    "cat": "read",
    "consume": "read",
    "tail": "read",
    "list": "ls",
    "query": "sql",
    "info": "stats",
    "du": "report",
    "produce": "append",
    "write": "append",
    "reset": "truncate",
    "erase": "redact",
    "forget": "redact",
    "rollback": "undo",
    "revert": "undo",
}
OPTIONS_ELSEWHERE = {"--port": "--listen HOST:PORT", "--host": "--listen HOST:PORT", "--bind": "--listen HOST:PORT"}
