"""`seglog schemas`: what a schema registry knew, from its log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from seglog.units import count_text
from seglog_cli.exit_codes import ExitCode
from seglog_cli.failures import UsageError
from seglog_cli.options import argument, command, flag, option
from seglog_cli.session import Session
from seglog_cli.tables import Layout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from seglog_ask.values.schemas import Schema


@command(urls=["path"])
def run(
    session: Session,
    path: Annotated[Path, argument("PATH", "A log directory with _schemas-0, this partition, or a .log file of it.")],
    subject: Annotated[str | None, option("--subject", "NAME", "Only this subject.")] = None,
    output: Annotated[
        Path | None, option("--output -o", "DIR", "Write the schemas as files into this new directory.")
    ] = None,
    requests: Annotated[
        bool, flag("--requests", "Write the requests that import them into a new registry, as JSON lines.")
    ] = False,
) -> int:
    """Shows a lost registry's schemas; writes what a new one takes.

    A schema registry keeps everything in one partition, _schemas-0. From it come all subjects, versions, ids and
    references, also of versions that were deleted, which are still needed for what they wrote. What is damaged is told
    and left out; the exit code is then 1. --json writes the texts of the schemas too.

    -o writes a file for each version, and a list of them. `read --schemas DIR` (and dump, export, latest, sql) decodes
    by them.

    --requests writes the requests of Confluent's REST API that bring a new registry to the same ids and versions, in
    the order in which to make them: each line has method, path and body.

    Examples:
      seglog schemas registry
      seglog schemas --json registry --subject orders-value
      seglog schemas registry -o /tmp/seglog-schemas
      seglog schemas --requests registry
    """
    from seglog_ask.operations.schemas import fields_of, import_requests, registry_contents, write_files

    if requests and output is not None:
        raise UsageError("--requests and -o are two things to write: give one of them")
    contents = registry_contents(session.fs, path)
    chosen = [one for one in contents.schemas if subject is None or one.subject == subject]
    if subject is not None and not chosen:
        raise UsageError(f"{path} has no subject {subject}")
    for problem in contents.problems:
        session.console.warning(problem)
    if requests:
        for request in import_requests(contents, chosen):
            session.console.json(request)
    elif output is not None:
        write_files(session.fs, output, chosen)
        session.console.message(f"{count_text(len(chosen), 'schema')} written to {output}")
    elif session.as_json:
        for schema in chosen:
            session.console.json({**fields_of(schema), "schema": schema.text})
    else:
        _show(session, chosen)
    return ExitCode.FOUND if contents.problems else ExitCode.DONE


def _show(session: Session, schemas: Sequence[Schema]) -> None:
    rows = [
        (
            str(one.id),
            one.subject,
            str(one.version),
            one.type,
            ", ".join(f"{each.subject} {each.version}" for each in one.references),
            "deleted" if one.deleted else "",
        )
        for one in schemas
    ]
    session.console.table(("id", "subject", "version", "type", "refers to", ""), rows, Layout(right=(0, 2)))
