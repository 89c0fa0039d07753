"""What a code of a finding or a diagnosis says. `finding_codes` has those of `verify`, and `doctor` adds its own."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, Flag, auto
from pathlib import Path


class Severity(Enum):
    """Of a finding: `error` is damage, `warning` may lead to damage, `info` is worth knowing.

    Of a diagnosis: a `blocker` keeps the broker from starting or takes the log directory offline; a `danger` loses
    data, serves wrong data, or stops a background thread; a `note` is settled by the broker, or worth knowing.
    """

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    NOTE = "note"
    DANGER = "danger"
    BLOCKER = "blocker"


class Notice(Enum):
    """When a broker notices."""

    NEVER = "never"
    READ = "when it is read"
    UNCLEAN_START = "at an unclean start"
    START = "at every start"


class Trait(Flag):
    """What a kind of finding is to the code that works with it."""

    NONE = 0
    LOCAL = auto()  # a second look at the segment alone can confirm it
    DAMAGE = auto()  # its bytes count as damaged
    LOSS = auto()  # no file holds its offsets


@dataclass(frozen=True, slots=True)
class Code:
    """A kind of finding, or of `doctor`'s diagnoses (which have no meaning of their own, but what a broker does).

    `repair` names what `seglog repair` or another command does, `command` is one line for a shell with the fields
    `{log_directory}`, `{partition}` and `{path}`, where words in capitals stand for what the operator knows; `mend`
    says in general words what neither does. `doctor` is the diagnosis of a finding. `offline`: the broker continues
    without the log directory, as long as another one has the metadata log.
    """

    code: str
    severity: Severity
    meaning: str
    broker: str
    notices: Notice = Notice.START
    repair: str = ""
    traits: Trait = Trait.NONE
    doctor: str = ""
    mend: str = ""
    command: str = ""
    offline: bool = False

    @property
    def leaves_the_log(self) -> bool:
        """True if a repair takes it out of a `.log`."""
        return self.repair in ("excise", "truncate")


UNREADABLE = "UNREADABLE_FILE"  # the code of findings about a file that the operating system cannot read

# Places and mends that stand in several rows.
ASIDE = Path("SOMEWHERE-OUTSIDE-LOG.DIRS")
REBUILD = "seglog rebuild LOGDIR… -o DIR with all log directories of all brokers, or another voter's metadata log"
COPY_OR_REBUILD = f"copy the directory from another voter, or {REBUILD}"
