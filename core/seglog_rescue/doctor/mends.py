"""What mends a diagnosis: commands with the places that they are about, and rows of the tables of codes."""

from __future__ import annotations

from pathlib import Path

from seglog.escaping import command_line, shell_path
from seglog.verification.codes import ASIDE, Code, Severity

UNFORESEEN = "Refuses to start: its code does not handle such a file (NumberFormatException or similar)."

# A mend that begins with one of these is a command.
TOOLS = ("seglog ", "mv ", "sed ", "printf ", "chown ", "chmod ", "cp ", "rm ", "rmdir ", "find ", "kafka-")

REPAIR = "seglog repair {partition}"
REINDEX = "seglog reindex {partition}"
CHECKPOINTS = "seglog repair --only checkpoint {log_directory}"
SET_ASIDE = f"mv {{path}} {ASIDE}"
RESTORE_FIRST = "before the start, copy the files from a replica (seglog replicas) or a backup"
NAMED_BY_DOCTOR = "seglog doctor LOGDIR names the command"
RESTORED = "seglog restore PATH -o NEW, and seglog transplant NEW --into LOGDIR"


def case(
    code: str, severity: Severity, broker: str, command: str = "", *, mend: str = "", offline: bool = False
) -> Code:
    """Returns a kind of diagnosis. `doctor` may compute another command from the state that it meets (a cluster id, a
    size, a topic); `mend` says it in general words.
    """
    return Code(code, severity, "", broker, command=command, mend=mend, offline=offline)


def format_command(cluster_id: str = "CLUSTER-ID", *, votes: bool = False) -> str:
    """Returns the command that formats those log directories of a node that are not formatted yet.

    Without the option, it refuses those of a node that `votes` in a dynamic quorum. An id that ZooKeeper's brokers made
    may begin with `-`: as a word of its own the tool would take it for an option.
    """
    option = ("--no-initial-controllers",) if votes else ()
    words = ("format", "--ignore-formatted", *option, f"--cluster-id={cluster_id}", "-c", "server.properties")
    return command_line("kafka-storage.sh", *words)


def apple_double_command(log_directory: Path) -> str:
    """Returns the one command that moves all AppleDouble files (`._NAME`, from copies made by macOS) out of a log
    directory. Files of one name come from many partitions, so the moves number them.
    """
    move = f"mv --backup=numbered -t {ASIDE}"
    return f"find {shell_path(log_directory)}/ -type f -name '._*' -exec {move} {{}} +"


def beside(log_directory: Path, what: str) -> Path:
    """Returns the place beside a log directory for what a command makes: a broker refuses to start on a log directory
    that holds a foreign one.
    """
    if log_directory.name in ("", ".."):  # "." and ".." have no name
        return log_directory / ".." / f"logs.{what}"
    return log_directory.with_name(f"{log_directory.name}.{what}")


def restore_command(aside: Path) -> str:
    """Returns the command that copies a partition that was set aside out of its log directory."""
    return command_line("seglog", "restore", aside, "-o", beside(aside.parent, "restored"))
