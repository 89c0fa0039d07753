"""What is lost when one of several replicas leads, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from seglog.model import TopicPartition
from seglog_rescue.rebuild.directories import FoundReplica
from seglog_rescue.replicas.rule import Metadata


@dataclass(frozen=True, slots=True)
class Replica:
    """A replica with the ids of its broker and its directory."""

    node: int
    directory_id: str
    found: FoundReplica

    @property
    def rank(self) -> tuple[int, int]:
        """Its newest leader epoch, and the offset after its last record."""
        return self.found.last_epoch, self.found.log_end


def given_up(partition: TopicPartition, best: Replica, metadata: Metadata, replicas: Sequence[Replica]) -> str:
    """Says why a leader that was not in sync may lack acknowledged records, or why those in sync do."""
    here = [replica.node for replica in replicas if replica.node in metadata.in_sync]
    lost = f"acknowledged records that only the brokers {list(metadata.in_sync)} have are lost"
    if here:
        lost = f"the logs of the brokers {here}, which were, have lost acknowledged records that it has"
    return f"{partition}: broker {best.node} leads, which was not in sync: {lost}"


def cut_off(partition: TopicPartition, best: Replica, log_end: int, replicas: Sequence[Replica]) -> Iterator[str]:
    """Yields what the leader's own start cuts, `log_end` being its end then, and what followers lose."""
    is_cut = log_end < best.found.log_end
    if is_cut:
        yield (
            f"{partition}: broker {best.node} leads, and its start cuts offsets {log_end} to"
            f" {best.found.log_end - 1}, as {best.found.directory} is damaged: copy it first"
        )
    for replica in replicas:
        if replica is not best and replica.found.log_end > log_end:
            why = "in an older leader epoch" if replica.rank < best.rank else "and was not in sync"
            yield (
                f"{partition}: broker {replica.node} goes on to offset {replica.found.log_end - 1}"
                f" {'beyond it' if is_cut else why}, and loses the records that the leader, broker {best.node}, lacks"
                f" when it follows it: copy {replica.found.directory} first"
            )
