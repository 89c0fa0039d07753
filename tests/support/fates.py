"""The recorded fates: what real brokers did with each state of `wounded_starts`, and what doctor foretells of it.

`python -m tests.support.fates` gives every state, or those whose names contain a text, once to a real broker (Java,
Maven; as root, or the states about owners and modes are left as they were), and writes `tests/golden/fates.txt`: a line
for each state with its fate in the words of `fate_text`. With `--new` only states without a line are given, with
`--most N` at most so many. With `--kafka 4.4.0` that release is asked, and gets lines of its own where its fate is
another one. With `--pairs SEED` states of two wounds are drawn (`wounded_pairs`) instead; `--look` compares with
doctor's word at once, and writes no line. What a broker said that did not start is printed, but not recorded: its last
words are those of whichever thread died last. The table needs no Java to be compared with doctor.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from seglog.scan.segment_scan import SegmentScan
from seglog.storage.local import LocalFileSystem
from tests.support.broken.wounded_herds import can_be_herded, course_of, herd, in_herds, prognosis_of
from tests.support.broken.wounded_pairs import AND, pairs, state_named
from tests.support.broken.wounded_starts import BROKERS_USER, METADATA, State, made, sound
from tests.support.broken.wounded_states import states
from tests.support.kafka import NEWER_KAFKA_VERSION, NODE_ID
from tests.support.kafka.broker import SETTINGS
from tests.support.kafka.jvm import KAFKA_VERSION
from tests.support.kafka.starts import Starts
from tests.support.prognoses import QUIET, Course, Prognosis, foretell, read_course

TABLE = Path(__file__).resolve().parents[1] / "golden" / "fates.txt"
HEADER = """\
# What a Kafka 4.3.0 broker did with log directories that were wounded as tests/support/broken/wounded_starts.py says,
# and what a 4.4.0 broker did where that is something else. With two wounds: tests/support/broken/wounded_pairs.py.
# Made by: python -m tests.support.fates
# base | file | wound | fate
# base | file | wound + file | wound | fate
# on 4.4.0 | base | file | wound | fate
"""
NODE_KEYS = ("node.id", "process.roles", "controller.quorum.voters", "controller.quorum.bootstrap.servers")
REFUSES = "refuses to start"
ON = "on "  # begins the lines of another release
SETTLING_S, LIMIT_S = 0.8, 30.0
DISK_BYTES = 64 << 20
UNENDED = "no end of it"  # what `Starts` says of a start that took too long, as on a busy machine


def seen(starts: Starts, state: State, root: Path) -> tuple[Course, str]:
    """Gives a state to a broker; returns what it did, and what it said if it did not start."""
    with disk_of(state, root):
        directories = made(state, root, given=os.geteuid() == 0)
        if state.free is not None:
            filled(root, state.free)
        return _seen(starts, directories, root, state.settings)


@contextmanager
def disk_of(state: State, root: Path) -> Iterator[None]:
    """A small disk at `root`, for a state that has so many bytes `free` (only root may); fill it when it is made."""
    if state.free is None:
        yield
        return
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=755", "tmpfs", root], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", root], check=True)  # the brokers' process may still hold files


def filled(root: Path, free: int) -> None:
    """Fills the disk at `root` but for `free` bytes."""
    left = os.statvfs(root)
    with (root / "filler").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, left.f_bavail * left.f_frsize - free)


def _seen(starts: Starts, directories: list[Path], root: Path, settings: Mapping[str, str]) -> tuple[Course, str]:
    before = {path for one in directories for path in _entries(one)}
    metadata = _metadata_files(directories)
    at = starts.log.stat().st_size if starts.log.exists() else 0
    refusal = starts.start(directories, {**QUIET, **settings})
    if not refusal:
        _settle(starts.log, directories)
    refusal = starts.end() or refusal
    with starts.log.open("rb") as file:
        file.seek(at)
        course = Course(not refusal, file.read().decode(errors="replace"))
    read_course(course)
    _forget_others(course, root)
    _follow_promoted(course)
    after = {path for one in directories for path in _entries(one)}
    promoted = {path.with_name(path.name.partition(".")[0]) for path in course.logs if path.name.endswith("-future")}
    made_ones = {path for path in after - before if not path.name.endswith(("-stray", "-delete", "-future"))}
    course.made = made_ones - promoted
    course.metadata = _metadata_lost(metadata)
    if refusal.startswith("exit"):  # the cause is what it said before
        errors = [line.removeprefix("ERROR ") for line in course.said.splitlines() if line.startswith("ERROR ")]
        refusal = next((line for line in errors if "Interrupted" not in line), refusal)
    return course, refusal


def _forget_others(course: Course, root: Path) -> None:
    """Leaves out what a broker before it, whose threads go on, has said of its own directories."""
    course.logs = {path: log for path, log in course.logs.items() if path.is_relative_to(root)}
    course.strays = {path for path in course.strays if path.is_relative_to(root)}
    course.offline = {path for path in course.offline if path.is_relative_to(root)}


def _follow_promoted(course: Course) -> None:
    """Gives future copies that a broker has promoted the sizes of their files, which lie under the partition's name."""
    for path, log in course.logs.items():
        now = path.with_name(path.name.partition(".")[0])
        if log.sizes is None and path.name.endswith("-future") and now.is_dir():
            sizes = {int(one.stem): one.stat().st_size for one in now.glob("*.log")}
            course.logs[path] = replace(log, sizes=sizes)


def _entries(directory: Path) -> list[Path]:
    return [path for path in directory.iterdir() if path.is_dir()] if os.access(directory, os.R_OK) else []


def _metadata_files(directories: Sequence[Path]) -> dict[Path, bytes]:
    found = (path for one in directories for path in (one / METADATA).glob("*.log") if path.is_file())
    return {path: path.read_bytes() for path in found}


def _metadata_lost(before: Mapping[Path, bytes]) -> str:
    """Says where the metadata log was cut: after the last batch that is still the same."""
    for path, data in sorted(before.items()):
        now = path.read_bytes() if path.exists() else b""
        if now[: len(data)] != data:
            same = next((i for i, (one, other) in enumerate(zip(now, data, strict=False)) if one != other), len(now))
            with tempfile.NamedTemporaryFile(suffix=path.name) as copy:
                copy.write(data)
                copy.flush()
                ends = [0]
                for chunk in SegmentScan(LocalFileSystem(), Path(copy.name)):
                    ends += (chunk.batches["position"] + chunk.batches["size"]).tolist()
            return f"{path.name} cut at {max(end for end in ends if end <= same)}"
    return ""


def _settle(log: Path, directories: Sequence[Path]) -> None:
    begun = rested = time.monotonic()
    known: object = None
    while time.monotonic() < min(rested + SETTLING_S, begun + LIMIT_S):
        now = log.stat().st_size, [sorted(map(str, _entries(one))) for one in directories]
        if now != known:
            rested, known = time.monotonic(), now
        time.sleep(0.05)


# --- words


def fate_text(course: Course, of_sound: Course, root: Path, sound_root: Path) -> str:
    """Says what became of a state, compared with its base without the wound."""
    if not course.started:
        return REFUSES
    said = ["starts"]
    said += [f"offline {_names(course.offline, root)}"] if course.offline else []
    if course.strays - course.offline:
        said.append(f"strays {_names(course.strays, root)}")
    said += [f"makes {' '.join(sorted(path.name for path in course.made))}"] if course.made else []
    said += [f"metadata {course.metadata}"] if course.metadata else []
    sound_logs = {path.relative_to(sound_root): log for path, log in of_sound.logs.items()}
    for path, log in sorted(course.logs.items()):
        known = sound_logs.get(path.relative_to(root))
        if log == known or path in course.made or path.parent in course.offline:
            continue
        sizes = "" if log.sizes is None else " ".join(f"{base}:{size}" for base, size in sorted(log.sizes.items()))
        recovered = " ".join(map(str, sorted(log.recovered))) or "nothing"
        ends = "" if path.name.endswith("-delete") else f" {log.start} to {log.end}"  # not looked for: it goes
        said.append(f"{path.name}{ends} recovers {recovered} keeps {sizes}")
    gone = [path for path in sound_logs if root / path not in course.logs and root / path not in course.strays]
    gone = [path for path in gone if (root / path).parent not in course.offline]
    said += [f"does not load {_names([root / path for path in gone], root)}"] if gone else []
    return "; ".join(said)


def _names(paths: Iterator[Path] | Sequence[Path] | set[Path], root: Path) -> str:
    return " ".join(sorted(str(path.relative_to(root)) for path in paths))


def foretold(prognosis: Prognosis, directories: Sequence[Path]) -> Course:
    """Puts doctor's rows as the course of a start."""
    blockers = [row for row in prognosis.rows if row["severity"] == "blocker"]
    offline = {Path(row["log_directory"]) for row in blockers if "offline" in row["broker"]}
    refuses = any("offline" not in row["broker"] for row in blockers)
    if directories[0] in offline or offline == set(directories):
        refuses = True
    course = Course(not refuses, "", offline)
    if refuses:
        return course
    named = [row for row in prognosis.rows if row["code"] == "STRAY_PARTITION"]
    course.strays = {Path(row["log_directory"]) / row["partition"] for row in named} - offline
    course.logs = dict(prognosis.logs)
    missing = prognosis.named("PARTITION_MISSING") | prognosis.awaited
    if prognosis.named("METADATA_MISSING"):  # the nodes of the table are the only controllers of their clusters
        course.strays = {path for path in course.logs if not path.name.endswith(("-delete", "-stray"))}
        missing = set() if (directories[0] / METADATA).exists() else {METADATA}
    for code in ("STRAY_HOLDS_RECORDS", "DELETED_HOLDS_RECORDS"):  # the broker serves the partition without them
        aside = {name.partition(".")[0] for name in prognosis.named(code)}
        missing |= aside - {path.name for path in course.logs}
    course.made = {directories[0] / name for name in missing}
    for row in prognosis.rows:
        if row["code"] in ("METADATA_CUT", "METADATA_REPLACED"):
            course.metadata = f"{row['file']} cut at {row['position']}"
    return course


@cache
def sound_prognosis(base: str, root: Path) -> tuple[Course, Path]:
    """Doctor's word on a base without a wound."""
    place = root / f"sound-{base}"
    place.mkdir()
    directories = made(sound(base), place)
    return foretold(foretell(directories, "--quick"), directories), place


def word_of_doctor(state: State, root: Path, sounds: Path, release: str = KAFKA_VERSION) -> str:
    """What doctor foretells of a state, in the words of the table."""
    directories = made(state, root, given=state.needs_root)
    with pytest.MonkeyPatch.context() as patched:
        if state.free is not None:
            patched.setattr(LocalFileSystem, "free_bytes", lambda *_: state.free)
        return _word(state, root, directories, sounds, release)


def _word(state: State, root: Path, directories: Sequence[Path], sounds: Path, release: str) -> str:
    course = foretold(foretell(directories, "--quick", *_options(state.settings, release)), directories)
    of_sound, place = sound_prognosis(state.base, sounds)
    return fate_text(course, of_sound, root, place)


def _options(settings: Mapping[str, str], release: str) -> list[str]:
    """What doctor is told of the broker's configuration, and of its release."""
    known = {"node.id": str(NODE_ID), "process.roles": SETTINGS["process.roles"], **settings}
    options = [part for name in NODE_KEYS if name in known for part in ("--set", f"{name}={known[name]}")]
    return options + ([] if release == KAFKA_VERSION else ["--kafka-version", release.rpartition(".")[0]])


# --- the table


def recorded(release: str = KAFKA_VERSION) -> dict[str, str]:
    """The fates by the names of their states; of another release only those that are not 4.3's."""
    found: dict[str, dict[str, str]] = {}
    for line in TABLE.read_text().splitlines():
        if not line.startswith("#"):
            name, _, fate = line.rpartition(" | ")
            of, _, rest = name.partition(" | ") if name.startswith(ON) else (ON + KAFKA_VERSION, "", name)
            found.setdefault(of.removeprefix(ON), {})[rest] = fate
    return found.get(release, {})


def every_state() -> list[State]:
    """Every state of one wound, and the pairs that have a line in the table."""
    single = states()
    known = {state.name: state for state in single}
    return [*single, *(state_named(name, known) for name in recorded() if AND in name)]


def written(known: Mapping[str, str], differing: Mapping[str, str]) -> None:
    """Writes the table: 4.3's fates in the order of the states, then the differing ones of 4.4."""
    names = [state.name for state in states() if state.name in known]
    names += [name for name in known if AND in name]
    lines = [f"{name} | {known[name]}\n" for name in names]
    lines += [f"{ON}{NEWER_KAFKA_VERSION} | {name} | {differing[name]}\n" for name in names if name in differing]
    TABLE.write_text(HEADER + "".join(lines))


def settled(fate: str) -> str:
    """Leaves out what depends on timing: which partitions of a directory that fails are made anew in another one."""
    gone = "offline other" in fate or "makes clicks-0 orders-lz4-0" in fate
    return "starts; offline other" if gone else fate


def fates(wanted: Sequence[State], work: Path, release: str = KAFKA_VERSION) -> Iterator[tuple[State, str, str]]:
    """Gives states to real brokers; yields their fates, and what those said that did not start."""
    work.chmod(0o755)
    courses: dict[str, tuple[Course, Path]] = {}
    user = BROKERS_USER if os.geteuid() == 0 else None
    with Starts(work / "brokers", user=user, release=release) as starts:
        for number, state in enumerate(wanted):
            if state.base not in courses:
                place = work / f"sound-{state.base}"
                place.mkdir()
                courses[state.base] = seen(starts, sound(state.base), place)[0], place
            root = work / str(number)
            root.mkdir()
            course, refusal = seen(starts, state, root)
            of_sound, place = courses[state.base]
            if not of_sound.started:
                raise RuntimeError(f"the broker did not start on {state.base}:\n{of_sound.said[-4000:]}")
            yield state, fate_text(course, of_sound, root, place), _shortened(refusal, root)


def fates_in_herds(
    wanted: Sequence[State], work: Path, release: str = KAFKA_VERSION, words: dict[str, str] | None = None
) -> Iterator[tuple[State, str, str]]:
    """The same as `fates`, with few starts: doctor says which states stop none, and those are given together.

    Puts what it said of them into `words`.
    """
    work.chmod(0o755)
    words = {} if words is None else words
    together: list[State] = []
    alone: list[State] = []
    for state in wanted:
        (together if can_be_herded(state, work / "tried") else alone).append(state)
    for members in in_herds(together):
        words |= words_of_doctor(members, work / "asked", release)
        alone += [state for state in members if words[state.name] == REFUSES]
        starting = [state for state in members if words[state.name] != REFUSES]
        with Starts(work / "herds", user=BROKERS_USER if os.geteuid() == 0 else None, release=release) as starts:
            yield from _together(starts, starting, work)
    yield from fates(alone, work, release)


def _together(starts: Starts, members: Sequence[State], work: Path, more: int = 2) -> Iterator[tuple[State, str, str]]:
    """Gives a herd to a broker; if it does not start, one half of it and then the other.

    If it comes to no end, as on a busy machine, so many times `more`.
    """
    if not members:
        return
    root = Path(tempfile.mkdtemp(dir=work))
    root.chmod(0o755)
    made_one = herd(members, root, given=os.geteuid() == 0)
    course, refusal = _seen(starts, [made_one.logs], root, {})
    shutil.rmtree(root, ignore_errors=True)  # a broker that refused to start may still write there
    if course.started or len(members) == 1:
        of_sound = Course(
            True, "", logs={path: log for path, log in course.logs.items() if path.name not in made_one.states}
        )
        for name, state in made_one.states.items():
            yield state, fate_text(course_of(made_one, name, course), of_sound, root, root), _shortened(refusal, root)
        return
    half = len(members) // 2
    yield from _together(starts, members[:half], work)
    yield from _together(starts, members[half:], work)


def words_of_doctor(members: Sequence[State], root: Path, release: str = KAFKA_VERSION) -> dict[str, str]:
    """What doctor foretells of each state of a herd, in the words of the table, by their names."""
    made_one = herd(members, root, given=os.geteuid() == 0)
    directories = [made_one.logs]
    prognosis = foretell(directories, "--quick", *_options({}, release))
    own = [row for row in prognosis.rows if row["partition"] not in made_one.states]
    logs = {path: log for path, log in prognosis.logs.items() if path.name not in made_one.states}
    of_sound = foretold(Prognosis(own, set(), logs), directories)
    words = {}
    for name, state in made_one.states.items():
        course = foretold(prognosis_of(made_one, name, prognosis), directories)
        words[state.name] = fate_text(course, of_sound, root, root)
    shutil.rmtree(root)
    return words


def _shortened(said: str, root: Path) -> str:
    said = said.replace(f"{root}/", "").replace(str(root), "")
    return re.sub(r"\s+", " ", re.sub(r"@[0-9a-f]{5,8}\b", "", said)).replace(" | ", " ")[:160]


def _main(arguments: Sequence[str]) -> None:
    parser = ArgumentParser(prog="python -m tests.support.fates")
    parser.add_argument(
        "texts",
        nargs="*",
        help="states whose names contain one of them, and pairs by their names; without any all states",
    )
    parser.add_argument("--new", action="store_true", help="only states that have no line yet")
    parser.add_argument("--most", type=int, help="at most so many states")
    parser.add_argument("--kafka", default=KAFKA_VERSION, choices=(KAFKA_VERSION, NEWER_KAFKA_VERSION))
    parser.add_argument("--pairs", type=int, metavar="SEED", help="pairs that this seed draws; needs --most")
    parser.add_argument("--sample", type=int, metavar="SEED", help="in the order that this seed draws")
    parser.add_argument("--herds", action="store_true", help="pairs whose wounds are in the same partition")
    parser.add_argument("--look", action="store_true", help="compare with doctor, and write no line")
    given = parser.parse_args(arguments)
    known = recorded() if TABLE.exists() else {}
    differing = recorded(NEWER_KAFKA_VERSION) if TABLE.exists() else {}
    if given.pairs is not None:
        wanted = list(islice(pairs(given.pairs, states(), in_a_partition=given.herds), given.most))
    else:
        wanted = every_state()
        single = {state.name: state for state in wanted}
        wanted += [state_named(text, single) for text in given.texts if AND in text and text not in single]
        wanted = [state for state in wanted if not given.texts or any(text in state.name for text in given.texts)]
    wanted = [state for state in wanted if not (given.new and state.name in known)]
    if os.geteuid() != 0:
        wanted = [state for state in wanted if not state.needs_root]
    if given.sample is not None:
        Random(given.sample).shuffle(wanted)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as work, tempfile.TemporaryDirectory() as sounds:
        words: dict[str, str] = {}
        for state, fate, said in fates_in_herds(wanted[: given.most], Path(work), given.kafka, words):
            if said == UNENDED:
                sys.stdout.write(f"{state.name}: no fate, because the broker came to no end in time\n")
                continue
            sys.stdout.write(" | ".join((state.name, fate, *([said] if said else []))) + "\n")
            if given.look:
                _compare(state, fate, words.get(state.name), Path(sounds), given.kafka)
            elif given.kafka == KAFKA_VERSION:
                known[state.name] = fate
                written(known, differing)
            elif settled(fate) != settled(known[state.name]):
                differing[state.name] = fate
                written(known, differing)
            sys.stdout.flush()


def _compare(state: State, fate: str, word: str | None, sounds: Path, release: str) -> None:
    """Prints doctor's word if it is another one."""
    if word is None:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as work:
            word = word_of_doctor(state, Path(work), sounds, release)
    if settled(word) != settled(fate):
        sys.stdout.write(f"  DOCTOR SAYS: {word}\n")


if __name__ == "__main__":
    _main(sys.argv[1:])
