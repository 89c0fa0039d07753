"""Log directories that are broken, in one vocabulary.

A *base* is a sound directory, a *wound* changes one thing in it, a *state* is a base with its wounds, known by name or
seed.
"""
