"""Verification: every finding, from headers to meaning."""
