"""The voters of a dynamic quorum, held against the directories that are there.

A voter is a node with one directory: Kafka takes a controller whose `meta.properties` has another directory.id for a
stranger, and elects none without a majority of voters (KIP-853, VoterSet.isVoter).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from seglog.errors import RefusedError, raise_errors
from seglog_rescue.rebuild.known import KnownMetadata


def moved_voters(quorum: KnownMetadata, ids_of: Mapping[int, Sequence[str]]) -> list[str]:
    """Returns a sentence for each voter whose node has only other directories among `ids_of`.

    Raises RefusedError, or Obstacles, if the other voters are not a majority.
    """
    voters = quorum.voters
    moved = [voter for voter in voters if voter.directory_id not in ids_of.get(voter.node, [voter.directory_id])]
    reasons = [
        f"controller {voter.node} votes with the directory {voter.directory_id} by {quorum.source}, but its"
        f" meta.properties has directory.id={', '.join(ids_of[voter.node])}"
        for voter in moved
    ]
    if 2 * (len(voters) - len(moved)) > len(voters):
        return reasons
    errors = [
        RefusedError(f"{reason}: no controller would be elected, so give that directory, too, or a new one")
        for reason in reasons
    ]
    raise_errors(errors)
    return reasons
