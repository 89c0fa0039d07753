"""Segment files read in order, strictly or past damage, and what a partition directory holds."""
