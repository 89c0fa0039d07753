"""Many wounded partitions in one log directory: one start of a broker, and one look of doctor, tells the fate of each.

Each is a partition of the bases `clean` or `unclean` under a name of its own, with the wounds of a state that has them
all in that partition. What stops a start is given to a broker alone.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from seglog.format.uuids import format_uuid, parse_uuid
from seglog_rescue.rebuild.metadata_snapshot import encode_metadata_record
from tests.support.broken.wounded_starts import BASES, BROKERS_USER, LOGS, METADATA, PAID, PARTITION, State, appended
from tests.support.metadata_records import topic_id
from tests.support.other_users import given_to
from tests.support.prognoses import Course, Prognosis

HERDED = ("clean", "unclean")
_TEMPLATES = (PARTITION, PAID)
_NAMED_BY_TOPIC = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint")


def partition_of(state: State) -> str:
    """The partition in which a state has all its wounds, "" if there is none.

    Nor is there if `partition.metadata` is wounded, which in a herd names another topic.
    """
    files = [state.file, *(part.partition(" | ")[0] for part in state.wound.split(" + ")[1:])]
    names = {file.partition("/")[0] for file in files if "/" in file}
    (name,) = names if len(names) == 1 and all("/" in file for file in files) else ("",)
    herded = state.base in HERDED and not state.settings and state.free is None
    herded = herded and not any(file.endswith("/partition.metadata") for file in files)
    return name if herded and name in _TEMPLATES else ""


@dataclass(frozen=True)
class Herd:
    """A log directory, and the states by the names of the partitions that have their wounds."""

    root: Path
    states: Mapping[str, State]

    @property
    def logs(self) -> Path:
        return self.root / LOGS


def herd(states: Sequence[State], root: Path, *, given: bool) -> Herd:
    """Makes the log directory of states of one base, whose wounds are in one partition each."""
    (logs,) = BASES[states[0].base](root)
    members = {f"w{number:03d}-0": state for number, state in enumerate(states)}
    records = []
    for number, name in enumerate(members):
        records += _records(name.removesuffix("-0"), topic_id(number + 1), _directory_id(logs))
    appended(*records)(logs / METADATA)
    for checkpoint in _NAMED_BY_TOPIC:
        _named_in(logs / checkpoint, members)
    if given:
        given_to(logs, BROKERS_USER)
    for number, (name, state) in enumerate(members.items()):
        _move_in(state, logs / name, root / "one", topic_id(number + 1), given=given)
    return Herd(root, members)


def _directory_id(logs: Path) -> str:
    (line,) = (line for line in (logs / "meta.properties").read_text().splitlines() if line.startswith("directory.id"))
    return format_uuid(parse_uuid(line.partition("=")[2]))


def _records(topic: str, identity: str, directory: str) -> list[bytes]:
    fields = {
        "partitionId": 0,
        "topicId": identity,
        "replicas": [1],
        "isr": [1],
        "removingReplicas": [],
        "addingReplicas": [],
        "leader": 1,
        "leaderEpoch": 5,
        "partitionEpoch": 5,
        "directories": [directory],
    }
    return [
        encode_metadata_record("TOPIC_RECORD", {"name": topic, "topicId": identity}),
        encode_metadata_record("PARTITION_RECORD", fields),
    ]


def _named_in(checkpoint: Path, members: Mapping[str, State]) -> None:
    """Each member's line is that of the partition that it was made from."""
    lines = checkpoint.read_text().splitlines()[2:]
    offsets = {line.rpartition(" ")[0]: line.rpartition(" ")[2] for line in lines}
    for name, state in members.items():
        topic = partition_of(state).removesuffix("-0")
        lines.append(f"{name.removesuffix('-0')} 0 {offsets[f'{topic} 0']}")
    checkpoint.write_text("\n".join(["0", str(len(lines)), *lines, ""]))


def _move_in(state: State, to: Path, scratch: Path, identity: str, *, given: bool) -> None:
    (logs,) = BASES[state.base](scratch)
    partition = logs / partition_of(state)
    file = partition / "partition.metadata"
    file.write_text(f"version: 0\ntopic_id: {identity}")
    if given:
        given_to(logs, BROKERS_USER)
    state.change(scratch)
    for path in partition.iterdir():
        if given and path.is_symlink():
            os.lchown(path, 0, 0)  # one that another user made is not followed
    partition.rename(to)
    shutil.rmtree(scratch)


def can_be_herded(state: State, scratch: Path) -> bool:
    """Whether the state's wounds are in one partition, and leave it its name and everything else as it was."""
    name = partition_of(state)
    if not name:
        return False
    (logs,) = BASES[state.base](scratch)
    before = {path: path.lstat().st_size for path in logs.rglob("*") if name not in path.parts}
    try:
        state.change(scratch)
        after = {path: path.lstat().st_size for path in logs.rglob("*") if name not in path.parts}
        return before == after and (logs / name).is_dir()
    finally:
        shutil.rmtree(scratch)


def course_of(herd: Herd, name: str, course: Course) -> Course:
    """What became of one member, told as if it were the partition that it was made from."""
    own, known = herd.logs / name, herd.logs / partition_of(herd.states[name])

    def renamed(paths: set[Path]) -> set[Path]:
        return {known for path in paths if path == own}

    logs = {path: log for path, log in course.logs.items() if path.name not in herd.states and path != known}
    if own in course.logs:
        logs[known] = course.logs[own]
    return replace(
        course,
        offline=set(),
        logs=logs,
        strays=renamed(course.strays),
        made={known.with_name(path.name.replace(own.name, known.name)) for path in course.made if path == own},
        metadata="",
    )


def prognosis_of(herd: Herd, name: str, prognosis: Prognosis) -> Prognosis:
    """Doctor's word on one member, told as if it were the partition that it was made from."""
    own, known = herd.logs / name, herd.logs / partition_of(herd.states[name])
    rows = [
        {**row, "partition": known.name if row["partition"] == name else row["partition"]}
        for row in prognosis.rows
        if row["partition"] == name or row["partition"] not in herd.states
    ]
    logs = {path: log for path, log in prognosis.logs.items() if path.name not in herd.states and path != known}
    if own in prognosis.logs:
        logs[known] = prognosis.logs[own]
    return Prognosis(rows, {known.name} & {known.name if one == name else one for one in prognosis.awaited}, logs)


def in_herds(states: Sequence[State]) -> Iterator[list[State]]:
    """The states by their bases."""
    for base in HERDED:
        members = [state for state in states if state.base == base]
        if members:
            yield members
