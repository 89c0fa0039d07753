"""How an operator gets a package that seglog does not always bring: an extra.

An extra is installed with pip, but in a bundle there is no pip. The bundle's builder writes a note beside this module:
JSON with `archive`, the name of the archive with more packages, and `extras`, the extras that this archive has.
"""

from __future__ import annotations

from pathlib import Path

# The note of a bundle. Nothing writes it but core/native/bundle.
NOTE = "_bundle.json"


def advice(extra: str, directory: Path | None = None) -> str:
    """Returns what to do for an extra that is not installed, as the end of a sentence.

    `directory` has the bundle's note; by default that of this package.
    """
    import json  # only a failure needs it

    folder = Path(__file__).parent if directory is None else directory
    try:
        note = json.loads((folder / NOTE).read_text())
    except FileNotFoundError:
        return f"pip install '.[{extra}]' in seglog's clone"
    if extra in note["extras"]:
        return f"unpack {note['archive']} over this bundle, which is seglog with its own Python and no pip"
    return f"no bundle has it: with Python 3.11 or later, pip install '.[{extra}]' in seglog's clone"
