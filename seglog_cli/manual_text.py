"""Text of the main manual page: output, configuration, environment, files."""

from __future__ import annotations

CONFIGURATION = """
Configuration keys are Kafka's own. The value is taken from the first of these places that has the key:

- an option of the command, or `--set KEY=VALUE`;
- an environment variable: `SEGLOG_` and the key in capitals with underscores, such as `SEGLOG_SEGMENT_BYTES`;
- a YAML file: the topic's entry, then the top level. The file is the one of `--config`, else of `SEGLOG_CONFIG`, else
  `./seglog.yaml`, else `$XDG_CONFIG_HOME/seglog/config.yaml`; `/dev/null` means no file. Root uses a file that was not
  named by `--config` only if nobody else can write the file or its directory. A place that the user cannot look into
  counts as empty, with a warning;
- the topic's configuration in the log directory's own `__cluster_metadata-0`, then the brokers' defaults there;
- Kafka's default.

`seglog config show PATH` prints every value and its source. A file looks like this:

```
segment.bytes: 1GiB
delete.retention.ms: 1d
log.cleaner.dedupe.buffer.size: 128MiB
topics:
  "customers*": {cleanup.policy: compact, min.compaction.lag.ms: 1h}
```

Sizes are written `1GiB`, `1GB` or `1048576`, durations `7d12h` or `500ms`, times as RFC 3339 or epoch milliseconds. An
unknown key or an impossible value is an error that names file and line. A value that a broker would refuse but a log
can have, such as a `segment.bytes` under 1 MiB, is accepted with a warning.

seglog has keys of its own for the prices of an object store, with which `-v` shows the cost of reading URLs:
`remote.price.listings` and `remote.price.reads` for a thousand requests (0.005 and 0.0004, Amazon S3's prices in US
dollars), and `remote.price.gigabyte` for the data read (0, as within a region).
"""

OUTPUT = """
Data goes to standard output, messages and progress to standard error, both in UTF-8 whatever the locale.

Names of files and topics, keys, values and messages may contain anything. Characters that control a terminal are
written as escapes, to a terminal, a file and a pipe alike: control characters (`\\n`, `\\x1b`, `\\u009b`), line and
paragraph separators, and characters that change the direction of writing (`\\u202e`). A byte of a name that is not
UTF-8 is written as `\\xff`. `dump-log` and `export --format csv` write prescribed formats: a file or a pipe gets them
byte for byte, a terminal gets them escaped.

With `--json` every line is an object in valid UTF-8; seglog-json(5) has the fields of each command and what stays. Text
of a record that is not UTF-8 is in base64 under `NAME_b64` instead of `NAME`. The name of a file, partition or
directory that is not UTF-8 is under `NAME` with escapes, to be read, and its exact bytes are in base64 under
`NAME_b64`; for a list of names, `NAME_b64` lists all of them. A ratio or rate that is not a number is null.

If standard output takes no more data (a full disk, a terminal that is gone), that is an error of the operating system,
exit code 74. If its reader has closed it, the command ends quietly. Messages that standard error does not take are
lost, and the work continues. SIGINT, SIGTERM and SIGHUP end a command in order; a second signal ends it at once, as a
crash would.
"""

RELEASES = """
The tests run these commands on what brokers of each release wrote, stopped and killed, and start those brokers on the
result. Up to 2.8 they have ZooKeeper, from 3.3 on they are their own controllers. "4.4" means that the command makes
something that a broker of 4.4 starts on: `transplant` needs topic ids, `rebuild` controllers.

{table}

Where releases differ, a command speaks for one of them: `doctor` and `explain` for the release that wrote the
directory, as far as it is recognised, all others for 4.3; `--kafka-version` chooses another one. The differences
between 4.3 and 4.4: its cleaner keeps an emptied batch only at the high watermark, records and fields that 4.4 has
added (decoded by `dump`, `dump-log`, `groups` and `metadata` as 4.4 writes them), levels of metadata.version and
share.version, and four keys of topics.
"""

ENVIRONMENT = [
    ("SEGLOG_CONFIG", "The configuration file to use."),
    (
        "SEGLOG_KERNELS",
        "How the inner loops run: native (compiled ahead of time), jit (compiled by numba at first use) or interpreted."
        " Default: the first of these that is available. `seglog --version -v` shows which.",
    ),
    (
        "SEGLOG_REMOTE_CACHE, SEGLOG_REMOTE_REQUESTS, SEGLOG_REMOTE_RETRIES, SEGLOG_REMOTE_TIMEOUT",
        "For URLs: the memory for data that was read (64MiB), the number of concurrent requests (8), how often a failed"
        " request is repeated (5), and how long to wait for an answer (30s).",
    ),
    (
        "AWS_*, GOOGLE_*, AZURE_*",
        "Credentials, regions and endpoints of object stores, as in the stores' own tools; AWS_PROFILE and ~/.aws need"
        " boto3.",
    ),
    ("NO_COLOR, FORCE_COLOR", "Never use colour; use colour even if the output is not a terminal."),
    ("XDG_CONFIG_HOME, XDG_STATE_HOME", "The directories of the configuration and of the history."),
]

FILES = [
    ("LOGDIR/.lock", "The broker's own lock. Commands that write hold it until they end."),
    (
        "LOGDIR/../.seglog-quarantine",
        "The data that repairs removed, and the journals that `seglog undo` reads. Only the user who ran them can"
        " read the directory.",
    ),
    (
        "LOGDIR/__cluster_metadata-0.seglog-quarantine-future",
        "The same if LOGDIR is a mount point, or if nothing can be created beside it: brokers ignore this name.",
    ),
    (
        "LOGDIR/.seglog-run and LOGDIR/seglog-run-unfinished",
        "These exist while a run (of repair, transplant, recover, truncate, undo) is unfinished. No broker"
        " starts meanwhile: its error names the directory. The next command that writes finishes or undoes the run."
        " clean, cleaner and retain refuse instead; so do serve and replay, and the sources of transplant and rebuild."
        " Other commands that read print a warning.",
    ),
    (
        "LOGDIR/.seglog-append",
        "It exists while a Spark job writes; the next command that writes settles an interrupted one.",
    ),
    ("LOGDIR/.seglog-streams", "The last batch that each Spark stream has written."),
    ("$XDG_STATE_HOME/seglog/runs", "The places of this user's runs, so that `seglog undo RUN` finds them."),
    ("$XDG_STATE_HOME/seglog", "The statistics of the last cleaning rounds."),
    ("$XDG_CONFIG_HOME/seglog/config.yaml", "The configuration file if no other one is found."),
]
