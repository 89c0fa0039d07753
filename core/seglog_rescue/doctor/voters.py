"""Whether the node that owns a metadata log has a vote, by the records that name the voters of a dynamic quorum.

Such a voter is a node with the id of its metadata directory. A controller whose `meta.properties` has another
`directory.id`, or none, is only an observer, and so is one with another `node.id`. If it is the only voter, nobody is
ever elected. With a static quorum (`controller.quorum.voters`) no record names voters, and the id does not matter.

Without any voter, a controller whose configuration names none either (no `controller.quorum.voters`) has no vote.

Kafka (KIP-853): VotersRecord, VoterSet.isVoter, ReplicaKey; KafkaRaftServer.initializeLogDirs makes up a missing id.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from seglog.configuration.keys import BrokerConfig
from seglog.escaping import command_line
from seglog.format import filenames
from seglog.format.control import Voter
from seglog.verification.codes import Severity
from seglog_rescue.doctor.cases import Diagnosis, diagnosis
from seglog_rescue.doctor.partition_facts import PartitionFacts

_ANY_DIRECTORY = "AAAAAAAAAAAAAAAAAAAAAA"  # of a voter that had no id (Kafka: ReplicaKey.NO_DIRECTORY_ID)
_OF_SEVERAL = (
    "Follows the other controllers, and has no vote: one controller less may fail. If the disk is a new one, leave the"
    " id, and have the voter replaced (kafka-metadata-quorum remove-controller, add-controller)."
)
_JOINS = "Has no vote before it has the metadata of another controller. If none of them has any, none is elected."


def examine_voters(facts: PartitionFacts, voters: Sequence[Voter], broker: BrokerConfig) -> Iterator[Diagnosis]:
    """Yields a diagnosis if `meta.properties` is not that of the voter to which the metadata log belongs, or if nobody
    says who has a vote. `broker` is what is known of the node's configuration.
    """
    if not voters:
        yield from _nobody(facts, broker)
        return
    meta, own = facts.around.meta, facts.around.directory_id
    if meta is None or meta.node_id is None:
        return  # reported as such
    of_node = next((voter for voter in voters if voter.node == meta.node_id), None)
    of_directory = next((voter for voter in voters if voter.directory_id == own), None)
    path = facts.log_directory / filenames.META_PROPERTIES
    if of_node is not None and of_node.directory_id not in (own, _ANY_DIRECTORY):
        has = f"directory.id {own}" if own else "no directory.id"
        message = f"it has {has}, but node {of_node.node} votes with directory.id {of_node.directory_id}"
        change = f"s/^ *directory[.]id *[=:].*/directory.id={of_node.directory_id}/"
        command = command_line("sed", "-i", change if own else f"$a directory.id={of_node.directory_id}", path)
    elif of_node is None and of_directory is not None:
        message = f"it has node.id {meta.node_id}, but directory.id {own} is the one with which"
        message += f" node {of_directory.node} votes (its configuration must have that node.id, too)"
        command = command_line("sed", "-i", f"s/^ *node[.]id *[=:].*/node.id={of_directory.node}/", path)
    else:
        return
    fields: dict[str, object] = {} if len(voters) == 1 else {"gravity": Severity.DANGER, "broker": _OF_SEVERAL}
    yield diagnosis("NOT_THE_VOTER", facts.log_directory, None, path, message, command=command, **fields)


def only_voter_here(facts: PartitionFacts, voters: Sequence[Voter]) -> int | None:
    """Returns the only voter's node, if it votes with the id of this directory; None if `meta.properties` says so too,
    or if there are other voters, with whom a start goes on."""
    meta, own = facts.around.meta, facts.around.directory_id
    if len(voters) != 1 or meta is None or own is None or voters[0].directory_id != own:
        return None
    return None if meta.node_id == voters[0].node else voters[0].node


def _nobody(facts: PartitionFacts, broker: BrokerConfig) -> Iterator[Diagnosis]:
    """Yields a diagnosis if a controller's quorum is dynamic by its configuration, and no record names the voters."""
    servers = broker.controller_quorum_bootstrap_servers
    if "controller" not in broker.process_roles or broker.controller_quorum_voters or not servers:
        return
    message = "no record of the log or of its snapshots names the voters, and neither does controller.quorum.voters"
    fields: dict[str, object] = {} if len(servers) == 1 else {"gravity": Severity.DANGER, "broker": _JOINS}
    yield facts.diagnosis("VOTERS_UNKNOWN", filenames.FIRST_SNAPSHOT, message, **fields)
