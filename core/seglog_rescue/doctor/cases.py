"""Diagnoses of `doctor`, and the table of their codes (`CASES`): what a Kafka 4.3 broker does, and what mends it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seglog.escaping import shell_path
from seglog.remote_path import COPY_ON_A_DISK, RemotePath
from seglog.verification.codes import Code, Severity
from seglog_rescue.doctor.directory_codes import DIRECTORY_CODES
from seglog_rescue.doctor.mends import TOOLS
from seglog_rescue.doctor.partition_codes import PARTITION_CODES

CASES: dict[str, Code] = {case.code: case for case in (*DIRECTORY_CODES, *PARTITION_CODES)}

_ON_URLS = ("seglog dump ", "seglog txn ")
_UNREAD_OBJECT = {"broker": "Unknown: the store did not show it.", "command": "run the doctor again when it does"}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One diagnosis. `partition` is the directory's name ("" for the log directory itself), `file` a name in it.

    `position` and `length` are bytes in `file`; the offsets are those affected, None if there are none. `broker` says
    what a broker does, `command` what repairs it ("" if there is nothing to do). `offline` is as in `Code`.
    """

    code: str
    gravity: Severity
    log_directory: str
    partition: str
    file: str
    message: str
    broker: str
    command: str
    position: int | None = None
    length: int | None = None
    first_offset: int | None = None
    last_offset: int | None = None
    count: int = 1
    offline: bool = False

    def as_dict(self) -> dict[str, Any]:
        """The JSON line's fields, `type` first."""
        return {
            "type": "diagnosis",
            "severity": self.gravity.value,
            "code": self.code,
            "log_directory": self.log_directory,
            "partition": self.partition,
            "file": self.file,
            "position": self.position,
            "length": self.length,
            "first_offset": self.first_offset,
            "last_offset": self.last_offset,
            "count": self.count,
            "message": self.message,
            "broker": self.broker,
            "command": self.command or None,
        }


def diagnosis(
    code: str, log_directory: Path, partition: Path | None, path: Path, message: str, **fields: Any
) -> Diagnosis:
    """Returns a `Diagnosis` of the file or directory `path`, with the texts of its case unless `fields` override them.

    `partition` is the partition directory concerned, None for the log directory; then the command names `path`.
    """
    case = CASES[code]
    named = {"log_directory": log_directory, "partition": partition or path, "path": path}
    command = case.command.format_map({name: shell_path(each) for name, each in named.items()})
    of_case = {"gravity": case.severity, "broker": case.broker, "offline": case.offline}
    known = {**of_case, "command": command, **fields}
    if isinstance(log_directory, RemotePath):
        if code == "NOT_EXAMINED":
            known.update(_UNREAD_OBJECT)
        known["command"] = _for_a_copy(known["command"], log_directory)
    name = "" if partition is None else partition.name
    file = "" if path == log_directory else path.name
    return Diagnosis(code, log_directory=str(log_directory), partition=name, file=file, message=message, **known)


def _for_a_copy(command: str, log_directory: RemotePath) -> str:
    """Returns what mends a log directory in a store: a command that works on a URL, or the one for a copy on a disk."""
    if command.startswith(TOOLS) and not command.startswith(_ON_URLS):
        return command.replace(str(log_directory), COPY_ON_A_DISK)
    return command


def codes() -> tuple[Code, ...]:
    """Returns all kinds of diagnoses, for the one page and the one command that explain codes."""
    return tuple(CASES.values())
