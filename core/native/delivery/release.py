"""Makes all files of a release: `python -m native --release DIRECTORY`.

A wheel for each platform, the source distribution, the bundle of this platform, and SHA256SUMS over all of them, which
`sha256sum -c SHA256SUMS` checks. The same commit gives the same bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path

from native.building import BuildError

SUMS = "SHA256SUMS"


def make(place: Path, parts: Iterable[Callable[[Path], object]], say: Callable[[str], None]) -> None:
    """Writes a release to the directory `place`, made by `parts`, each of which writes files there.

    Raises BuildError if the directory has files already: the checksums are those of one release, and of all its files.
    """
    place.mkdir(parents=True, exist_ok=True)
    if any(place.iterdir()):
        raise BuildError(f"{place} is not empty: a release needs a directory of its own")
    for part in parts:
        part(place)
    (place / SUMS).write_text(checksums(place))
    for path in sorted(place.iterdir()):
        say(f"{path}: {path.stat().st_size / 1e6:.1f} MB")


def checksums(place: Path) -> str:
    """Returns a line for each file in the directory, in the form of `sha256sum`, in the order of their names."""
    files = sorted(path for path in place.iterdir() if path.is_file() and path.name != SUMS)
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)
