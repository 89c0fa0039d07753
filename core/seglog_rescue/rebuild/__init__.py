"""Rebuilds a cluster's lost metadata from its log directories and the metadata that can still be read."""
