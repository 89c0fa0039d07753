"""Says that an erasure changes a repository (`seglog backup redact`), so that no run commits what it removes.

    redactions/<number>.begun        created before the erasure looks at the manifests
    redactions/<number>.committed    which folder has the manifests from now on (`Snapshots.listed`)
    redactions/<number>.ended        created when the objects with what was erased are gone

Names are created and never replaced, so of two erasures at once one is refused. A run of `backup` lists them when it
begins, before it writes its manifest and after: with the same list each time, its manifest was there when an erasure
that came later listed the manifests. A manifest that comes later, of a run that was stopped meanwhile, is in a folder
that does not count any more: nothing is listed that names what was removed, whoever is killed when.
"""

from __future__ import annotations

import json
import re
import socket
from dataclasses import dataclass

from seglog.errors import RefusedError
from seglog_rescue.backup.repository import Repository
from seglog_stores.formats.snapshot_manifest import REDACTIONS

_NAME = re.compile(r"([0-9]{8})\.(begun|committed|ended)")


def known_erasures(repository: Repository) -> frozenset[str]:
    """Returns the names of the erasures that have begun, and of those that have ended. Raises OSError."""
    repository.fs.forget_listings()
    return frozenset(name for name in repository.marks() if _NAME.fullmatch(name))


def unfinished_erasure(names: frozenset[str]) -> str | None:
    """Returns the number of the erasure that has not ended, None without one."""
    begun = sorted(name.partition(".")[0] for name in names if name.endswith(".begun"))
    return next((number for number in begun if f"{number}.ended" not in names), None)


def require_no_erasure(repository: Repository) -> frozenset[str]:
    """Returns the erasures that are known. Raises RefusedError if one has not ended; OSError."""
    names = known_erasures(repository)
    number = unfinished_erasure(names)
    if number is not None:
        raise RefusedError(
            f"{repository.place}: `seglog backup redact` is at work here, or was cut short"
            f" ({REDACTIONS}/{number}.begun); if it was, run it again with --resume, and then this"
        )
    return names


def require_no_erasure_since(repository: Repository, names: frozenset[str]) -> None:
    """Raises RefusedError if an erasure has begun since `names` were known; OSError."""
    if known_erasures(repository) != names:
        raise RefusedError(
            f"{repository.place}: records were erased there while this run was going on, so nothing was committed; run"
            " this again"
        )


@dataclass(frozen=True, slots=True)
class ErasureMark:
    """That an erasure is at work in a repository."""

    repository: Repository
    number: str

    @classmethod
    def begin(cls, repository: Repository, now_ms: int, *, resume: bool) -> ErasureMark:
        """Makes the mark, or goes on under that of an erasure that was cut short. Raises RefusedError if there is one
        and `resume` is false, or if another begins at the same time; OSError.
        """
        names = known_erasures(repository) if resume else require_no_erasure(repository)
        number = unfinished_erasure(names)
        if number is not None:
            return cls(repository, number)
        number = f"{sum(name.endswith('.begun') for name in names) + 1:08d}"
        fields = {"begunMs": now_ms, "host": socket.gethostname()}
        if not repository.create(f"{REDACTIONS}/{number}.begun", f"{json.dumps(fields)}\n".encode()):
            raise RefusedError(f"{repository.place}: another `seglog backup redact` has begun at the same time")
        return cls(repository, number)

    @property
    def is_committed(self) -> bool:
        """True if the manifests without what is erased are those that count."""
        return f"{self.number}.committed" in known_erasures(self.repository)

    def commit(self, folder: str) -> None:
        """Makes the manifests in a folder those that count. Raises RefusedError if another process that goes on with
        this erasure has done so; OSError.
        """
        data = f"{json.dumps({'snapshots': folder})}\n".encode()
        if not self.repository.create(f"{REDACTIONS}/{self.number}.committed", data):
            raise RefusedError(f"{self.repository.place}: another process has gone on with this erasure meanwhile")

    def end(self, now_ms: int) -> None:
        """Says that it has ended. Raises OSError."""
        self.repository.create(f"{REDACTIONS}/{self.number}.ended", f"{json.dumps({'endedMs': now_ms})}\n".encode())
