"""Kafka's own topics that a transplant leaves, and why. Nothing heavy is imported: `doctor` asks here, too."""

from __future__ import annotations

from seglog.format.coordinator import TRANSACTION_TOPIC
from seglog.format.filenames import CLUSTER_METADATA_TOPIC
from seglog_rescue.groups.coordinator_replay import SHARE_TOPIC

NOT_TAKEN = {
    TRANSACTION_TOPIC: (
        "the new cluster hands out the producer ids in it again; transactional producers get new ids when they start,"
        " and the transplant ends open transactions in the data"
    ),
    SHARE_TOPIC: "it names topics by their old ids; share groups begin anew",
    "__remote_log_metadata": "it names topics by their old ids",
    CLUSTER_METADATA_TOPIC: "it is the old cluster's own",
}
