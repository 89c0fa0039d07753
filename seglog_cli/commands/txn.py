"""`seglog txn`: the transactions of a partition."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from seglog.units import count_text, rough_duration
from seglog_cli.console import Console
from seglog_cli.exit_codes import ExitCode
from seglog_cli.failures import UsageError
from seglog_cli.options import (
    Partition,
    argument,
    command,
    duration_option,
    one_of,
    option,
    require_servers,
)
from seglog_cli.progress import bytes_text
from seglog_cli.session import Session
from seglog_cli.tiering import Tiers

if TYPE_CHECKING:
    from seglog.scan.listing import PartitionListing
    from seglog.verification.transactions import Transaction

ACTIONS = ("list", "open", "stat", "abort-cmd")


@command(urls=["partition"])
def run(
    session: Session,
    partition: Partition,
    action: Annotated[str, argument("list|open|stat|abort-cmd", "What to show (default: list).")] = "list",
    max_timeout: Annotated[
        int | None,
        duration_option("--max-timeout", "The brokers' transaction.max.timeout.ms (default: 15m).", least=0),
    ] = None,
    bootstrap_server: Annotated[
        str | None,
        option(
            "--bootstrap-server",
            "HOST:PORT",
            "The address in the commands that abort-cmd prints (default: localhost:9092).",
        ),
    ] = None,
    *,
    tiers: Tiers,
) -> int:
    """Shows transactions: finished ones, open ones, and those that hang.

    The output shows where transactions begin and end, how long they took, and which are open or hang.

    The second argument says what to show:

      list       all transactions in the order in which they ended, open ones
                 last
      open       the transactions that have no end
      stat       their counts
      abort-cmd  the kafka-transactions.sh command that ends each hanging one,
                 and what ends the others

    A transaction hangs if the __transaction_state partitions beside the log say that nobody works on it. If they say
    nothing, it hangs when it is older than --max-timeout. While it is open, readers of committed data and the cleaner
    wait for it. A transaction that only a producer snapshot knows, without a record in the log, hangs as well: deleting
    that snapshot ends it.

    abort-cmd warns if the producer was told that the transaction is committed and only the marker is missing.

    With open and abort-cmd, the exit code is 1 if a transaction hangs.

    Examples:
      seglog txn payments-0
      seglog txn payments-0 open --json
      seglog txn payments-0 abort-cmd --bootstrap-server broker:9092
    """
    from seglog.scan.listing import require_partition
    from seglog.scan.view import PartitionView
    from seglog.storage import links
    from seglog.verification.transaction_coordinators import DEFAULT_MAX_TIMEOUT_MS, view_transactions
    from seglog.verification.transactions import TransactionState

    one_of("txn", action, ACTIONS)
    if bootstrap_server is not None and action != "abort-cmd":
        raise UsageError("--bootstrap-server is for abort-cmd")
    servers = "localhost:9092" if bootstrap_server is None else bootstrap_server
    require_servers("--bootstrap-server", servers)
    session, (partition,) = tiers.seen(session, [partition])
    require_partition(session.fs, partition)
    view = PartitionView(session.fs, partition)
    statistics, hanging = Statistics(links.name_of(partition)), 0
    limit_ms = DEFAULT_MAX_TIMEOUT_MS if max_timeout is None else max_timeout
    for transaction in view_transactions(session.fs, view, session.clock.now_ms(), limit_ms):
        is_open = transaction.state is TransactionState.OPEN
        hanging += transaction.hanging is True
        statistics.add(transaction)
        if action == "list" or (action == "open" and is_open):
            show_transaction(session.console, transaction, statistics.partition)
        elif action == "abort-cmd" and is_open and transaction.hanging is not False:
            show_abort(session.console, transaction, view.listing, servers)
        elif action == "abort-cmd" and is_open:
            session.console.message(
                f"no command is needed at offset {transaction.first_offset}: {_ending_text(transaction)}"
            )
    if action == "stat":
        show_statistics(session.console, statistics)
    elif action in ("open", "abort-cmd") and not statistics.open:
        session.console.message("no open transactions")
    return ExitCode.FOUND if hanging and action in ("open", "abort-cmd") else ExitCode.DONE


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

    def add(self, transaction: Transaction) -> None:
        state = transaction.state.value
        setattr(self, state, getattr(self, state) + 1)
        self.hanging += transaction.hanging is True
        self.records += transaction.records
        self.bytes += transaction.bytes
        self.longest_ms = max(self.longest_ms, transaction.duration_ms)
        self.total_ms += transaction.duration_ms
        if state == "aborted":
            self.aborted_records += transaction.records
        if state == "open":
            first = transaction.first_offset
            self.first_open_offset = first if self.first_open_offset is None else min(self.first_open_offset, first)


def show_transaction(console: Console, transaction: Transaction, partition: str) -> None:
    """Shows one line: JSON, or text."""
    if console.as_json:
        console.json(transaction.as_dict(partition))
        return
    style = {"committed": "good", "aborted": "warning", "open": "strong"}[transaction.state.value]
    state = "hanging" if transaction.hanging else transaction.state.value
    offsets = (
        f"from offset {transaction.first_offset}"
        if transaction.last_offset is None
        else f"offsets {transaction.first_offset} to {transaction.last_offset}"
    )
    coordinator = f", coordinator: {transaction.coordinator}" if transaction.coordinator else ""
    source = "" if transaction.source == "log" else f", known to {transaction.file} only"
    console.line(
        f"{console.styled(state, style)} {offsets}, producer {transaction.producer_id}"
        f" epoch {transaction.producer_epoch}, {count_text(transaction.records, 'record')}"
        f" in {count_text(transaction.batches, 'batch')},"
        f" {_duration_text(transaction)}{coordinator}{source}"
    )
    if transaction.ends:
        console.indented([_ending_text(transaction)])


def _duration_text(transaction: Transaction) -> str:
    if transaction.state.value != "open":
        return rough_duration(transaction.duration_ms)
    return (
        "open for an unknown time" if transaction.open_ms is None else f"open for {rough_duration(transaction.open_ms)}"
    )


def _ending_text(transaction: Transaction) -> str:
    """Returns what ends an open transaction that does not hang, and when."""
    return transaction.ends or "its marker was written while the log was read"


def show_abort(console: Console, transaction: Transaction, listing: PartitionListing, bootstrap_server: str) -> None:
    """Shows the command that ends an open transaction."""
    command = abort_command(transaction, listing, bootstrap_server)
    if transaction.source == "snapshot":
        command = f"mv {listing.directory / transaction.file} SOMEWHERE-ELSE  # while the broker is stopped"
    elif transaction.is_decided:
        console.warning(
            f"the transaction at offset {transaction.first_offset} was acknowledged as committed"
            f" ({transaction.coordinator}), and only its marker is missing. Aborting it hides"
            f" {count_text(transaction.records, 'record')} from read_committed consumers for ever. Copy them first"
            " (seglog read), or transplant the partition, which commits it"
        )
    console.result({"type": "command", "first_offset": transaction.first_offset, "command": command}, command)


def abort_command(transaction: Transaction, listing: PartitionListing, bootstrap_server: str) -> str:
    """Returns the `kafka-transactions.sh` call that writes the ABORT marker (Kafka: TransactionsCommand, KIP-664)."""
    here = listing.topic_partition
    topic = listing.directory.name if here is None else here.topic
    number = 0 if here is None else here.partition
    return (
        f"kafka-transactions.sh --bootstrap-server {bootstrap_server} abort"
        f" --topic {topic} --partition {number} --start-offset {transaction.first_offset}"
    )


def show_statistics(console: Console, statistics: Statistics) -> None:
    if console.as_json:
        console.json({"type": "transaction_statistics", **dataclasses.asdict(statistics)})
        return
    count = statistics.committed + statistics.aborted + statistics.open
    records, aborted = count_text(statistics.records, "record"), count_text(statistics.aborted_records, "record")
    console.line(
        f"{statistics.partition}: {count_text(count, 'transaction')}, {records}, {bytes_text(statistics.bytes)}"
    )
    console.line(f"  committed {statistics.committed}, aborted {statistics.aborted} ({aborted})")
    console.line(f"  open {statistics.open}, of these hanging {statistics.hanging}")
    mean = statistics.total_ms // count if count else 0
    console.line(f"  longest {rough_duration(statistics.longest_ms)}, mean {rough_duration(mean)}")
    if statistics.first_open_offset is not None:
        console.line(f"  readers of committed data wait at offset {statistics.first_open_offset}")
