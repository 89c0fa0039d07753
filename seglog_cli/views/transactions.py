"""Transactions for people and scripts."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from seglog.units import count_text
from seglog_cli.console import Console

if TYPE_CHECKING:
    from seglog.evidence.transactions import Transaction
    from seglog.scan.listing import PartitionListing


@dataclass
class Statistics:
    """Counts over the transactions of a partition; durations in milliseconds."""

    partition: str
    committed: int = 0
    aborted: int = 0
    open: int = 0
    hanging: int = 0
    records: int = 0
    aborted_records: int = 0
    bytes: int = 0
    longest_ms: int = 0
    total_ms: int = 0
    first_open_offset: int | None = None

    def add(self, one: Transaction) -> None:
        """Counts one more."""
        state = one.state.value
        setattr(self, state, getattr(self, state) + 1)
        self.hanging += one.hanging is True
        self.records += one.records
        self.bytes += one.bytes
        self.longest_ms = max(self.longest_ms, one.duration_ms)
        self.total_ms += one.duration_ms
        if state == "aborted":
            self.aborted_records += one.records
        if state == "open":
            first = one.first_offset
            self.first_open_offset = first if self.first_open_offset is None else min(self.first_open_offset, first)


def show_transaction(console: Console, one: Transaction, partition: str) -> None:
    """One line: JSON, or text."""
    if console.as_json:
        console.json(one.as_dict(partition))
        return
    style = {"committed": "good", "aborted": "warning", "open": "strong"}[one.state.value]
    state = "hanging" if one.hanging else one.state.value
    offsets = (
        f"from offset {one.first_offset}"
        if one.last_offset is None
        else f"offsets {one.first_offset} to {one.last_offset}"
    )
    coordinator = f", coordinator: {one.coordinator}" if one.coordinator else ""
    source = "" if one.source == "log" else f", known to {one.file} only"
    console.line(
        f"{console.styled(state, style)} {offsets}, producer {one.producer_id}"
        f" epoch {one.producer_epoch}, {count_text(one.records, 'record')} in {count_text(one.batches, 'batch')},"
        f" {one.duration_ms} ms{coordinator}{source}"
    )


def show_abort(console: Console, one: Transaction, listing: PartitionListing, bootstrap_server: str) -> None:
    """The command that ends an open transaction."""
    from seglog.evidence.transactions import abort_command

    command = abort_command(one, listing, bootstrap_server)
    if one.source == "snapshot":
        command = f"mv {listing.directory / one.file} SOMEWHERE-ELSE  # while the broker is stopped"
    elif one.is_decided:
        console.warning(
            f"the transaction at offset {one.first_offset} was acknowledged as committed ({one.coordinator}), and only"
            f" its marker is missing. Aborting it hides {count_text(one.records, 'record')} from read_committed"
            " consumers for ever. Copy them first (seglog read), or transplant the partition, which commits it"
        )
    if console.as_json:
        console.json({"type": "command", "first_offset": one.first_offset, "command": command})
    else:
        console.line(command)


def show_statistics(console: Console, found: Statistics) -> None:
    """Shows their totals."""
    if console.as_json:
        console.json({"type": "transaction_statistics", **dataclasses.asdict(found)})
        return
    count = found.committed + found.aborted + found.open
    records, aborted = count_text(found.records, "record"), count_text(found.aborted_records, "record")
    console.line(f"{found.partition}: {count_text(count, 'transaction')}, {records}, {found.bytes} bytes")
    console.line(f"  committed {found.committed}, aborted {found.aborted} ({aborted})")
    console.line(f"  open {found.open}, of these hanging {found.hanging}")
    mean = found.total_ms // count if count else 0
    console.line(f"  longest {found.longest_ms} ms, mean {mean} ms")
    if found.first_open_offset is not None:
        console.line(f"  readers of committed data wait at offset {found.first_open_offset}")
