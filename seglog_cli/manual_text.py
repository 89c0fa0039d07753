"""Written text of the main manual page: configuration, environment, files."""

from __future__ import annotations

CONFIGURATION = """
Configuration keys are Kafka's own. seglog adds the prices of an object store, with which `-v` shows what reading URLs
costs: `remote.price.listings` and `remote.price.reads` are for a thousand requests (0.005 and 0.0004, Amazon S3's in
US dollars), `remote.price.gigabyte` is for what was read (0, as within a region). A value is looked for in this order,
and the first that is found counts:

- an option of the command, or `--set KEY=VALUE`;
- an environment variable `SEGLOG_` and the key in capitals with underscores, such as `SEGLOG_SEGMENT_BYTES`;
- the entry of the topic, then the top level, of a YAML file: the one that `--config` names, else `SEGLOG_CONFIG`,
  else `./seglog.yaml`, else `$XDG_CONFIG_HOME/seglog/config.yaml` (root may use any of these but the first only if
  nobody else can write the file or its directory); `/dev/null` stands for no file;
- the topic's configuration in the log directory's own `__cluster_metadata-0`, then the brokers' defaults there;
- Kafka's default.

`seglog config show PATH` prints every value and where it came from. A file looks like this:

```
segment.bytes: 1GiB
delete.retention.ms: 1d
log.cleaner.dedupe.buffer.size: 128MiB
topics:
  "customers*": {cleanup.policy: compact, min.compaction.lag.ms: 1h}
```

Sizes are written `1GiB`, `1GB` or `1048576`, durations `7d12h` or `500ms`, times as RFC 3339 or epoch milliseconds.
An unknown key or an impossible value is an error that names file and line. What a broker would refuse but a log can
have, such as a `segment.bytes` under 1 MiB, is taken with a warning.
"""

OUTPUT = """
Data goes to standard output, messages and progress to standard error, both in UTF-8 whatever the locale.

Names of files and topics, keys, values and messages may hold anything. Characters that a terminal obeys are written
as escapes, to a terminal, a file and a pipe alike: control characters (`\\n`, `\\x1b`, `\\u009b`), line and paragraph
separators, and characters that turn the direction of writing (`\\u202e`). A byte of a name that is not UTF-8 is written
as `\\xff`. `dump-log` and `export --format csv` have a form that others prescribe: a file or a pipe gets it byte for
byte, a terminal gets it escaped.

With `--json` every line is an object in valid UTF-8. A text of a record that is not UTF-8 stands under `NAME_b64`
instead of `NAME`, in base64. The name of a file, a partition or a directory that is not UTF-8 stands under `NAME` with
escapes, to be read, and its exact bytes stand in base64 under `NAME_b64` beside it; for a list of names, `NAME_b64` is
the list of all of them. A ratio or a rate that is not a number is null.

When standard output takes no more data (a full disk, a terminal that is gone), that is an error of the operating
system, exit code 74. When its reader has closed it, the command ends quietly. Messages that standard error does not
take are lost; the work goes on. SIGINT, SIGTERM and SIGHUP end a command in order, and a second one ends it at once, as
a crash would.
"""

ENVIRONMENT = [
    ("SEGLOG_CONFIG", "The configuration file to use."),
    (
        "SEGLOG_KERNELS",
        "How the inner loops run: native (compiled ahead of time), jit (by numba, at their first use) or interpreted;"
        " default: the first of them that is there. `seglog --version -v` shows which.",
    ),
    (
        "SEGLOG_REMOTE_CACHE, SEGLOG_REMOTE_REQUESTS, SEGLOG_REMOTE_RETRIES, SEGLOG_REMOTE_TIMEOUT",
        "For URLs: the memory for what was read (64MiB), how many requests run at once (8), how often one that fails is"
        " repeated (5), and how long to wait for an answer (30s).",
    ),
    (
        "AWS_*, GOOGLE_*, AZURE_*",
        "Credentials, regions and endpoints of object stores, as the stores' own tools take them; AWS_PROFILE and"
        " ~/.aws need boto3.",
    ),
    ("NO_COLOR, FORCE_COLOR", "Never use colour; use colour although the output is not a terminal."),
    ("XDG_CONFIG_HOME, XDG_STATE_HOME", "Where configuration and history are kept."),
]

FILES = [
    ("LOGDIR/.lock", "The broker's own lock. Commands that write take it and hold it until they end."),
    (
        "LOGDIR/../.seglog-quarantine",
        "What repairs took out, with the journals that `seglog undo` reads; only the user who ran them can read it.",
    ),
    (
        "LOGDIR/__cluster_metadata-0.seglog-quarantine-future",
        "The same where LOGDIR is a mount point, or nothing can be made beside it: brokers pass over this name.",
    ),
    (
        "LOGDIR/.seglog-run and LOGDIR/seglog-run-unfinished",
        "There while a run (of verify --repair, transplant, recover, truncate, undo) is unfinished. No broker starts"
        " meanwhile: its error names the directory. The next command that writes finishes or undoes the run, but for"
        " clean, cleaner and retain, which refuse. So do serve, replay, and transplant and rebuild where they read;"
        " other commands that read warn.",
    ),
    ("LOGDIR/.seglog-append", "There while a Spark job writes; the next command that writes settles one cut short."),
    ("LOGDIR/.seglog-streams", "The last batch that each Spark stream has written."),
    ("$XDG_STATE_HOME/seglog/runs", "Where the runs of this user are, so that `seglog undo RUN` finds them."),
    ("$XDG_STATE_HOME/seglog", "The statistics of the last cleaning rounds."),
    ("$XDG_CONFIG_HOME/seglog/config.yaml", "Configuration, when nothing nearer is there."),
]
