"""Names shared by the cleaner and its filter: flags of a batch, and slots of the counters, settings and ordinals.

The cleaner computes flags and settings and adds up counters; `filtering`, `rebuilding` and `superseding` use them.
"""

from __future__ import annotations

# Flags of a batch.
DISCARD = 1  # none of its records is kept
RETAIN_EMPTY = 2  # if no record is kept, its header stays
DELETE = 4  # DISCARD without RETAIN_EMPTY: skipped unread
STAMP_MARKER = 8  # a marker whose transaction has no batch left: gets a delete horizon
DIRTY = 16  # its last offset is at or after the first dirty offset, and its records have ordinals
EXPIRED = 32  # its tombstones are no longer protected
KEEP_ALL = 64  # skipped by the index as aborted: it has no ordinals, and all its records are kept
DEAD = 128  # each of its records is superseded: skipped unread

# Combinations of flags.
FATE_MASK = DISCARD | DIRTY | KEEP_ALL  # if only DIRTY is set, the survivors' bits decide on every record
UNREAD = DELETE | DEAD
MAP_UNASKED = DIRTY | KEEP_ALL  # with either, no record is looked up in the map

# Counters (int64).
RECORDS_READ = 0
RECORDS_WRITTEN = 1
BATCHES_READ = 2
BATCHES_DISCARDED = 3  # DELETE
RECORDS_DISCARDED = 4  # of aborted transactions, and dropped markers; unread batches included
RECORDS_WITHOUT_KEY = 5
RECORDS_SUPERSEDED = 6  # includes keyless records of batches that are dirty as a whole (OffsetMap.without_key)
TOMBSTONES_EXPIRED = 7
TOMBSTONES_KEPT = 8
BATCHES_VERBATIM = 9
BATCHES_REBUILT = 10
BATCHES_EMPTIED = 11
HORIZONS_SET = 12
CONTROL_RECORDS_KEPT = 13
COUNTER_SLOTS = 14

# Settings (int64).
FIRST_DIRTY = 0
NEW_HORIZON = 1  # now + delete.retention.ms
SLOTS = 2  # slots of the map; 0: no map
KEY_OVERHEAD = 3
HASH_MASK = 4
CLEAN_BITS = 5  # 1: `superseded` decides on records before the first dirty offset, not the map
COMPRESSED = 6  # 1: rebuilt batches are output as payloads, verbatim ones not at all
LAST_KEPT = 7  # offset of a record that stays whatever the strategy says, or -1
IN_PLACE = 8  # 1: the rest of the only batch is written over the batch itself (`rebuilding.MOST_GROWTH`)
SETTINGS_SLOTS = 9

# Ordinals (int64): the next among the indexed records, and the next among the records before them.
DIRTY_ORDINAL = 0
CLEAN_ORDINAL = 1
