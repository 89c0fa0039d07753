"""Verifies logs: every finding, from headers to meaning."""
