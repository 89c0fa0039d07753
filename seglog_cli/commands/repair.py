"""`seglog repair`: repairs damaged logs with the smallest loss."""

from __future__ import annotations

from seglog_cli.commands.repairing import repair_paths
from seglog_cli.grouping import FindingsShown
from seglog_cli.options import DryRun, Paths, Quarantine, RepairOnly, RepairPolicy, command
from seglog_cli.session import Session


@command()
def run(
    session: Session,
    paths: Paths,
    policy: RepairPolicy = "smallest-loss",
    only: RepairOnly = None,
    dry_run: DryRun = False,
    quarantine: Quarantine = None,
    *,
    shown: FindingsShown,
) -> int:
    """Repairs damaged logs; every good batch stays.

    The command verifies at the deepest level and repairs what it found, under the broker's lock: stop the broker first.
    The quarantine keeps what is removed, and `seglog undo` takes the repair back, bit for bit. If a run is interrupted,
    the next one finishes it. --dry-run shows the steps and changes nothing.

    The exit code is 0 if nothing was wrong, 4 if everything is repaired, and 5 if something remains. A partition with a
    file that this user may not open is left out and named, and the exit code is 3.

    --policy says how damage in a log is repaired:

      smallest-loss  keeps every good batch: cuts a torn tail, removes damaged
                     ranges inside the log, puts moved batches back in their
                     place, also from other segments' files, and renames
                     segments whose names contradict their batches
      excise         the same, but removes batches that are out of order
      truncate       cuts at the first damage and drops everything after it, as
                     a broker's recovery does

    Wrong indexes, snapshots, leader epochs and checkpoints are rebuilt from the data. No checksum covers the leader
    epoch in a batch's header; a broken one is corrected if its neighbours show what it was. A log of Kafka 0.7 can only
    be cut at the damage, and only in its last file, because its offsets are positions.

    Examples:
      seglog repair --dry-run orders-none-0
      seglog repair orders-none-0
      seglog repair /var/lib/kafka/data
    """
    from seglog.operations.repair import RepairRequest

    return repair_paths(session, RepairRequest(tuple(paths), policy, only, quarantine), shown, dry_run)
