"""A finding: corruption found by looking, which is data and not an exception."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seglog.storage.links import name_of
from seglog.verification.codes import Code, Notice, Severity
from seglog.verification.finding_codes import CODES


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. `position` and `length` are bytes in `file`; the offsets are those affected, None if unknown.

    `file` is the file's name, `partition` the directory's ("" for files of a log directory). `offsets_lost` is an upper
    bound on the offsets whose records can no longer be read.
    """

    code: str
    severity: Severity
    partition: str
    file: str
    message: str
    position: int | None = None
    length: int | None = None
    first_offset: int | None = None
    last_offset: int | None = None
    broker_notices: Notice = Notice.NEVER
    repair: str = ""
    offsets_lost: int = 0

    @property
    def kind(self) -> Code:
        """The definition of its code."""
        return CODES[self.code]

    def as_dict(self) -> dict[str, Any]:
        """The JSON line's fields, `type` first."""
        return {
            "type": "finding",
            "severity": self.severity.value,
            "code": self.code,
            "partition": self.partition,
            "file": self.file,
            "position": self.position,
            "length": self.length,
            "first_offset": self.first_offset,
            "last_offset": self.last_offset,
            "message": self.message,
            "broker_notices": self.broker_notices.value,
            "repair": self.repair or None,
            "offsets_lost": self.offsets_lost,
        }


def finding(code: str, partition: str, file: str, message: str, **fields: Any) -> Finding:
    """Returns a `Finding` with the severity, notice and repair of its code, unless `fields` override them."""
    kind = CODES[code]
    fields = {"broker_notices": kind.notices, "repair": kind.repair, "severity": kind.severity, **fields}
    return Finding(code=code, partition=partition, file=file, message=message, **fields)


def place_of(path: Path) -> tuple[str, str]:
    """Returns the `partition` and `file` of a finding on the file `path` in a partition directory."""
    return name_of(path.parent), path.name
