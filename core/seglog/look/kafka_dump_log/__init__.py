"""The options and the text of kafka-dump-log."""
