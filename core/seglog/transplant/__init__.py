"""Partitions of a dead cluster, put into the log directory of a stopped broker of another one."""
