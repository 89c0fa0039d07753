"""The options and the text of Kafka's own dump tool."""
