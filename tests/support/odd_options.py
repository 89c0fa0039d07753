"""Options, configuration files, environments and input lines with values that nobody means.

`odd_options` asks the command line itself which options a command has, so a new one is tried as soon as it is there.
Odd are numbers at and beyond 31, 63 and 64 bits, floats that are none, empty and endless text, bytes not in UTF-8,
units and times that are out of range, and values of one option given to another.
"""

from __future__ import annotations

import functools
import json
import random
from pathlib import Path

import typer.main

from seglog.configuration.keys import KEYS
from seglog_cli.app import build


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


NUMBERS = (
    *_words("0 1 -1 2 7 2147483647 2147483648 4294967296 9223372036854775807 9223372036854775808 18446744073709551616"),
    *_words("-2147483649 -9223372036854775808 -9223372036854775809 1e999 1e-999 1e18 nan inf -inf 0.5 1.0000001 -0.0"),
    *("0x10", "1_0", "\u0663", "+1", "1.", "1" + "0" * 40, "9" * 5000),
)
UNITS = ("", *_words("ms s m h d w y days B b kB KiB GB G GiB EiB ZB % d12h"))
TIMES = (
    *_words("0001-01-01T00:00:00Z 9999-12-31T23:59:59.999999999Z 9999-12-31T23:59:59-23:59 2026-02-30 0000-00-00 now"),
    *_words("2026-11-20T25:00 2026-11-20T05:04:60Z 2026-11-20T05:04+99:99 -1h -9999999999999d -0ms"),
    *_words("+292278994-08-17T07:12:55.807Z -292275055-05-16T16:47:04.192Z"),
    "2026-11-20T05:04:05." + "1" * 400 + "Z",
)
TEXTS = (
    *("", " ", "=", "==", "-", "--", "x", "\u00e9", "\udcff\udcfe", "a\nb", "\x1b[31mred", "x" * 5000, "*", "["),
    *("../x", ".", "..", "no/such/place", "%s%n", "{0}", "null", "true", "~", "'", '"', ",", ",,,", ":", "\t"),
    *_words("none compact delete compact,delete offset timestamp header: header:x auto a=b=c + +1"),
)
FILES = (
    *(b"", b"\0", b"\xff\xfe", b"[]", b"- a", b"a", b"a: b: c", b"\t", b"{", b"a: &a [*a]", b"topics: 1", b"1: 2"),
    *(b"topics: {a: 1}", b"topics: {'*': {}}", b"topics: {c0: {cleanup.policy: [compact, [delete]]}}", b"? [a]"),
    *(b"cleanup.policy: !!python/object/apply:os.getcwd []", b"retention.ms: 2026-11-20", b"x: !!binary AA=="),
    *(b"retention.ms: " + b"[" * 3000 + b"]" * 3000, b"topics: " + b"{a: " * 3000 + b"}" * 3000),
    *(b"---\na: 1\n---\nb: 2\n", b"%YAML 9.9\n---\na: 1", b"<<: {retention.ms: 1}", b"retention.ms: .inf", b"[" * 3000),
    *(b"retention.ms: 1\nretention.ms: 2\n", b"topics: {c0: {segment.bytes: 0x7fffffffffffffffffff}}", b"{" * 200),
    b"a: &a [x,x]\nb: &b [*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c]\nretention.ms: [*d,*d,*d,*d]\n",
    b"topics: {" + b", ".join(b"t%d: {retention.ms: 1}" % n for n in range(300)) + b"}",
    b"retention.ms: " + b"9" * 5000,
)
VARIABLES = {
    "COLUMNS": ("0", "-1", "1", "9" * 30, "x", ""),
    "LINES": ("0", "x"),
    "TZ": ("", "\udcff", "../etc", "UTC", ":x"),
    "TERM": ("", "dumb", "\x1b"),
    "NO_COLOR": ("", "1"),
    "FORCE_COLOR": ("", "1", "9" * 30),
    "SEGLOG_CONFIG": ("", ".", "no/such", "odd.yaml", "\udcff", "x" * 5000),
    "SEGLOG_NO_SUCH": ("1", "\udcff"),
    "XDG_CONFIG_HOME": ("", "relative", "odd.yaml", "\udcff"),
    "XDG_STATE_HOME": ("", "relative", "odd.yaml", "\udcff"),
}


def odd_value(chance: random.Random) -> str:
    """A value for an option or a configuration key."""
    kind = chance.random()
    if kind < 0.5:
        return chance.choice(NUMBERS) + (chance.choice(UNITS) if chance.random() < 0.5 else "")
    return chance.choice(TIMES if kind < 0.65 else TEXTS)


@functools.cache
def _options(command: str) -> tuple[tuple[str, str | None], ...]:
    """(name, metavar; None for a flag) of every option of a command, from the command line itself."""
    found = typer.main.get_command(build([command])).commands[command]  # type: ignore[attr-defined]
    found = getattr(found, "commands", {"": found})
    options = [p for one in found.values() for p in one.params if p.param_type_name == "option"]
    counted = ("--quiet", "--verbose", "--help")
    flags = {p.opts[0] for p in options if getattr(p, "is_flag", False) or p.opts[0] in counted}
    return tuple((p.opts[0], None if p.opts[0] in flags else p.metavar) for p in options)


def odd_options(command: str, chance: random.Random) -> list[str]:
    """One to three options of a command, most with a value that it cannot mean."""
    words: list[str] = []
    for _ in range(chance.choice([1, 1, 2, 3])):
        name, metavar = chance.choice(_options(command))
        words.append(name)
        if metavar is None:
            continue
        if metavar == "KEY=VALUE":
            words.append(f"{_key(chance)}={odd_value(chance)}")
        elif "|" in metavar and chance.random() < 0.5:
            words.append(chance.choice(metavar.split("|")))
        elif metavar == "FILE" and chance.random() < 0.5:
            words.append("odd.yaml")
        else:
            words.append(odd_value(chance))
    return words


def _key(chance: random.Random) -> str:
    if chance.random() < 0.05:
        return chance.choice(TEXTS)
    return chance.choice(chance.choice(KEYS).names)


def odd_file(chance: random.Random) -> bytes:
    """A configuration file."""
    if chance.random() < 0.6:
        return chance.choice(FILES)
    entries = "".join(f"{_key(chance)}: {_scalar(chance)}\n" for _ in range(chance.randint(1, 4)))
    topics = "".join(f"  {_scalar(chance)}: {{{_key(chance)}: {_scalar(chance)}}}\n" for _ in range(2))
    return (entries + (f"topics:\n{topics}" if chance.random() < 0.5 else "")).encode("utf-8", "surrogateescape")


def _scalar(chance: random.Random) -> str:
    value = odd_value(chance)
    return json.dumps(value) if chance.random() < 0.5 else value


def odd_environment(chance: random.Random) -> dict[str, str]:
    """Variables, and what they are set to."""
    found: dict[str, str] = {}
    for _ in range(chance.choice([0, 1, 2])):
        if chance.random() < 0.5:
            name = chance.choice(list(VARIABLES))
            found[name] = chance.choice(VARIABLES[name])
        else:
            name = chance.choice(chance.choice(KEYS).names)
            found["SEGLOG_" + name.upper().replace(".", "_")] = odd_value(chance)
    return found


def odd_lines(chance: random.Random) -> bytes:
    """Input of `append`: lines, or JSON lines of what is no record."""
    values: tuple[object, ...] = (
        *(None, True, 0, -1, 2**31, 2**63 - 1, 2**63, -(2**63) - 1, 10**30, 1.5, 1e300, float("nan"), float("inf")),
        *("", "x", "\ud800", "\0", "x" * 5000, [], {}, [1], {"a": 1}, [{"key": "h", "value": None}], [{"key": None}]),
        *([{}], [{"key": "h", "value_b64": "!"}], [[]], [{"key": 1, "value": 2}], "AA==", "2026-11-20T00:00:00Z"),
    )
    names = ("key", "value", "key_b64", "value_b64", "timestamp", "headers", "offset", "sequence", "type", "", "x")
    lines = []
    for _ in range(chance.randint(1, 5)):
        record = {chance.choice(names): chance.choice(values) for _ in range(chance.randint(0, 5))}
        lines.append(json.dumps(record, ensure_ascii=chance.random() < 0.5).encode("utf-8", "surrogatepass"))
    number = b'{"timestamp":' + b"9" * 5000 + b"}"
    odd = (b"", b"\0", b"\xff", b"[]", b"1", b"null", b"{", b"[" * 5000, b'{"a":' * 5000, number)
    lines.insert(chance.randint(0, len(lines)), chance.choice([*odd, *lines]))
    return chance.choice([b"\n", b"\n", b"\r\n"]).join(lines) + chance.choice([b"\n", b""])


def write_odd_files(directory: Path, chance: random.Random) -> None:
    """`odd.yaml`, and now and then a `seglog.yaml`, in the working directory."""
    (directory / "odd.yaml").write_bytes(odd_file(chance))
    if chance.random() < 0.1:
        (directory / "seglog.yaml").write_bytes(odd_file(chance))
