"""Kafka's configuration keys, the sources of their values, and which source decides."""
