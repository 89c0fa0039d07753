"""A read-only Kafka endpoint over the partitions in log directories: real consumers read a dead broker's disk.

Any client of Kafka's protocol can read; whole batches go from the segment files to the socket. The endpoint creates,
locks and changes nothing on disk, and refuses writes with an error code. Needs the extra `serve` (`kio`).
"""
