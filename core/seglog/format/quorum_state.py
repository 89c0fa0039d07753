"""`quorum-state`: the vote and the leader epoch of a voter or observer of the metadata quorum, as one line of JSON.

Kafka: FileQuorumStateStore, QuorumStateData. The parser accepts the same files as Kafka's, and raises
`CorruptCheckpointError` for any other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seglog.errors import CorruptCheckpointError
from seglog.format.uuids import parse_uuid
from seglog.layout import INT32_MAX, INT64_MAX

NEWEST_VERSION = 1
_LINE_END = re.compile(rb"\r\n|\r|\n")


def parse_quorum_state(data: bytes, path: Path | str) -> Mapping[str, Any]:
    """Returns the fields in the first line, by Kafka's names; Kafka does not read further, and ignores fields that it
    does not know.
    """
    line = _LINE_END.split(data, maxsplit=1)[0]
    if not data:
        raise CorruptCheckpointError(path, "the file is empty")
    try:
        found = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise CorruptCheckpointError(path, f"not JSON: {error}") from error
    if not isinstance(found, dict):
        raise CorruptCheckpointError(path, "not a JSON object")
    if "data_version" not in found:
        raise CorruptCheckpointError(path, "data_version is missing")
    version = _integer(found["data_version"])
    if version is None:
        version = 0  # Jackson's value of anything that is not a number
    if not 0 <= version <= NEWEST_VERSION:
        raise CorruptCheckpointError(path, f"data_version {version} is not from 0 to {NEWEST_VERSION}")
    for name in ("leaderId", "leaderEpoch", "votedId"):
        _number(found, name, INT32_MAX, path)
    if version == 0:
        _require(found, "clusterId", isinstance(found.get("clusterId"), str), "text", path)
        _number(found, "appliedOffset", INT64_MAX, path)
        _voters(found, path)
    else:
        _require(found, "votedDirectoryId", _is_uuid(found.get("votedDirectoryId")), "an id", path)
    return found


def _voters(found: Mapping[str, Any], path: Path | str) -> None:
    voters = found.get("currentVoters")
    nothing = "currentVoters" in found and voters is None
    _require(found, "currentVoters", nothing or isinstance(voters, list), "a list", path)
    for voter in voters or ():
        if not isinstance(voter, dict):
            raise CorruptCheckpointError(path, "currentVoters is not a list of objects")
        _number(voter, "voterId", INT32_MAX, path)


def _number(found: Mapping[str, Any], name: str, most: int, path: Path | str) -> None:
    value = _integer(found.get(name))
    _require(
        found, name, value is not None and -most - 1 <= value <= most, f"a number of {most.bit_length() + 1} bits", path
    )


def _integer(value: object) -> int | None:
    """Returns a whole number; None for anything else, such as true or 1.5."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _require(found: Mapping[str, Any], name: str, good: bool, what: str, path: Path | str) -> None:
    if name not in found:
        raise CorruptCheckpointError(path, f"{name} is missing")
    if not good:
        raise CorruptCheckpointError(path, f"{name} is not {what}")


def _is_uuid(value: object) -> bool:
    try:
        return isinstance(value, str) and parse_uuid(value) is not None
    except ValueError:
        return False
