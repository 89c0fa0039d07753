"""`seglog redact`: erases named records from every segment, and proves it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from seglog.units import count_text
from seglog_cli.exit_codes import ExitCode
from seglog_cli.failures import UsageError
from seglog_cli.options import (
    Directories,
    DryRun,
    MetadataDirectory,
    OptionGroup,
    command,
    flag,
    one_of,
    option,
)
from seglog_cli.session import Session
from seglog_cli.views.redaction import report_text, show_plan, show_report

if TYPE_CHECKING:
    from seglog.operations.redact import Elsewhere, RedactionReport, RedactionRequest, SearchAll
    from seglog.redaction.selection import RecordsToErase
    from seglog.scan.listing import Target

_NO_UNDO = "There is no undo: nothing keeps what is erased. Records that were erased cannot be brought back."


@dataclass(frozen=True)
class ChosenErasure(OptionGroup):
    """What is erased, and what is shown of it."""

    key: Annotated[list[str] | None, option("--key", "KEY", "Erase the records with this key; may be repeated.")] = None
    keys_from: Annotated[
        Path | None, option("--keys-from", "FILE", "Erase the records with these keys: one a line (-: standard input).")
    ] = None
    offsets_from: Annotated[
        Path | None,
        option("--offsets-from", "FILE", "Erase these records: CSV with topic, partition, offset (-: standard input)."),
    ] = None
    erase: Annotated[str, option("--erase", "value|record", "What goes: the value, or the whole record.")] = "value"
    fill: Annotated[
        str, option("--with", "null|zeros", "What an erased value becomes: null, or zeros of the same length.")
    ] = "null"
    keys: Annotated[
        str, option("--keys", "keep|digest", "What a key becomes: itself, or a digest that nobody can find back.")
    ] = "keep"
    headers: Annotated[str, option("--headers", "keep|drop", "Whether the headers go with the value.")] = "keep"
    request: Annotated[str, option("--request", "ID", "The request's name in your books, for the report.")] = ""
    report: Annotated[Path | None, option("--report", "FILE", "Write the report for a person there, too.")] = None
    verify: Annotated[bool, flag("--verify", "Then search every file for what must be gone.")] = False
    yes: Annotated[bool, flag("--yes", "Do it without asking.")] = False

    def requested(
        self, session: Session, *, dry_run: bool, replicas: int | None = None, tiers_done: bool = False
    ) -> RedactionRequest:
        """Returns the request. Raises UsageError for choices that make no sense, or if nobody could be asked."""
        from seglog.operations.redact import RedactionRequest

        for name, value, choices in (
            ("--erase", self.erase, ("value", "record")),
            ("--with", self.fill, ("null", "zeros")),
            ("--keys", self.keys, ("keep", "digest")),
            ("--headers", self.headers, ("keep", "drop")),
        ):
            one_of(name, value, choices)
        selection = _selection(session, self.key, self.keys_from, self.offsets_from)
        if not dry_run and not self.yes and not sys.stdin.isatty():
            raise UsageError(f"{_NO_UNDO} Say --yes, or look first with --dry-run")
        try:
            return RedactionRequest.of(
                selection,
                whole_record=self.erase == "record",
                zeros=self.fill == "zeros",
                digest_keys=self.keys == "digest",
                drop_headers=self.headers == "drop",
                replicas=replicas,
                tiers_done=tiers_done,
                dry_run=dry_run,
                reference=self.request,
            )
        except ValueError as error:
            raise UsageError(f"--erase record: {error}") from None

    def agree(self, session: Session, records: int) -> None:
        """Asks on the terminal, unless --yes was given. Raises UsageError unless the answer is yes."""
        if self.yes:
            return
        session.console.say(f"{_NO_UNDO}\nErase {count_text(records, 'record')}? Type yes: ")
        if sys.stdin.readline().strip().lower() != "yes":
            raise UsageError("not confirmed; nothing was changed")

    @contextmanager
    def showing(self, session: Session, *, dry_run: bool) -> Iterator[Callable[[RedactionReport], None]]:
        """Yields what shows a report, and writes it to the page that was asked for: that is opened before anything."""
        from seglog.repairs.undo.beside import NewFile

        page = None if self.report is None else NewFile(session.fs, self.report)

        def show(done: RedactionReport) -> None:
            show_report(session.console, done, dry_run=dry_run)
            if page is not None:
                page.file.write_at(0, report_text(done, dry_run=dry_run).encode())
                page.keep()

        try:
            yield show
        finally:
            if page is not None:
                page.discard()


@dataclass(frozen=True)
class ErasureOptions(ChosenErasure):
    """What is erased, what the operator answers for, and what is shown of it."""

    replicas: Annotated[
        int | None,
        option("--replicas", "N", "How many replicas the cluster keeps (1: this is the only copy).", least=1),
    ] = None
    tiers_done: Annotated[bool, flag("--tiers-done", "Copies in tiered storage have been dealt with.")] = False
    backups: Annotated[
        list[Path] | None,
        option("--backups", "REPOSITORY", "Name the snapshots there that hold such records; repeatable."),
    ] = None

    def asked(self, session: Session, *, dry_run: bool) -> RedactionRequest:
        """Returns the request. Raises UsageError as `requested` does."""
        return self.requested(session, dry_run=dry_run, replicas=self.replicas, tiers_done=self.tiers_done)


@command(urls=["backups"], changes_logs=True)
def run(
    session: Session,
    paths: Directories,
    erasure: ErasureOptions,
    metadata_dir: MetadataDirectory = None,
    dry_run: DryRun = False,
) -> int:
    """Erases named records from every segment, and proves it.

    An erasure request says that a customer must be gone. A tombstone reaches only compacted topics, and only when a
    cleaner runs. This command writes the segments that hold the records anew: the active one too, and those in
    directories that a broker set aside (-delete, -stray, -future). Offsets, timestamps, sequences, producers,
    transactions and codecs stay. Every other batch keeps its bytes, and segments without such a record are not touched.

    Choose the records by their keys (--key, --keys-from) or by offsets (--offsets-from), which `seglog sql --csv` or
    `seglog dump --json` can find. A line of --keys-from is a key as text, or JSON with "key" or "key_b64".

    --erase value leaves the record in its place, with a null value. That is a tombstone in a compacted topic. --with
    zeros keeps the length, for consumers that need a value. --erase record takes it out. --keys digest replaces the key
    by a keyed hash whose secret is thrown away: equal keys stay equal.

    Refused before anything changes: a running broker, damage in a log that must be searched, a selected record after
    the start of an open transaction, copies in tiered storage (--tiers-done), zeros in a compacted topic, and a number
    of replicas that nobody knows: every broker has its own copy, and needs the same command.

    --backups searches the snapshots in a repository of `seglog backup`, and names those that hold such records; nothing
    is changed there. `seglog backup redact` erases them.

    There is no undo, and no quarantine keeps the data. The report names what was written anew, with digests of each
    file before and after, and what else may hold copies: quarantines of earlier repairs, other replicas. It has no key,
    no value, and no digest of what was erased. Blocks that the file system has freed may keep the bytes until they are
    used again.

    --verify then decompresses and searches every file below the log directories and in their quarantines, but for the
    partitions beside those that you name. If a copy is found, the exit code is 1. It is also 1 if a search of some file
    proves nothing, and the file is named: one that cannot be read, is packed (.gz, .zip, .zst) or holds a torn batch,
    and a link that leads elsewhere. With --dry-run it shows where copies are now.

    Examples:
      seglog redact --dry-run orders-none-0 --key order-7 --replicas 1
      seglog redact orders-none-0 --key order-7 --replicas 1 --request DSR-42 --verify --yes
    """
    return redact_paths(session, paths, erasure, erasure.asked(session, dry_run=dry_run), metadata_dir)


def redact_paths(
    session: Session,
    paths: list[Path],
    options: ErasureOptions,
    asked: RedactionRequest,
    metadata_dir: Path | None,
    search_all: SearchAll | None = None,
) -> int:
    """Shows the plan, carries it out if the operator agrees, and shows and writes the report."""
    from seglog.operations.redact import redaction
    from seglog.operations.workspace import Sources
    from seglog.scan.listing import resolve_paths

    with options.showing(session, dry_run=asked.dry_run) as show:
        targets = resolve_paths(session.fs, paths)
        asked = replace(asked, elsewhere=tuple(_in_backups(session, targets, asked, options.backups or ())))
        config_of = partial(session.config_of, sources=Sources({}, metadata_directory=metadata_dir))
        with redaction(session.fs, targets, config_of, session.clock, asked, os.environ, search_all) as work:
            show_plan(session.console, work.found, dry_run=asked.dry_run)
            if not asked.dry_run and work.records:
                options.agree(session, work.records)
                work.apply()
            traces = work.search() if options.verify else None
            done = work.report(traces)
        show(done)
    return ExitCode.FOUND if traces is not None and not done.complete else ExitCode.DONE


def _in_backups(
    session: Session, targets: Sequence[Target], asked: RedactionRequest, repositories: Sequence[Path]
) -> Iterator[Elsewhere]:
    """Yields the snapshots of repositories that hold records to erase."""
    if not repositories:
        return
    from seglog.operations.redact import concerns_topics
    from seglog_rescue.operations.backups_left import snapshots_holding

    concerned = concerns_topics(targets, asked.selection)
    for repository in repositories:
        yield from snapshots_holding(session.fs, repository, concerned, asked.selection, asked.erasure)


def _selection(
    session: Session, keys: list[str] | None, keys_from: Path | None, offsets_from: Path | None
) -> RecordsToErase:
    """Returns what the options select. Raises UsageError unless one kind is given, InputError for a bad line."""
    from seglog.redaction.selection import RecordsToErase, read_keys, read_offsets
    from seglog.scan.key_set import KeySet

    if (bool(keys) or keys_from is not None) == (offsets_from is not None):
        raise UsageError("say which records: --key or --keys-from, or --offsets-from")
    if offsets_from is not None:
        return RecordsToErase(offsets=read_offsets(_contents(session, offsets_from), str(offsets_from)))
    named = [each.encode("utf-8", "surrogateescape") for each in keys or ()]
    if keys_from is not None:
        named += read_keys(_contents(session, keys_from), str(keys_from))
    return RecordsToErase(KeySet(named))


def _contents(session: Session, path: Path) -> bytes:
    return sys.stdin.buffer.read() if str(path) == "-" else session.fs.read_bytes(path)
