"""The registry of findings is complete, and a finding's JSON line has the fields of the contract."""

from __future__ import annotations

import re
from pathlib import Path

from seglog.verification.finding_codes import CODES
from seglog.verification.findings import finding

ENGINE = Path(__file__).parents[3] / "core" / "seglog"


def test_every_code_is_explained() -> None:
    for code, kind in CODES.items():
        assert code == kind.code == code.upper()
        assert kind.meaning.endswith(".") and kind.broker.endswith(".")


def test_every_registered_code_is_used() -> None:
    source = "".join(path.read_text() for path in ENGINE.rglob("*.py") if path.name != "findings.py")
    assert [code for code in CODES if not re.search(rf'"{code}"', source)] == []


def test_the_json_line_has_the_contracts_fields_in_order() -> None:
    found = finding("CRC_MISMATCH", "t-0", "0.log", "wrong", position=200, length=100, first_offset=6, last_offset=8)
    line = found.as_dict()
    wanted = ["type", "severity", "code", "partition", "file", "position", "length", "first_offset", "last_offset"]
    assert list(line)[: len(wanted)] == wanted
    assert (line["severity"], line["message"], line["repair"]) == ("error", "wrong", "excise")
