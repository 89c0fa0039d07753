"""Figures and comparisons: statistics, sizing, copies side by side, an overview."""
