"""Renders the contents of a log directory as rows and lines."""
