"""A read-only Kafka endpoint over the partitions in log directories: real consumers read a dead broker's disk.

Who speaks Kafka's protocol reads what lies there: whole batches go from the segment files to the socket. Nothing on
disk is created, locked or changed; what would write is refused by an error code. Needs the extra `serve` (`kio`).
"""
