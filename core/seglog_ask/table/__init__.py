"""Logs as a table: which partitions, segments and bytes a question needs, and their records as Arrow columns."""
