"""Generates the manual pages from the command tree, the docstrings, FORMAT.md, JSON.md and the registry of findings.

    python -m seglog_cli.manual [DIRECTORY]

writes all pages below `man/`. A test fails if the files differ from what this would write. A command's docstring has
its summary, description and examples.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import typer

from seglog.verification.codes import Code, Notice
from seglog.verification.finding_codes import every_code
from seglog_cli import roff
from seglog_cli.app import build
from seglog_cli.catalogue import COMMANDS, GROUPS, SUMMARY, VERSION
from seglog_cli.exit_codes import ExitCode
from seglog_cli.help import describe
from seglog_cli.help_pages import dead_cluster, shared_options
from seglog_cli.help_text import Description, Term, shortest
from seglog_cli.kafka_releases import table
from seglog_cli.manual_text import CONFIGURATION, ENVIRONMENT, FILES, OUTPUT, RELEASES
from seglog_cli.views.codes import general_command

_FORMAT = "the files of a Kafka log directory, byte by byte"
_JSON = "the lines that commands write with \\-\\-json"
_DEAD_CLUSTER = "from a dead cluster's disks to running consumers"
_OTHER_PAGES = "seglog-format(5), seglog-json(5), seglog-findings(7), seglog-dead-cluster(7)"
ROOT = Path(__file__).resolve().parents[1]


def descriptions() -> list[Description]:
    """Returns all commands, including those of groups, in the order of `seglog --help`."""
    tree = typer.main.get_command(build())
    found: list[Description] = []
    for name, command in getattr(tree, "commands", {}).items():
        found.append(describe(command, f"seglog {name}"))
        for child, below in getattr(command, "commands", {}).items():
            found.append(describe(below, f"seglog {name} {child}"))
    return found


def pages(root: Path = ROOT) -> dict[str, str]:
    """Returns the pages: path below `man/` → text."""
    every = descriptions()
    found = {"man1/seglog.1": _main_page()}
    for name in COMMANDS:
        own = [one for one in every if one.path.split()[1] == name]
        found[f"man1/seglog-{name}.1"] = _command_page(name, own)
    formats, fields = ((root / "core" / name).read_text() for name in ("FORMAT.md", "JSON.md"))
    found["man5/seglog-format.5"] = _page_of("seglog-format", 5, _FORMAT, formats)
    found["man5/seglog-json.5"] = _page_of("seglog-json", 5, _JSON, fields)
    found["man7/seglog-findings.7"] = _findings_page()
    found["man7/seglog-dead-cluster.7"] = _page_of("seglog-dead-cluster", 7, _DEAD_CLUSTER, dead_cluster())
    return found


def write(directory: Path) -> list[Path]:
    """Writes the pages and removes those of former commands; returns the pages that are there now."""
    made = {directory / name: text for name, text in pages().items()}
    for old in directory.glob("man?/*"):
        if old not in made:
            old.unlink()
    for path, text in made.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return sorted(made)


def _main_page() -> str:
    lines = [roff.title("seglog", 1, VERSION)]
    summary, *rest = SUMMARY.strip().split("\n\n")
    lines += roff.section("NAME", f"seglog \\- {roff.inline(summary.rstrip('.'))}")
    lines += roff.section("SYNOPSIS", ".B seglog", roff.inline("COMMAND [OPTION]... [ARGUMENT]..."))
    lines += roff.section("DESCRIPTION", *(line for part in rest for line in roff.paragraph(part)))
    lines += roff.section("COMMANDS")
    for title, commands in GROUPS.items():
        lines += [f'.SS "{title}"', *roff.terms(list(commands.items()))]
    for title, terms in reversed(shared_options(build).items()):
        lines += roff.section(title.upper(), *_terms(terms))
    lines += roff.section("OUTPUT", *roff.of_markdown(OUTPUT))
    lines += roff.section("CONFIGURATION", *roff.of_markdown(CONFIGURATION))
    lines += roff.section("ENVIRONMENT", *roff.terms(ENVIRONMENT))
    lines += roff.section("FILES", *roff.terms(FILES))
    lines += roff.section("KAFKA VERSIONS", *roff.of_markdown(RELEASES.format(table=table())))
    lines += roff.section("EXIT STATUS", *_exit_status())
    others = ", ".join(f"seglog-{name}(1)" for name in COMMANDS)
    return _page([*lines, *roff.section("SEE ALSO", roff.inline(f"{others}, {_OTHER_PAGES}"))])


def _command_page(name: str, own: list[Description]) -> str:
    first = own[0]
    lines = [roff.title(f"seglog-{name}", 1, VERSION)]
    lines += roff.section("NAME", f"seglog\\-{roff.escaped(name)} \\- {roff.inline(first.summary.rstrip('.'))}")
    lines += roff.section("SYNOPSIS")
    for one in own[1:] or own:
        lines += [".br", roff.inline(one.synopsis)]
    lines += roff.section("DESCRIPTION")
    for one in own:
        lines += [f'.SS "{roff.escaped(one.path)}"', roff.inline(one.summary)] if len(own) > 1 else []
        for text in one.paragraphs or ((one.summary,) if len(own) == 1 else ()):
            lines += roff.paragraph(text)
    lines += roff.section("ARGUMENTS AND OPTIONS", *_options(own))
    examples = [line for one in own for line in one.examples]
    lines += roff.section("EXAMPLES", *roff.literal(examples)) if examples else []
    lines += roff.section("EXIT STATUS", *_exit_status())
    return _page([*lines, *roff.section("SEE ALSO", roff.inline(f"seglog(1), {_OTHER_PAGES}"))])


def _options(own: list[Description]) -> list[str]:
    lines: list[str] = []
    for one in own:
        if len(own) > 1 and (one.arguments or one.options):
            lines.append(f'.SS "{roff.escaped(one.path)}"')
        lines += _terms((*one.arguments, *one.options))
    for title, terms in own[-1].shared.items():
        names = ", ".join(f"`{shortest(term)}`" for term in terms)
        lines += [f'.SS "{title}"', roff.inline(f"{names}: see seglog(1)")]
    return lines


def _terms(found: tuple[Term, ...]) -> list[str]:
    return roff.terms([(one.names, one.text) for one in found])


def _exit_status() -> list[str]:
    return roff.terms([(str(int(code)), code.meaning) for code in ExitCode])


def _page_of(name: str, section: int, what: str, markdown: str) -> str:
    """Returns a page made of a document."""
    lines = [roff.title(name, section, VERSION), *roff.section("NAME", f"{roff.escaped(name)} \\- {what}")]
    return _page([*lines, *roff.of_markdown(markdown)])


def _findings_page() -> str:
    lines = [roff.title("seglog-findings", 7, VERSION)]
    lines += roff.section("NAME", "seglog\\-findings \\- the findings of seglog verify and seglog doctor")
    lines += roff.section("DESCRIPTION")
    lines += roff.paragraph(
        "`seglog verify` reports facts about files. `seglog doctor` reports what a Kafka 4.3 broker would do with them."
        " Both use codes, which stay the same in every version."
    )
    lines += roff.section("FINDINGS OF VERIFY")
    lines += roff.paragraph(
        "Each entry gives the severity, the meaning, when and how a broker reacts, and the repair. An unclean start"
        " follows"
        " a crash or a kill, which leaves no clean-shutdown marker."
    )
    lines += roff.terms([(kind.code, _finding(kind)) for kind in every_code() if kind.meaning])
    lines += roff.section("DIAGNOSES OF DOCTOR")
    lines += roff.paragraph(
        "A blocker keeps the broker from starting or takes the log directory offline. A danger loses data, serves data"
        " that it should not, or stops a background thread. A note is settled by the broker, or is worth knowing. The"
        " message names the place; depending on the place, a diagnosis may be graver or milder than listed here."
    )
    lines += roff.terms([(kind.code, _diagnosis(kind)) for kind in every_code() if not kind.meaning])
    return _page([*lines, *roff.section("SEE ALSO", roff.inline("seglog-verify(1), seglog-doctor(1)"))])


def _finding(kind: Code) -> str:
    repair = f" Repair: `{kind.repair}`." if kind.repair else ""
    noticed = "never notices" if kind.notices is Notice.NEVER else f"notices {kind.notices.value}"
    return f"({kind.severity.value}) {kind.meaning} A broker {noticed}. Broker: {kind.broker}{repair}"


def _diagnosis(kind: Code) -> str:
    mend = f" Mend: `{general_command(kind)}`." if kind.command else ""
    return f"({kind.severity.value}) {kind.broker}{mend}"


def _page(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m seglog_cli.manual", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("directory", nargs="?", type=Path, default=ROOT / "man", metavar="DIRECTORY")
    write(parser.parse_args(arguments).directory)


if __name__ == "__main__":
    main(sys.argv[1:])
