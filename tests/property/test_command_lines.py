"""Whatever the command line, its files and its environment say, the end is the contract's: never an internal error.

Random command lines over the real tree of commands, in a directory of logs, odd names and places that are no files.
SEGLOG_EFFORT sets how many are tried, SEGLOG_SEED which.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from seglog_cli.app import build
from seglog_cli.exit_codes import ExitCode
from tests.support import effort
from tests.support.command_line import Ended, clean_logs, ended

pytestmark = pytest.mark.slow

SEED = effort.first_seed(1)
TRIES = effort.tries(150)

PARTITIONS = ("both-0", "customers-0", "payments-0")
# A session for each command line is too slow here; an endpoint serves until it is stopped; a cluster is waited for.
OTHERS = ("spark", "serve", "replay")
EXPECTED = {int(code) for code in ExitCode} - {ExitCode.INTERNAL}
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

GOOD = ("L", "L/both-0", "L/customers-0", "L/payments-0", "L/odd-0", "L/\udcff-0", "L/\x1b[31mRED\n-0")
PLACES = (
    *GOOD, f"L/both-0/{0:020d}.log", f"L/both-0/{0:020d}.index", "L/meta.properties", "L/cleaner-offset-checkpoint",
    "empty", "file", "file/below", "loop", "missing", "missing/t-0", "new-0", "", ".", "/", "-", "--", "~", "*",
    "/dev/null", "/dev/full", "/proc/self/mem", "/proc/self/environ", "x" * 300, "y/" * 2500, "a\nb", "\udcff",
)  # fmt: skip
NUMBERS = (
    "0", "1", "-1", "350", "2147483648", "9223372036854775807", "9223372036854775808", "-9223372036854775808",
    "1" + "0" * 30, "9" * 5000, "1e3", "1.5", "nan", "inf", "0x10", "1_000", "\u0663", "", "-0", "1k", "10G", "1.5MiB",
    "7d", "1h", "-1h", "9999999999d", "100%", "200%", "1e400", "2026-11-20", "2026-11-20T05:04:00Z",
    "0001-01-01T00:00:00Z", "9999-12-31T23:59:59-14:00", "2026-02-30",
)  # fmt: skip
WORDS = (
    "", "a", "auto", "base64", "none", "zstd", "lines", "jsonl", "csv", "parquet", "compact", "delete",
    "offset", "timestamp", "header:x", "header:", "header:\udcff", "\udcff\udcfe", "\x1b[31m", "a\nb", "\u202e",
    "x" * 5000, "=", "a=", "=b", "segment.bytes=100", "segment.bytes=nan", "cleanup.policy=no",
    "cleanup.policy=compact", "delete.retention.ms=9223372036854775807", "log.cleaner.threads=100000",
    "index.interval.bytes=0", "segment.bytes=\udcff", "crc", "semantic", "truncate", "excise", "log,index", "view",
    "read_committed", "CreateTime", "LogAppendTime", "plain", "LongDecoder", "java.lang.String", "{}", "%s", "{0}", ",",
)  # fmt: skip
CONFIGURATIONS = (
    b"", b"1", b"- a", b"segment.bytes: [1]", b"segment.bytes: {a: b}", b"segment.bytes:", b"segment.bytes: .nan",
    b"segment.bytes: !!binary aGk=", b"segment.bytes: !!python/object/apply:os.system [id]", b"? [a]\n: b", b"1: 2",
    b"topics: 1", b"topics: {a: 1}", b"topics: {1: {cleanup.policy: compact}}", b"a: &a [*a]", b"segment.bytes: *x",
    b"<<: [1]", b"\t", b"\0", b"---\na: 1\n---\nb: 2", b'segment.bytes: "\\ud800"', b'"\\x1b": 1', b"{" * 100,
    b"[" * 2000, b"[" * 5000 + b"]" * 5000, b"x" * (1 << 20) + b"x", b"\xff\xfe\0", b"segment.bytes: \xff",
    b"\xef\xbb\xbfsegment.bytes: 1GiB", b"segment.bytes: " + b"9" * 5000, b"cleanup.policy: [compact, delete]",
    b"a: &a [x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b]\nsegment.bytes: *c",
)  # fmt: skip
VARIABLES = {
    "COLUMNS": NUMBERS, "TERM": ("dumb", ""), "HOME": ("", "missing", "file", "/dev/null"), "TZ": ("", "x", "\udcff"),
    "XDG_STATE_HOME": ("", "missing", "file", "/dev/null"), "XDG_CONFIG_HOME": ("", "file", "loop"),
    "SEGLOG_CONFIG": PLACES, "SEGLOG_SEGMENT_BYTES": NUMBERS, "SEGLOG_CLEANUP_POLICY": WORDS, "SEGLOG_NO": ("x",),
    "FORCE_COLOR": ("1",), "_SEGLOG_COMPLETE": ("complete_bash", "no"), "COMP_WORDS": ("", 'seglog "'),
}  # fmt: skip
LINES = (
    "", "{", "}", "[]", "null", "1", '"a"', "{}", "{'a':1}", "[" * 100_000, '{"value":' + "[" * 100_000,
    '{"value":"a"}{"value":"b"}', '\ufeff{"value":"a"}', '{"value":' + "1" * 5000 + "}", '{"timestamp":1e5}',
    '{"timestamp":NaN}', '{"timestamp":9223372036854775807,"value":"a"}', '{"timestamp":9223372036854775808}',
    '{"key":"\\ud800","value":null}', '{"key":1}', '{"value_b64":"####"}', '{"value":"a","value_b64":"YQ=="}',
    '{"value":"a","headers":{}}', '{"value":"a","headers":[{"key":1}]}', '{"value":"a","headers":[["a","b"]]}',
    '{"value":"a","headers":[{"key":"\\ud800","value":"x"}]}', '{"value":"a","timestamp":-5}', '{"value":true}',
    '{"value":"a","timestamp":true}', '{"value":"a","offset":{}}', '{"key":null,"value":"\\u0000"}', "x" * (1 << 20),
)  # fmt: skip


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    children = getattr(command, "commands", None)
    if not children:
        yield path, command
        return
    for name, child in children.items():
        if name not in OTHERS:
            yield from leaves(child, (*path, name))


class Chooser:
    """Random command lines."""

    def __init__(self, seed: object) -> None:
        self.random = random.Random(str(seed))
        self.commands = list(leaves(typer.main.get_command(build())))

    def value(self, parameter: Any) -> str:
        written = parameter.metavar or ""
        if self.random.random() < 0.6:
            if "|" in written:
                return self.random.choice(written.split("|"))
            if written in ("N", "SIZE", "DURATION", "TIME", "ID", "SHARE"):
                return self.random.choice(NUMBERS)
            if re.search("FILE|DIR|PATH|PARTITION|FOLDER", written):
                return self.random.choice(PLACES)
        return self.random.choice(self.random.choice((NUMBERS, WORDS, PLACES)))

    def arguments(self) -> list[str]:
        path, command = self.random.choice(self.commands)
        given = list(path)
        options = [p for p in command.params if p.param_type_name == "option" and p.name != "show_help"]
        chosen = self.random.sample(options, min(len(options), self.random.choice((0, 0, 1, 1, 2, 3, 5))))
        for option in [*chosen, *(p for p in options if p.required and p not in chosen)]:
            name = self.random.choice(option.opts)
            bare = option.is_flag or getattr(option, "count", False)
            given += [name] if bare else [name, self.value(option)]
        for argument in command.params:
            if argument.param_type_name == "argument" and (argument.required or self.random.random() < 0.5):
                count = 1 if argument.nargs == 1 else self.random.choice((1, 1, 2))
                pools = (GOOD, GOOD, PLACES, WORDS)
                given += [self.random.choice(self.random.choice(pools)) for _ in range(count)]
        return [*given, "--once"] if path[0] == "cleaner" else given


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory with odd names in it, and places that are no log."""
    place = tmp_path_factory.mktemp("template")
    clean = clean_logs(place).rename(place / "L")
    for path in clean.iterdir():
        if path.is_dir() and path.name not in PARTITIONS:
            shutil.rmtree(path)
    for name in ("odd-0", "\udcff-0", "\x1b[31mRED\n-0", "gone-0.0123456789abcdef0123456789abcdef-delete"):
        shutil.copytree(clean / "both-0", clean / name)
    for name in ("\udcff.log", "x\ny.index", f"{7:020d}.snapshot\udcff"):
        (clean / "odd-0" / name).write_bytes(b"x" * 100)
    (place / "empty").mkdir()
    (place / "file").write_text("hello\n")
    (place / "loop").symlink_to("loop")
    return place


@pytest.fixture
def place(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(template, tmp_path / "place", symlinks=True)
    monkeypatch.chdir(tmp_path / "place")
    for name in os.environ:
        if name.startswith("SEGLOG_") and name != "SEGLOG_JIT":
            monkeypatch.delenv(name)
    return tmp_path / "place"


def check_end(done: Ended, what: object, *, text: bool, as_json: bool) -> None:
    said = done.stderr.decode()
    errors = [line for line in said.splitlines() if line.startswith("error: ")]
    assert done.code in EXPECTED, (what, said)
    assert "Traceback" not in said and "internal error" not in said, (what, said)
    assert len(errors) == 1 or done.code not in (2, 10, 11, 12, 13, 74) or "\x1b" in said, (what, said)
    if text:
        assert not CONTROL.search(said), (what, said)
        assert not CONTROL.search(done.stdout.decode()), what
    for line in done.stdout.splitlines() if as_json else ():
        assert isinstance(json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} in {what}")), dict), what


@pytest.mark.parametrize("number", range(max(1, TRIES // 30)))
def test_no_command_line_ends_with_an_internal_error(number: int, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chooser = Chooser(f"{SEED} {number}")
    chosen = chooser.random
    for _ in range(30):
        given, variables = chooser.arguments(), {}
        configuration = place / "seglog.yaml"
        if chosen.random() < 0.25:
            configuration.write_bytes(chosen.choice(CONFIGURATIONS))
        if chosen.random() < 0.3:
            name = chosen.choice(list(VARIABLES))
            variables[name] = chosen.choice(VARIABLES[name])
        source = "\n".join(chosen.choices(LINES, k=2)) if chosen.random() < 0.5 else "k:v\n"
        with monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            done = ended(*given, input_bytes=source.encode("utf-8", "surrogatepass"))
        configuration.unlink(missing_ok=True)
        colored = "always" in given or variables.keys() & {"FORCE_COLOR", "_SEGLOG_COMPLETE"}
        prescribed = given[0] in ("dump-log", "export", "clean", "cleaner")  # bytes, or a text with tabs
        as_json = "--json" in given and "--help" not in given and not prescribed and not colored
        what = (given, variables, source[:200])
        check_end(done, what, text=not colored and not prescribed, as_json=as_json)


@pytest.mark.parametrize("line", LINES, ids=lambda line: line[:20])
def test_no_line_of_json_ends_with_an_internal_error(line: str, place: Path) -> None:
    done = ended("append", "L/both-0", "--input-format", "jsonl", input_bytes=f'{{"value":"first"}}\n{line}\n'.encode())
    check_end(done, line[:100], text=True, as_json=False)
    assert done.code in (0, 2, 12)
    # what came before is kept, unless the log refuses the batch
    assert done.code == 12 or done.stdout.startswith(b"appended both-0 offsets ")


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=lambda data: repr(data[:20]))
def test_no_configuration_ends_with_an_internal_error(configuration: bytes, place: Path) -> None:
    (place / "seglog.yaml").write_bytes(configuration)
    done = ended("config", "show", "L/both-0")
    check_end(done, configuration[:100], text=True, as_json=False)
    assert done.code in (0, 2, 12)
