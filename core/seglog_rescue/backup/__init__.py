"""Backups: snapshots of log directories in a repository, and what comes back from them."""
