"""Makes the bundle: seglog with a Python of its own, in one directory that runs on Linux with glibc 2.17 or later.

| module | owns |
|---|---|
| `registries` | fetching what the pins name: sources from Debian's archive, wheels from PyPI, each with its hash |
| `interpreter` | CPython from source, compiled by Zig for an old glibc |
| `tree` | the directory: what goes in, what stays out |
| `elf` | what an ELF file needs of the system, and how it becomes smaller |
| `archives` | the same tree as the same bytes, .deb and .rpm |
| `making` | all of it in order |
"""
