"""Configuration: Kafka's keys, where a value comes from, and which of several values counts."""
