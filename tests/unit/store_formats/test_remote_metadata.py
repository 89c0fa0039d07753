"""Records of `__remote_log_metadata` as kafka-dump-log prints them: the texts are its own, of Kafka 4.3.0."""

from __future__ import annotations

import pytest

from seglog.format.wire import WireError
from seglog_stores.formats.remote_metadata import decode_remote_metadata, remote_metadata_text

PARTITION = "0274000102030405060708090a0b0c0d0e0f0000000300"
SEGMENT = PARTITION + "101112131415161718191a1b1c1d1e1f00"
TIMES = "0000018bcfe568000000018bcfe56be8"
OFFSETS = "000000000000006400000000000000c7"
ADDED = f"010000{SEGMENT}{OFFSETS}00000001{TIMES}020000000500000000000000640000001000000001000101"
UPDATED = f"010100{SEGMENT}000000010000018bcfe56fd006010002b8170100"
DELETED = f"010200{PARTITION}000000010000018bcfe56fd00200"
SNAPSHOT = (
    f"010300101112131415161718191a1b1c1d1e1f000000000000006400000000000000c700000001{TIMES}"
    "03000000070000000000000080000000000500000000000000640000001000000300"
)

SEGMENT_TEXT = "RemoteLogSegmentId{topicIdPartition=AAECAwQFBgcICQoLDA0ODw:t-3, id=EBESExQVFhcYGRobHB0eHw}"
TEXTS = {
    ADDED: f"RemoteLogSegmentMetadata{{remoteLogSegmentId={SEGMENT_TEXT}, startOffset=100, endOffset=199, brokerId=1,"
    " maxTimestampMs=1700000000000, eventTimestampMs=1700000001000, segmentLeaderEpochs={5=100},"
    " segmentSizeInBytes=4096, customMetadata=Optional.empty, state=COPY_SEGMENT_STARTED, txnIdxEmpty=true}",
    UPDATED: f"RemoteLogSegmentMetadataUpdate{{remoteLogSegmentId={SEGMENT_TEXT}, customMetadata=Optional["
    "CustomMetadata{5 bytes}], state=COPY_SEGMENT_FINISHED, eventTimestampMs=1700000002000, brokerId=1}",
    DELETED: "RemotePartitionDeleteMetadata{topicPartition=AAECAwQFBgcICQoLDA0ODw:t-3, state=DELETE_PARTITION_FINISHED,"
    " eventTimestampMs=1700000002000, brokerId=1}",
    SNAPSHOT: "RemoteLogSegmentMetadataSnapshot{segmentId=EBESExQVFhcYGRobHB0eHw, startOffset=100, endOffset=199,"
    " maxTimestampMs=1700000000000, segmentLeaderEpochs={5=100, 7=128}, segmentSizeInBytes=4096,"
    " customMetadata=Optional.empty, state=DELETE_SEGMENT_FINISHED, txnIdxEmpty=false}",
}
ERRORS = {
    "": "Error while reading frame version",
    "00": "Could not deserialize metadata record with frame version 0. Note that upgrades from the preview release of"
    " KRaft in 2.8 to newer versions are not supported.",
    "02": "Could not deserialize metadata record due to unknown frame version 2(only frame version 1 is supported)",
    "80808001": "Value for frame version was too large.",
    "0104": "Error while reading version",
    "010400": "org.apache.kafka.common.errors.UnsupportedVersionException: Unknown metadata id 4",
    ADDED[:-2]: "Failed to deserialize record with type 0",
    ADDED + "00": "Found 1 byte(s) of garbage after 0",
    ADDED.replace("0000000000000064000000", "00000000000000ff000000", 1): "Unexpected end offset = 199. EndOffset for a"
    " remote segment cannot be less than startOffset = 255",
    UPDATED[:-4] + "0900": "state can not be null",
    DELETED[:-4] + "0700": "null",
}


@pytest.mark.parametrize(("value", "text"), TEXTS.items())
def test_every_record_has_kafkas_text(value: str, text: str) -> None:
    assert remote_metadata_text(bytes.fromhex(value), 5) == text


@pytest.mark.parametrize(("value", "text"), ERRORS.items())
def test_what_cannot_be_read_has_kafkas_text(value: str, text: str) -> None:
    assert remote_metadata_text(bytes.fromhex(value), 5) == f"Error at offset 5, skipping. {text}"


def test_a_record_without_a_value_is_an_error() -> None:
    assert remote_metadata_text(None, 5).startswith("Error at offset 5, skipping. Cannot invoke")
    with pytest.raises(WireError, match="no value"):
        decode_remote_metadata(None)


def test_custom_metadata_and_epochs_are_values() -> None:
    assert decode_remote_metadata(bytes.fromhex(UPDATED)).data["customMetadata"] == bytes.fromhex("010002b817")
    epochs = decode_remote_metadata(bytes.fromhex(SNAPSHOT)).data["segmentLeaderEpochs"]
    assert epochs == [{"leaderEpoch": 7, "offset": 128}, {"leaderEpoch": 5, "offset": 100}]
