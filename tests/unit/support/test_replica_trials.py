"""What the trials of `replicas` on dead clusters excuse, and what they do not."""

from __future__ import annotations

from pathlib import Path

from seglog_rescue.operations.replicas import ReplicasReport
from tests.support.dying_clusters import DyingCluster, Row, rows_of
from tests.support.log_files import batch
from tests.support.lost_clusters import broker_directory, registration, topic_records
from tests.support.metadata_records import write_metadata_log
from tests.support.replica_trials import Outcome, Trial, kept_elsewhere, not_followed
from tests.unit.rescue.replicas.test_comparison import brokers, log_of, report_of

BOTH = ["orders", "clicks"]


def trial_of(place: Path, report: ReplicasReport, *directories: Path) -> Trial:
    rows = rows_of({node: [path] for node, path in enumerate(directories, 1)}, BOTH)
    return Trial(DyingCluster(1, place / "unused"), rows, report, Outcome(1))


def test_a_follower_may_differ_only_at_offsets_that_the_report_names(tmp_path: Path) -> None:
    one, two = brokers(tmp_path, [0] * 100, [0] * 100)
    log_of(two).write_bytes(b"".join(batch(i, value=b"other" if i == 60 else b"value") for i in range(100)))
    trial = trial_of(tmp_path, report_of(one, two), one, two)
    assert list(not_followed(trial, trial.rows, {"orders-0": 1})) == []
    assert trial.outcome.excused == {"a follower differs at offsets that the report says": 1}
    after = {"orders-0": trial.rows["orders-0"] | {2: {row for row in trial.rows["orders-0"][2] if row[0] != 99}}}
    (sentence,) = not_followed(trial, after, {"orders-0": 1})
    assert sentence == "by the steps: broker 2 differs from the leader 1 of orders-0 at offsets [99]"


def test_an_acknowledged_record_that_another_start_keeps_is_excused_only_where_a_step_names_the_partition(
    tmp_path: Path,
) -> None:
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0] * 9, "clicks-0": [0] * 3})
    two = broker_directory(tmp_path / "2", 2, {"orders-0": [0] * 5, "clicks-0": [0] * 8})
    records = [*topic_records("orders", [[1, 2]]), *topic_records("clicks", [[1, 2]])]
    write_metadata_log(one, [registration(1), registration(2), *records])
    trial = trial_of(tmp_path, report_of(one, two), one, two)
    leader = trial.report.start.order[0]
    named, other = ("orders-0", "clicks-0") if leader == 2 else ("clicks-0", "orders-0")

    def lost(name: str, offset: int) -> set[tuple[str, Row]]:
        trial.dying.acknowledged.add((name, offset, b"value"))
        return {(name, (offset, 0, b"k0", b"value"))}

    assert list(kept_elsewhere(trial, lost(named, 4), {3 - leader: lost(other, 4)})) == []
    assert trial.outcome.excused == {"no order fits, and another broker alone loses less of a partition": 1}
    assert list(kept_elsewhere(trial, lost(named, 4), {3 - leader: set()})) == [
        f"the order loses 1 acknowledged records more in all than broker {3 - leader} alone"
    ]
    unnamed = list(kept_elsewhere(trial, lost(other, 2), {3 - leader: lost(named, 4)}))
    assert unnamed == [f"{other}: the order loses 1 acknowledged records, broker {3 - leader} alone 0"]


def test_a_leader_epoch_above_one_that_follows_counts_as_that_one_and_is_told(tmp_path: Path) -> None:
    one, two = brokers(tmp_path, [0] * 10, [0] * 10)
    data = bytearray(log_of(one).read_bytes())
    data[8 * 75 + 15] ^= 1
    log_of(one).write_bytes(data)
    turned = set[tuple[str, int]]()
    rows = rows_of({1: [one], 2: [two]}, BOTH, turned=turned)
    assert rows["orders-0"][1] == rows["orders-0"][2]
    assert turned == {("orders-0", 1)}
