"""What the cleaner and its filter tell each other: a batch's flags, and the slots of counters, settings and ordinals.

The cleaner works out flags and settings and adds up counters; `filtering`, `rebuilding` and `superseding` go by them.
"""

from __future__ import annotations

# Flags of a batch.
DISCARD = 1  # none of its records is kept
RETAIN_EMPTY = 2  # without records it stays as a header
DELETE = 4  # DISCARD without RETAIN_EMPTY: not even read
STAMP_MARKER = 8  # a marker whose transaction has no batch left: gets a horizon
DIRTY = 16  # its last offset is at or after the first dirty offset, and its records have ordinals
EXPIRED = 32  # its tombstones are not protected any more
KEEP_ALL = 64  # the index passed over it as aborted: no ordinals, and nothing is dropped
DEAD = 128  # each of its records has a later one: not even read

# Flags that are looked at together.
FATE_MASK = DISCARD | DIRTY | KEEP_ALL  # DIRTY alone: the survivors' bits decide on every record
UNREAD = DELETE | DEAD
MAP_UNASKED = DIRTY | KEEP_ALL  # with one of them no record asks the map

# Counters (int64).
RECORDS_READ = 0
RECORDS_WRITTEN = 1
BATCHES_READ = 2
BATCHES_DISCARDED = 3  # DELETE
RECORDS_DISCARDED = 4  # of aborted transactions, and markers that went, also of unread batches
RECORDS_WITHOUT_KEY = 5
RECORDS_SUPERSEDED = 6  # with those without a key in batches that are dirty as a whole: OffsetMap.without_key
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
SLOTS = 2  # of the map; 0: no map
KEY_OVERHEAD = 3
HASH_MASK = 4
CLEAN_BITS = 5  # 1: `superseded` answers for records in front of the first dirty offset, not the map
COMPRESSED = 6  # 1: rebuilt batches come out as payloads, verbatim ones as nothing
LAST_KEPT = 7  # offset of a record that stays whatever the strategy says, or -1
IN_PLACE = 8  # 1: what is left of the only batch is written where it lies (`rebuilding.MOST_GROWTH`)
SETTINGS_SLOTS = 9

# Ordinals (int64): next among the records indexed, next among those in front of them.
DIRTY_ORDINAL = 0
CLEAN_ORDINAL = 1
