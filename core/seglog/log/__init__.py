"""One partition and one log directory: Kafka's own classes."""
