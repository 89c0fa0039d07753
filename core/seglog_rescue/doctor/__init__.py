"""Predicts whether a broker starts on log directories, and what it does to their data."""
