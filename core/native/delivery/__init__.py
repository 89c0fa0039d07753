"""How seglog comes to a machine: the kept libraries of a build, the files of a release.

`library_cache` keeps compiled libraries between builds, and `release` makes all files of a release. Neither changes the
bytes of a library (`native.building`).
"""
