"""Figures and comparisons: statistics, sizing, differences between copies, an overview."""
