"""Runs that change logs: their journal, their quarantine, and undo."""
