"""Repair: a plan of changes that keeps every good batch, and carrying it out."""
