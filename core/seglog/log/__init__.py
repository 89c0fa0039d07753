"""One partition, and one log directory."""
