"""What a code means: of a finding of `verify`, a diagnosis of `doctor`, or the end of a command."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from seglog_cli.console import Console
from seglog_cli.exit_codes import ExitCode
from seglog_cli.failures import UsageError

if TYPE_CHECKING:
    from seglog.verification.codes import Code

_LIKE_A_CODE = re.compile(r"[A-Za-z][A-Za-z0-9]*(_[A-Za-z0-9]+)+|\d{1,3}")
_LEVELS = {"verify": "found by seglog verify", "doctor": "foreseen by seglog doctor", "exit": "an exit code"}


def looks_like_code(text: str) -> bool:
    """True if a word can be a code, and so no partition: that one ends with a hyphen and a number."""
    return _LIKE_A_CODE.fullmatch(text) is not None


def explain_code(console: Console, text: str) -> None:
    """Shows all that is known of a code. Raises UsageError, which names similar ones, for an unknown code."""
    found = meanings(text)
    if not found:
        from difflib import get_close_matches

        near = get_close_matches(text.upper(), _codes(), n=3, cutoff=0.5)
        hint = f"; similar: {', '.join(near)}" if near else " (man seglog-findings lists them)"
        raise UsageError(f"{text} is neither a partition nor a code{hint}")
    for fields in found:
        if console.as_json:
            console.json({"type": "code", **fields})
            continue
        severity = f" ({fields['severity']})" if fields.get("severity") else ""
        console.line(f"{console.styled(fields['code'], 'strong')}{severity}: {_LEVELS[fields['of']]}")
        for name in ("meaning", "broker", "mend"):
            if fields.get(name):
                console.indented([f"{f'{name}:':<9}{fields[name]}"], 9)


def meanings(text: str) -> list[dict[str, str]]:
    """Returns the entries of a code in the tables of findings, diagnoses and exit codes."""
    if text.isdigit():
        known = [code for code in ExitCode if int(code) == int(text)]
        return [{"code": str(int(code)), "of": "exit", "meaning": f"{code.meaning}."} for code in known]
    from seglog.verification.finding_codes import every_code

    return [_entry(kind) for kind in every_code() if kind.code == text.upper()]


def _entry(kind: Code) -> dict[str, str]:
    entry = {"code": kind.code, "of": "doctor", "severity": kind.severity.value}
    if not kind.meaning:
        return entry | {"broker": kind.broker, "mend": mending(kind)}
    noticed = f"notices it {kind.notices.value}" if kind.notices.value != "never" else "never notices it"
    broker = f"{noticed}. {kind.broker}"
    return entry | {"of": "verify", "meaning": kind.meaning, "broker": broker, "mend": mending(kind)}


def mending(kind: Code) -> str:
    """Says what mends it, for somebody who has only the code."""
    if kind.repair == "reindex":
        return "seglog reindex PARTITION, or seglog repair PATH"
    if kind.repair == "recover":
        return "seglog repair PATH, or seglog recover PATH"
    if kind.repair:
        return f"seglog repair PATH ({kind.repair})"
    return general_command(kind) or kind.mend or "none is needed"


def general_command(kind: Code) -> str:
    """Returns a diagnosis's command, with words for its places."""
    return kind.command.format(log_directory="LOGDIR", partition="PARTITION", path="PATH")


def _codes() -> list[str]:
    from seglog.verification.finding_codes import every_code

    return [kind.code for kind in every_code()]
