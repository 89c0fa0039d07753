"""The options that every command takes, the decorator that adds them, and shared parameter types.

    @command()
    def ls(session: Session, paths: Paths) -> int: …

A command declares its own parameters. `command` adds the common ones after them, builds the `Session`, runs the
function under `failures.guard`, and ends with its exit code. A parameter whose type is an `OptionGroup` stands for all
options that the group declares. Every option that takes a value has a metavar, which help and manual show.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol, TypeVar

import typer

from seglog_cli import completing
from seglog_cli.console import ColorChoice, Console
from seglog_cli.exit_codes import Changes
from seglog_cli.failures import UsageError, guard
from seglog_cli.help_option import HelpOption
from seglog_cli.progress import ProgressChoice
from seglog_cli.session import RelativeTime, Session

if TYPE_CHECKING:
    from seglog.kafka_version import KafkaVersion

CODECS = "none|gzip|snappy|lz4|zstd"  # those of `seglog.model.Compression`
MOST_JOBS = 1024  # `seglog.arguments.MOST_THREADS`, which importing would slow down --help


class _Labelled(Protocol):
    @property
    def label(self) -> str: ...


Value = TypeVar("Value")
Member = TypeVar("Member", bound=_Labelled)


def _time(text: str | int | RelativeTime) -> int | RelativeTime:
    """Parses a time. It is relative if its value depends on the current time."""
    if isinstance(text, RelativeTime):
        return text
    from seglog.units import parse_time

    moment = _read(lambda written: parse_time(written, lambda: 0), text)
    if isinstance(text, int) or _read(lambda written: parse_time(written, lambda: 1), text) == moment:
        return moment
    return RelativeTime(moment)


def _quantity(parse: str, least: int | None) -> Callable[[str | int], int]:
    """Returns a converter that parses with this function of `seglog.units`, and requires `least` or more."""

    def value(text: str | int) -> int:
        from seglog import units

        found = _read(getattr(units, parse), text)
        if least is not None and found < least:
            raise typer.BadParameter(f"{text} is less than {least}")
        return found

    return value


def _read(parse: Callable[[str], int], text: str | int) -> int:
    try:
        value = text if isinstance(text, int) else parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    if not -(2**63) <= value < 2**63:
        raise typer.BadParameter(f"{text} does not fit into 64 bits")
    return value


def option(name: str, metavar: str, help_text: str, *, least: int | None = None, most: int | None = None) -> Any:
    """Declares an option with a value. `name` may add a short form after a blank."""
    return typer.Option(*name.split(), metavar=metavar, min=least, max=most, help=help_text)


def time_option(name: str, help_text: str) -> Any:
    """Declares an option that takes a time and yields epoch milliseconds."""
    return typer.Option(name, metavar="TIME", parser=_time, help=help_text)


def size_option(name: str, help_text: str, least: int | None = None) -> Any:
    """Declares an option that takes a size and yields bytes, at least `least`."""
    return typer.Option(name, metavar="SIZE", parser=_quantity("parse_size", least), help=help_text)


def duration_option(name: str, help_text: str, least: int | None = None) -> Any:
    """Declares an option that takes a duration and yields milliseconds, at least `least`."""
    return typer.Option(name, metavar="DURATION", parser=_quantity("parse_duration", least), help=help_text)


def offset_option(name: str, help_text: str) -> Any:
    """Declares an option that takes an offset or a count."""
    return typer.Option(name, metavar="N", min=0, max=2**63 - 1, help=help_text)


def codec_option(help_text: str) -> Any:
    return option("--codec", CODECS, help_text)


def flag(name: str, help_text: str) -> Any:
    """Declares an option without a value; `name` may add a short form after a blank."""
    return typer.Option(*name.split(), help=help_text)


def argument(metavar: str, help_text: str) -> Any:
    return typer.Argument(metavar=metavar, help=help_text)


Paths = Annotated[
    list[Path],
    argument("PATH", "Segments or other log files, partition directories, or log directories; URLs too, for reading."),
]
PathsHere = Annotated[
    list[Path] | None,
    argument(
        "PATH",
        "Segments or other log files, partition directories, or log directories; URLs too, for reading"
        " (default: the current directory).",
    ),
]
Directories = Annotated[list[Path], argument("PATH", "Partition directories or log directories.")]
OnePath = Annotated[Path, argument("PATH", "A partition directory or a log directory.")]
Partition = Annotated[Path, argument("PARTITION", "A partition directory: TOPIC-NUMBER in a log directory.")]
LogDirectoryPath = Annotated[Path, argument("LOGDIR", "A log directory: one of a broker's log.dirs.")]
DryRun = Annotated[bool, flag("--dry-run -n", "Show what would be done, and change nothing.")]
NoKeep = Annotated[bool, flag("--no-keep", "Do not keep what is cut: `seglog undo` cannot bring it back.")]
Check = Annotated[bool, flag("--check", "The same as --dry-run, but exit with 1 if there is something to do.")]
Quarantine = Annotated[
    Path | None,
    option(
        "--quarantine",
        "DIR",
        "The directory for removed data (default: .seglog-quarantine beside the log directory).",
    ),
]
RepairPolicy = Annotated[str, option("--policy", "smallest-loss|truncate|excise", "How to repair damage in logs.")]
RepairOnly = Annotated[
    str | None,
    option(
        "--only", "PARTS", "Repair only these parts, separated by commas: log, index, snapshot, epochs, checkpoint."
    ),
]
Replace = Annotated[bool, flag("--replace", "Replace FILE if it exists.")]
Sample = Annotated[str | None, option("--sample", "SHARE", "Verify only this share of the data, such as 5%.")]
OverridePolicy = Annotated[
    bool,
    flag(
        "--override-policy", "Apply a rule even if it deletes or compacts what the cluster's own configuration keeps."
    ),
]
MetadataDirectory = Annotated[
    Path | None,
    option(
        "--metadata-dir",
        "LOGDIR",
        "The log directory that has the cluster's metadata, if it is another one (metadata.log.dir).",
    ),
]
SpokenFor = Annotated[
    str | None,
    option(
        "--kafka-version",
        "VERSION",
        "The release to speak for (default: the one that wrote the directory, or 4.3 if nothing shows it).",
    ),
]


def kafka_named(version: str | None) -> KafkaVersion | None:
    """Parses --kafka-version."""
    from seglog.kafka_version import KafkaVersion

    return None if version is None else parsed("--kafka-version", KafkaVersion.parse, version)


def parsed(option: str, parse: Callable[[str], Value], text: str) -> Value:
    """Parses an option's text; raises UsageError for a ValueError."""
    try:
        return parse(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from error


def one_of(option: str, value: str, choices: Sequence[str]) -> str:
    """Returns `value`; raises UsageError if it is not one of the choices."""
    if value not in choices:
        raise UsageError(f"{option}: {value!r} is not one of {', '.join(choices)}")
    return value


def labelled(option: str, label: str, members: Iterable[Member]) -> Member:
    """Returns the member of an enumeration with this label; raises UsageError if there is none."""
    found = {member.label: member for member in members}
    return found[one_of(option, label, tuple(found))]


def require_servers(option: str, text: str) -> None:
    """Raises UsageError if the text cannot be a list of Kafka servers, `HOST[:PORT],…`."""
    for server in text.split(","):
        host, colon, port = server.rpartition(":")
        in_brackets = server.endswith("]")  # an IPv6 address without a port
        if colon and not in_brackets and not (host and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            raise UsageError(f"{option}: {server!r} is not HOST:PORT")
        if not server.strip() or not server.isprintable():
            raise UsageError(f"{option}: {text!r} is not HOST:PORT, or several with commas between them")


def check_keeping(no_keep: bool, quarantine: Path | None) -> None:
    """Raises UsageError for a quarantine together with --no-keep."""
    if no_keep and quarantine is not None:
        raise UsageError("--quarantine and --no-keep contradict each other")


class OptionGroup:
    """Base of dataclasses whose fields are options that several commands share.

    With a TITLE, `--help` names the options in a section of their own, and only `seglog help options` explains them.
    """

    TITLE: ClassVar[str] = ""


@dataclass(frozen=True)
class CommonOptions(OptionGroup):
    """The options of every command."""

    TITLE: ClassVar[str] = "Options of every command"

    as_json: Annotated[bool, flag("--json", "Write JSON lines to standard output.")] = False
    quiet: Annotated[bool, flag("--quiet -q", "Write only data and errors, no messages.")] = False
    verbose: Annotated[
        int, typer.Option("--verbose", "-v", count=True, help="Write details too, such as where the time went.")
    ] = 0
    color: Annotated[
        ColorChoice,
        option("--color", "auto|always|never", "When to use colour. With auto, NO_COLOR and FORCE_COLOR count."),
    ] = "auto"
    progress: Annotated[
        ProgressChoice, option("--progress", "auto|plain|none", "How to show progress on standard error.")
    ] = "auto"
    jobs: Annotated[
        int | None,
        option("--jobs -j", "N", "Use this many threads (default: one for each core).", least=1, most=MOST_JOBS),
    ] = None
    config: Annotated[
        Path | None,
        option("--config", "FILE", "The configuration file, in YAML (default: $SEGLOG_CONFIG, ./seglog.yaml, …)."),
    ] = None
    overrides: Annotated[
        list[str] | None, option("--set", "KEY=VALUE", "Set a configuration value by Kafka's key; repeatable.")
    ] = None
    now: Annotated[
        int | None,
        time_option("--now", "Use this as the current time: RFC 3339, epoch milliseconds, or relative such as -1h."),
    ] = None
    show_help: HelpOption = False

    def session(self) -> Session:
        """Builds the command's session."""
        from seglog.clock import SystemClock

        Changes.begun = False
        console = Console(as_json=self.as_json, quiet=self.quiet, verbose=self.verbose, color=self.color)
        now = _absolute(self.now, SystemClock().now_ms)
        return Session(console, self.progress, self.jobs, self.config, tuple(self.overrides or ()), now)


_COMMON = inspect.signature(CommonOptions, eval_str=True).parameters
COMMON_OPTIONS = tuple(_COMMON)
CONTEXT: dict[str, Any] = {"help_option_names": []}  # `HelpOption` takes the place of Typer's --help


@dataclass(frozen=True, slots=True)
class _Urls:
    names: Sequence[str]
    only_with: Sequence[str]
    not_with: Sequence[str]
    changes_logs: bool


def _named_paths(urls: _Urls, arguments: Mapping[str, Any]) -> Iterator[Path]:
    """Yields the local paths among the arguments. Raises UsageError for a URL where the command would write."""
    from seglog.remote_path import RemotePath

    lacks = [f"--{name.replace('_', '-')}" for name in urls.only_with if not any(map(arguments.get, urls.only_with))]
    writes = [f"--{name.replace('_', '-')}" for name in urls.not_with if arguments.get(name)]
    for name, value in arguments.items():
        for path in value if isinstance(value, list) else [value]:
            if not isinstance(path, RemotePath):
                if isinstance(path, Path):
                    yield path
                continue
            if name not in urls.names:
                raise UsageError(f"{path}: this needs a local directory, not a URL: copy it to a disk first")
            if lacks or writes:
                hint = f"with {' or '.join(lacks)} it only reads" if lacks else f"without {writes[0]} it only reads"
                raise UsageError(f"{path}: this needs a local directory, not a URL ({hint}): copy it to a disk first")


def _only_reads(urls: _Urls, arguments: Mapping[str, Any]) -> bool:
    """True for a command that changes no log with these arguments."""
    if any(arguments.get(name) for name in ("dry_run", "check")):
        return True
    changes = urls.changes_logs or urls.only_with or any(map(arguments.get, urls.not_with))
    return bool(urls.names) and not changes


@contextlib.contextmanager
def _told_of_interrupts(session: Session, only_reads: bool) -> Iterator[None]:
    """Lets the error of a signal say how far a command came that changes nothing."""
    Changes.begun = not only_reads
    try:
        yield
    except KeyboardInterrupt as error:
        if only_reads:
            error.args = (session.how_far(),)
        raise


def command(
    *,
    urls: Sequence[str] = (),
    only_with: Sequence[str] = (),
    not_with: Sequence[str] = (),
    changes_logs: bool = False,
) -> Callable[[Callable[..., int | None]], Callable[..., None]]:
    """Makes a Typer command of a function that takes a `Session` and its own parameters.

    The function returns its exit code (None: 0). Its docstring is the text of `--help` and of its manual page.

    `urls` are the parameters that may be URLs, because the command only reads there. `only_with` names flags of which
    one must be given so that the command only reads; `not_with` names flags that make it write. `changes_logs`: it
    reads URLs, and changes logs elsewhere.
    """
    return functools.partial(_made, urls=_Urls(urls, only_with, not_with, changes_logs))


def _made(function: Callable[..., int | None], urls: _Urls) -> Callable[..., None]:
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    groups = {p.name for p in own if isinstance(p.annotation, type) and issubclass(p.annotation, OptionGroup)}
    declared = {
        p.name: [*inspect.signature(p.annotation, eval_str=True).parameters.values()] if p.name in groups else [p]
        for p in own
    }

    def run(**values: Any) -> None:
        session = CommonOptions(**{name: values.pop(name) for name in COMMON_OPTIONS}).session()

        def called() -> int | None:
            session.check_configuration()
            arguments, now_ms = {}, lambda: session.clock.now_ms()
            for parameter in own:
                given = {option.name: _absolute(values[option.name], now_ms) for option in declared[parameter.name]}
                in_group = parameter.name in groups
                arguments[parameter.name] = parameter.annotation(**given) if in_group else given[parameter.name]
            session.named.extend(_named_paths(urls, arguments))
            with _told_of_interrupts(session, _only_reads(urls, arguments)):
                code = function(session, **arguments)
            session.tell_unused()
            return code

        ended = guard(session.console, called)
        session.tell_traffic()
        raise typer.Exit(ended)

    functools.update_wrapper(run, function)
    every = (*(option for options in declared.values() for option in options), *_COMMON.values())
    parameters = [p.replace(kind=p.KEYWORD_ONLY) for p in every]
    if completing.VARIABLE in os.environ:
        _offer_values(parameters)
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    titled = {p.annotation.TITLE: [o.name for o in declared[p.name]] for p in own if p.name in groups}
    run.shared_options = {**titled, CommonOptions.TITLE: COMMON_OPTIONS}  # type: ignore[attr-defined]
    run.shared_options.pop("", None)  # type: ignore[attr-defined]
    del run.__wrapped__  # type: ignore[attr-defined]
    return run


def _offer_values(parameters: Iterable[inspect.Parameter]) -> None:
    """Gives each parameter the values that a shell offers for it."""
    for parameter in parameters:
        for info in getattr(parameter.annotation, "__metadata__", ()):
            if hasattr(info, "autocompletion"):
                info.autocompletion = completing.offer_of(info.metavar, parameter.name)
                info.help = completing.whole(info.help or "")


def _absolute(value: Any, now_ms: Callable[[], int]) -> Any:
    """Returns the value of an option; a relative time becomes an absolute one."""
    return now_ms() + value.distance_ms if isinstance(value, RelativeTime) else value
