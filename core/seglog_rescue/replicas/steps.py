"""What to do, as lines for a shell, and the files that they need.

1. Copy what only a copy that will be cut holds; write to files what of it no producer was told is safe.
2. Start the brokers in the order that loses the least; where nobody in sync is left, elect by hand.
3. A copy that its broker cannot load is moved away before it starts. So is one that is damaged or would lack keys of a
   compacted topic, so that it is copied anew from its leader; if its broker must start before that one, it is stopped
   once more in the end.
4. Bring the records that were saved into the running cluster.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from seglog.escaping import command_line
from seglog.remote_path import is_url
from seglog.units import count_text
from seglog_rescue.replicas.cluster import Cluster, Copy
from seglog_rescue.replicas.comparison import Acknowledged, Cause, PartitionVerdict, loses_keys
from seglog_rescue.replicas.order import Start, in_doubt, leader_choice

ASIDE = "replicas-aside"  # a directory on each host, beside its log directory
_BOOTSTRAP = '"$BOOTSTRAP"'
_UNAVAILABLE = f"kafka-topics --bootstrap-server {_BOOTSTRAP} --describe --unavailable-partitions"


@dataclass(frozen=True, slots=True)
class Step:
    """A step: `where` ("broker 2", or "" for any host with Kafka's tools), why, and the lines that do it, which may be
    empty. `file` and `contents` are a file that they need."""

    where: str
    why: str
    lines: tuple[str, ...] = ()
    file: str = ""
    contents: str = ""


def steps(cluster: Cluster, verdicts: Sequence[PartitionVerdict], start: Start, unclean: Sequence[str]) -> list[Step]:
    """Returns the steps in order; none if every choice is as good as another."""
    asked = [verdict for verdict in verdicts if not verdict.agrees and verdict.choice is not None]
    unloadable = list(_unloadable(verdicts))
    if not asked:
        return unloadable
    return [
        *_held_off(unclean),
        *_saved(asked, start),
        *_written_out(asked, start),
        *unloadable,
        *_started(cluster, asked, start),
        *_in_doubt(asked, start),
        *_moved_late(asked, start),
        *_brought_back(asked, start),
    ]


def _held_off(unclean: Sequence[str]) -> Iterator[Step]:
    if unclean:
        yield Step(
            "",
            f"{_few(unclean)}: unclean.leader.election.enable is on, so the first broker that starts leads, whatever"
            " its copy lacks; keep to the order below",
        )


def _lost_copies(verdict: PartitionVerdict, start: Start, *, told: bool = True) -> list[tuple[Copy, int, int]]:
    """Returns the copies that hold what the leader lacks, with the first and the end of those offsets: of what
    producers may have been `told` is safe, and of damaged copies, else of the rest. A leader without a copy makes its
    followers cut theirs to nothing: it lacks what the one to choose has, and what that one lacks."""
    choice = leader_choice(verdict, start)
    copies = {each.copy.node: each.copy for each in verdict.copies}
    spans: dict[int, tuple[int, int]] = {}
    if choice is None and verdict.choice is not None and told:
        chosen = copies[verdict.choice].facts
        spans[verdict.choice] = chosen.start, chosen.disk_end
    choice = choice or verdict.chosen()
    for loss in () if choice is None else choice.lost:
        is_worth_a_copy = loss.acknowledged is not Acknowledged.NO or loss.cause is Cause.DAMAGED
        if told == (is_worth_a_copy or _is_damaged(copies[loss.node])):
            first, end = spans.get(loss.node, (loss.first, loss.end))
            spans[loss.node] = min(first, loss.first), max(end, loss.end)
    return [(copies[node], *span) for node, span in sorted(spans.items()) if span[0] < span[1]]


def _is_damaged(copy: Copy) -> bool:
    """True if its good records must be found before they can be read."""
    return bool(copy.facts.holes or copy.facts.torn_bytes)


def _aside(copy: Copy) -> Path:
    """Returns where a copy is put aside: beside its log directory, as a name in one may only be a partition's."""
    directory = Path(copy.directory.path)
    return directory.parent / f"{ASIDE}-{directory.name}"


def _saved(verdicts: Sequence[PartitionVerdict], start: Start) -> Iterator[Step]:
    by_node: dict[int, list[Copy]] = {}
    for verdict in verdicts:
        moved = [copy.facts.directory for copy in _replaced(verdict, start) if _can_be_replaced(verdict, copy, start)]
        for copy, _, _ in _lost_copies(verdict, start):
            if copy.facts.directory not in moved and not is_url(copy.facts.directory):
                by_node.setdefault(copy.node, []).append(copy)
    for node, copies in sorted(by_node.items()):
        places = dict.fromkeys(_aside(copy) for copy in copies)
        made = [command_line("mkdir", "-p", place) for place in places]
        copied = [command_line("cp", "-a", Path(copy.facts.directory), _aside(copy)) for copy in copies]
        why = f"copy what only broker {node} holds and will cut: {_names(copies)}"
        yield Step(f"broker {node}", why, (*made, *copied))


def _written_out(verdicts: Sequence[PartitionVerdict], start: Start) -> Iterator[Step]:
    """Yields the lines that read what is cut although only one copy holds it, and no producer was told that it is safe:
    a crash leaves such an end on most leaders, so whole copies are not worth their room."""
    by_node: dict[int, list[tuple[Copy, int, int]]] = {}
    for verdict in verdicts:
        for lost in _lost_copies(verdict, start, told=False):
            by_node.setdefault(lost[0].node, []).append(lost)
    for node, every in sorted(by_node.items()):
        lines = [
            _reading(first, end, copy.facts.directory, f"{copy.facts.name}.broker-{node}.unacknowledged.jsonl")
            for copy, first, end in every
        ]
        why = (
            f"write to files what only broker {node} holds and will cut; no producer with acks=all was told that it is"
            f" safe (it may have been sent again): {_names([copy for copy, _, _ in every])}"
        )
        yield Step(f"broker {node}", why, tuple(lines))


def _unloadable(verdicts: Sequence[PartitionVerdict]) -> Iterator[Step]:
    """Yields the lines that move away what a broker cannot load: with one such log it takes the whole log directory
    offline, and does not start at all if it has no other one (LogDirFailureChannel)."""
    by_node: dict[int, list[Copy]] = {}
    for verdict in verdicts:
        for each in verdict.copies:
            if each.copy.facts.problem and not is_url(each.copy.facts.directory):
                by_node.setdefault(each.copy.node, []).append(each.copy)
    for node, copies in sorted(by_node.items()):
        why = (
            f"broker {node} cannot load {_names(copies)}, and thereby loses its log directory; try `seglog repair` or"
            " `seglog salvage` first, and then run `seglog replicas` again. Else move them away:"
        )
        yield Step(f"broker {node}", why, _moving(copies))


def _reading(first: int, end: int, directory: str, file: str) -> str:
    """Returns the line that writes a copy's records to a file."""
    span = ("--from-offset", str(first), "--to-offset", str(end))
    return f"{command_line('seglog', 'read', '--json', *span, directory)} > {command_line(file)}"


def _names(copies: Sequence[Copy]) -> str:
    return _few([copy.facts.name for copy in copies])


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _started(cluster: Cluster, verdicts: Sequence[PartitionVerdict], start: Start) -> Iterator[Step]:
    yield Step("", "start the controllers, and set BOOTSTRAP to the address of the first broker below")
    empty = {missing.node for missing in cluster.missing if missing.is_whole}
    for node in start.order:
        if node in empty:
            continue
        moved = [
            copy
            for verdict in verdicts
            for copy in _replaced(verdict, start)
            if copy.node == node and _can_be_replaced(verdict, copy, start)
        ]
        if moved:
            why = f"move copies away, which it then copies anew from their leaders: {_names(moved)}"
            yield Step(f"broker {node}", why, _moving(moved))
        yield Step(
            f"broker {node}",
            f"start broker {node}, and wait until it is registered and no dead one counts as alive",
            _registered(node),
        )
        names = start.elected.get(node, [])
        if names:
            yield _election(node, names)
    yield from _late_elections(start)
    yield Step(
        "",
        "no line below means that every partition has its leader",
        (_UNAVAILABLE,),
    )


def _registered(node: int) -> tuple[str, ...]:
    """Returns the line that waits for a broker, and until its controllers take no dead broker for alive (for
    broker.session.timeout.ms they do, and elect nobody in its place)."""
    seen = f"seen=$(kafka-broker-api-versions --bootstrap-server {_BOOTSTRAP} 2>&1)"
    here = f'echo "$seen" | grep -q {command_line(f"id: {node} ")}'
    dead = 'echo "$seen" | grep -q -e "-> ERROR"'
    return (f"until {seen}; {here} && ! {dead}; do sleep 1; done",)


def _moving(copies: Sequence[Copy], suffix: str = "") -> tuple[str, ...]:
    """Returns the lines that move copies beside their log directories."""
    places = {copy.facts.directory: Path(f"{_aside(copy)}{suffix}") for copy in copies}
    made = [command_line("mkdir", "-p", place) for place in dict.fromkeys(places.values())]
    return (*made, *(command_line("mv", Path(directory), place) for directory, place in places.items()))


def _replaced(verdict: PartitionVerdict, start: Start) -> list[Copy]:
    """Returns the copies to be made anew: those that are damaged, or that would lack keys, and do not lead. A follower
    with a wrong leader epoch may never be in sync (seen on 4.3.0: a bit turned, recovered by its broker)."""
    copies = {each.copy.node: each.copy for each in verdict.copies if not each.copy.facts.problem}
    leader = copies.get(start.leaders.get(str(verdict.partition), -1))
    if leader is None:
        return []
    others = [copy for copy in copies.values() if copy is not leader and not is_url(copy.facts.directory)]
    return [copy for copy in others if copy.facts.damage or loses_keys(leader, copy)]


def _can_be_replaced(verdict: PartitionVerdict, copy: Copy, start: Start) -> bool:
    """True if another broker leads the partition already when the copy's own one starts."""
    leader = start.leaders[str(verdict.partition)]
    return copy.node in start.order and leader in start.order[: start.order.index(copy.node)]


def _moved_late(verdicts: Sequence[PartitionVerdict], start: Start) -> Iterator[Step]:
    for node in start.order:
        moved = [
            copy
            for verdict in verdicts
            for copy in _replaced(verdict, start)
            if copy.node == node and not _can_be_replaced(verdict, copy, start)
        ]
        if moved:
            why = (
                f"stop broker {node} when its other partitions are in sync, move copies away, and start it again, so"
                f" that it copies them anew: {_names(moved)}"
            )
            yield Step(f"broker {node}", why, _moving(moved, "-followed"))


def _election(node: int, names: Sequence[str]) -> Step:
    file = f"election-{node}.json"
    why = f"elect broker {node} where the controller elects nobody by itself: {_few(names)}"
    return Step("", why, (_electing(file),), file, election_file(names))


def _electing(file: str) -> str:
    """Returns the line that holds the elections of a file."""
    return f"kafka-leader-election --bootstrap-server {_BOOTSTRAP} --election-type unclean --path-to-json-file {file}"


def _late_elections(start: Start) -> Iterator[Step]:
    """Yields the elections where the controller may have elected nobody. A partition that has a leader keeps it."""
    by_stopped: dict[tuple[int, ...], list[str]] = {}
    for name, stopped in start.late.items():
        by_stopped.setdefault(stopped, []).append(name)
    for stopped, names in sorted(by_stopped.items()):
        file = f"election-late{''.join(f'-without-{node}' for node in stopped)}.json"
        elected = _electing(file)
        why = f"elect a leader where the controller may have elected nobody: {_few(names)}"
        if stopped:
            brokers = " and ".join(f"broker {node}" for node in stopped)
            why += f"; an election by hand would take {brokers} first, and lose more"
            leaderless = " ".join(f"-e {command_line(_described(name))}" for name in names)
            told = (
                f"no leader yet: stop {brokers}, set BOOTSTRAP to another one's address, paste the next line, and"
                f" start {brokers} again"
            )
            elected = (
                f"if {_UNAVAILABLE} | grep -q {leaderless}; then echo {command_line(told)};"
                f" echo {command_line(elected)}; fi"
            )
        yield Step("", why, (elected,), file, election_file(names))


def _described(name: str) -> str:
    """Returns a pattern for a partition's line in what kafka-topics describes."""
    topic, _, number = name.rpartition("-")
    return f"Topic: {topic}[[:space:]]*Partition: {number}[[:space:]]"


def election_file(names: Sequence[str]) -> str:
    """Returns the file for `kafka-leader-election --path-to-json-file`."""
    split: Iterator[Mapping[str, object]] = (
        {"topic": topic, "partition": int(number)} for topic, _, number in (name.rpartition("-") for name in names)
    )
    return json.dumps({"partitions": list(split)})


def _in_doubt(verdicts: Sequence[PartitionVerdict], start: Start) -> Iterator[Step]:
    for verdict in in_doubt(verdicts, start):
        choice, leader = leader_choice(verdict, start), start.leaders[str(verdict.partition)]
        may = str(verdict.partition) in start.in_question
        makes, loses = ("may make", "lose") if may else ("makes", "loses")
        if choice is None:
            what = f"{makes} broker {leader} its leader, which has no copy of it, so that all of it is lost"
        else:
            lost = count_text(sum(loss.end - loss.first for loss in choice.lost), "offset")
            what = f"{makes} broker {leader} its leader instead of {verdict.choice}, and {loses} {lost}"
        yield Step(
            "",
            f"{verdict.partition}: this order {what}: no order gives every partition its best copy; the copies"
            " made above hold them",
        )


def _brought_back(verdicts: Sequence[PartitionVerdict], start: Start) -> Iterator[Step]:
    by_node: dict[int, list[tuple[Copy, int, int]]] = {}
    for verdict in verdicts:
        for lost in _lost_copies(verdict, start):
            by_node.setdefault(lost[0].node, []).append(lost)
    for node, every in sorted(by_node.items()):
        copies = [copy for copy, _, _ in every]
        topics = list(dict.fromkeys(copy.facts.topic for copy in copies))
        salvaged, places = _readable_places(copies)
        read = [
            _reading(first, end, place, f"{copy.facts.name}.broker-{node}.jsonl")
            for (copy, first, end), place in zip(every, places, strict=True)
        ]
        renamed = [word for topic in topics for word in ("--topic", f"{topic}={topic}-saved")]
        replay = command_line("--state", f"broker-{node}.state", *renamed, *places)
        why = (
            f"bring back what only broker {node} held of {_names(copies)}: `seglog read` writes those records to files;"
            " `seglog replay` produces the whole copies, from their first offsets on, into topics of their own, which"
            f" must exist with as many partitions: {_few([f'{topic}-saved' for topic in topics])}"
        )
        yield Step(f"broker {node}", why, (*salvaged, *read, f"seglog replay --to {_BOOTSTRAP} {replay}"))


def _readable_places(copies: Sequence[Copy]) -> tuple[list[str], list[str]]:
    """Returns the lines that salvage damaged ones of the copies put aside, and where each can be read afterwards."""
    lines, places = [], []
    for copy in copies:
        remote = is_url(copy.facts.directory)  # no broker runs there, so it stays as it is
        place = copy.facts.directory if remote else str(_aside(copy) / Path(copy.facts.directory).name)
        if _is_damaged(copy):
            aside = Path(f"salvaged-broker-{copy.node}") if remote else Path(f"{_aside(copy)}-salvaged")
            whole = str(aside / copy.facts.name)
            lines.append(command_line("seglog", "salvage", place, "-o", whole))
            place = whole
        places.append(place)
    return lines, places
