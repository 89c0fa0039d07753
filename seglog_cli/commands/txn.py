"""`seglog txn`: the transactions of a partition."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from seglog_cli.exit_codes import ExitCode
from seglog_cli.failures import UsageError
from seglog_cli.options import Partition, argument, command, duration_option, one_of, option, takes_urls
from seglog_cli.session import Session
from seglog_cli.tiering import Tiers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from seglog.evidence.transactions import Transaction
    from seglog.scan.view import PartitionView

ACTIONS = ("list", "open", "stat", "abort-cmd")


@command
@takes_urls("partition")
def run(
    session: Session,
    partition: Partition,
    tiers: Tiers,
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
) -> int:
    """Shows the transactions in a log: where they began and ended, how long they took, which are open or hang.

    list shows all transactions in the order in which they ended, open ones last. open shows those that have no end.
    stat counts them. abort-cmd prints the kafka-transactions.sh command that ends each hanging one, with a warning
    where the producer was told that it had been committed and only the marker is missing. A transaction hangs when the
    __transaction_state partitions beside the log say that nobody works on it. Where they say nothing, it hangs when it
    is older than --max-timeout. While it is open, readers of committed data and the cleaner wait for it. One that only
    a producer snapshot knows, and of which the log has no record, hangs as well: deleting that snapshot ends it. For
    open and abort-cmd the exit code is 1 when a transaction hangs.

    Examples:
      seglog txn payments-0
      seglog txn payments-0 open --json
      seglog txn payments-0 abort-cmd --bootstrap-server broker:9092
    """
    from seglog.evidence.transactions import TransactionState
    from seglog.scan.listing import require_partition
    from seglog.scan.view import PartitionView
    from seglog_cli.views.transactions import Statistics, show_abort, show_statistics, show_transaction

    one_of("txn", action, ACTIONS)
    if bootstrap_server is not None and action != "abort-cmd":
        raise UsageError("--bootstrap-server is for abort-cmd")
    session, (partition,) = tiers.seen(session, [partition])
    require_partition(session.fs, partition)
    view = PartitionView(session.fs, partition)
    statistics, hanging = Statistics(partition.resolve().name), 0
    for one in _transactions(session, view, max_timeout):
        is_open = one.state is TransactionState.OPEN
        hanging += one.hanging is True
        statistics.add(one)
        if action == "list" or (action == "open" and is_open):
            show_transaction(session.console, one, statistics.partition)
        elif action == "abort-cmd" and is_open and one.hanging is not False:
            show_abort(session.console, one, view.listing, bootstrap_server or "localhost:9092")
    if action == "stat":
        show_statistics(session.console, statistics)
    return ExitCode.FOUND if hanging and action in ("open", "abort-cmd") else ExitCode.DONE


def _transactions(session: Session, view: PartitionView, max_timeout_ms: int | None) -> Iterator[Transaction]:
    from seglog.evidence.transactions import DEFAULT_MAX_TIMEOUT_MS, read_coordinators, view_transactions

    beside: Path = session.resolved(view.directory).parent
    return view_transactions(
        view,
        session.clock.now_ms(),
        max_timeout_ms=DEFAULT_MAX_TIMEOUT_MS if max_timeout_ms is None else max_timeout_ms,
        coordinators=lambda: read_coordinators(session.fs, beside),
    )
