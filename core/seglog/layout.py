"""The only definition of every byte layout: offsets, sizes, masks and the dtypes of the column tables.

Field offsets serve kernels, which read bytes, and `struct`; the packed dtypes serve bulk reads of index files. Numbers
on disk are big-endian. `core/FORMAT.md` draws the same layouts. Kafka: DefaultRecordBatch, LegacyRecord, OffsetIndex,
TimeIndex, AbortedTxn, ProducerStateManager.
"""

from __future__ import annotations

import numpy as np

# --- any log entry, every magic -------------------------------------------------------------------------
OFFSET_OFFSET = 0
SIZE_OFFSET = 8
LOG_OVERHEAD = 12  # offset and size field; an entry takes these and as many bytes as its size field says
MAGIC_OFFSET = 16
HEADER_UP_TO_MAGIC = 17  # the bytes that a reader needs to know the format of the entry

# --- record batch, magic 2 ------------------------------------------------------------------------------
BASE_OFFSET_OFFSET = 0
LENGTH_OFFSET = 8
PARTITION_LEADER_EPOCH_OFFSET = 12
CRC_OFFSET = 17
ATTRIBUTES_OFFSET = 21  # the CRC-32C covers from here to the end of the batch
ATTRIBUTES_LOW_OFFSET = 22  # the lower of the two bytes, which holds all attributes in use
LAST_OFFSET_DELTA_OFFSET = 23
BASE_TIMESTAMP_OFFSET = 27
MAX_TIMESTAMP_OFFSET = 35
PRODUCER_ID_OFFSET = 43
PRODUCER_EPOCH_OFFSET = 51
BASE_SEQUENCE_OFFSET = 53
RECORDS_COUNT_OFFSET = 57
RECORD_BATCH_OVERHEAD = 61

# Smallest value of the size field in any magic (Kafka: LegacyRecord.RECORD_OVERHEAD_V0).
LEAST_ENTRY_SIZE = 14

# --- attributes, all magics (bit 3 from magic 1 on, bits 4 to 6 from magic 2 on) ---------------------------
CODEC_MASK = 0x07
LZ4_CODEC = 3
ZSTD_CODEC = 4
LAST_CODEC = ZSTD_CODEC  # of a batch
LAST_MESSAGE_CODEC = LZ4_CODEC  # of a message
TIMESTAMP_TYPE_MASK = 0x08
TRANSACTIONAL_MASK = 0x10
CONTROL_MASK = 0x20
DELETE_HORIZON_MASK = 0x40

# --- record of magic 2: length, attributes, timestamp delta, offset delta, key, value, headers -------------
RECORD_ATTRIBUTES_BYTES = 1  # unused; all other fields before the key are varints

# --- message, magic 0 and 1 (positions count from the start of the entry, offset and size included) -------
MESSAGE_CRC_OFFSET = 12
MESSAGE_MAGIC_OFFSET = 16  # the CRC-32 covers from here to the end of the message
MESSAGE_ATTRIBUTES_OFFSET = 17
MESSAGE_TIMESTAMP_OFFSET = 18  # magic 1
MESSAGE_V0_KEY_SIZE_OFFSET = 18
MESSAGE_V1_KEY_SIZE_OFFSET = 26
MESSAGE_V0_OVERHEAD = 14  # crc, magic, attributes, key size, value size
MESSAGE_V1_OVERHEAD = 22
MESSAGE_SIZE_BYTES = 4  # the size before a key, and before a value

# --- Kafka 0.7 (`.kafka` files; an offset is a byte position) ----------------------------------------------
MESSAGE_07_MAGIC_0_HEADER = 5  # magic, crc
MESSAGE_07_MAGIC_1_HEADER = 6  # magic, attributes, crc
MESSAGE_07_CODEC_MASK = 0x03

# --- indexes ----------------------------------------------------------------------------------------------
OFFSET_INDEX_ENTRY = np.dtype([("relative_offset", ">i4"), ("position", ">i4")])
TIME_INDEX_ENTRY = np.dtype([("timestamp", ">i8"), ("relative_offset", ">i4")])
TRANSACTION_INDEX_ENTRY = np.dtype(
    [
        ("version", ">i2"),
        ("producer_id", ">i8"),
        ("first_offset", ">i8"),
        ("last_offset", ">i8"),
        ("last_stable_offset", ">i8"),
    ]
)

# --- producer snapshot -------------------------------------------------------------------------------------
SNAPSHOT_VERSION = 1
SNAPSHOT_CRC_OFFSET = 2
SNAPSHOT_COUNT_OFFSET = 6  # the CRC-32C covers from here to the end of the file
SNAPSHOT_HEADER = 10
SNAPSHOT_ENTRY = np.dtype(
    [
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("last_sequence", ">i4"),
        ("last_offset", ">i8"),
        ("offset_delta", ">i4"),
        ("timestamp", ">i8"),
        ("coordinator_epoch", ">i4"),
        ("current_txn_first_offset", ">i8"),
    ]
)

# --- limits ------------------------------------------------------------------------------------------------
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
MAX_VARINT_BYTES = 5
MAX_VARLONG_BYTES = 10

COUNT_UNKNOWN = -1  # number of records in a legacy entry, whose header does not tell

# --- column tables (native byte order: kernels write them, numpy reads them) --------------------------------
# One row per batch, or per legacy log entry (`magic` 0 or 1: one message or one compressed wrapper).
#   position        byte position of the entry in its file
#   size            of the whole entry, including LOG_OVERHEAD
#   base_offset     legacy: equals last_offset, because only decompression gives the first one
#   last_offset     base_offset + last offset delta
#   count           number of records by the header; legacy: COUNT_UNKNOWN
#   base_timestamp  the delete horizon if that attribute bit is set; magic 0: NO_TIMESTAMP
#   attributes      the low byte, unsigned
#   crc             unsigned
BATCH = np.dtype(
    [
        ("position", np.int64),
        ("base_offset", np.int64),
        ("last_offset", np.int64),
        ("base_timestamp", np.int64),
        ("max_timestamp", np.int64),
        ("producer_id", np.int64),
        ("crc", np.int64),
        ("size", np.int32),
        ("count", np.int32),
        ("leader_epoch", np.int32),
        ("base_sequence", np.int32),
        ("producer_epoch", np.int16),
        ("attributes", np.uint8),
        ("magic", np.int8),
    ],
    align=True,
)

# One row per record. Positions are byte positions in the arena that comes with the rows.
#   position, size        the whole record (v2: from its length varint; legacy: the inner entry)
#   key_size, value_size  -1 for null
#   headers_position      of the first header's key length (v2)
#   header_count          0 for legacy
#   batch                 row of its batch in the batch table
#   sequence              NO_SEQUENCE without a producer
RECORD = np.dtype(
    [
        ("offset", np.int64),
        ("timestamp", np.int64),
        ("position", np.int32),
        ("size", np.int32),
        ("key_position", np.int32),
        ("key_size", np.int32),
        ("value_position", np.int32),
        ("value_size", np.int32),
        ("headers_position", np.int32),
        ("header_count", np.int32),
        ("batch", np.int32),
        ("sequence", np.int32),
    ],
    align=True,
)

assert OFFSET_INDEX_ENTRY.itemsize == 8
assert TIME_INDEX_ENTRY.itemsize == 12
assert TRANSACTION_INDEX_ENTRY.itemsize == 34
assert SNAPSHOT_ENTRY.itemsize == 46
assert RECORDS_COUNT_OFFSET + 4 == RECORD_BATCH_OVERHEAD
assert BATCH.itemsize == 80
assert RECORD.itemsize == 56
