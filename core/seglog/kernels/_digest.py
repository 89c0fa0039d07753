"""The digest of everything that a kernel's machine code comes from: the modules of this package, and `layout`.

The native library carries the digest of the sources it was built from. It is used beside these sources only.
"""

from __future__ import annotations

import hashlib
from pathlib import Path


def sources_digest() -> str:
    """32 hexadecimal digits over the name and the bytes of every source, in the order of names."""
    package = Path(__file__).parent
    digest = hashlib.blake2b(digest_size=16)
    for path in (*sorted(package.rglob("*.py")), package.parent / "layout.py"):
        source = path.read_bytes()
        digest.update(f"{path.relative_to(package.parent)}\0{len(source)}\0".encode())
        digest.update(source)
    return digest.hexdigest()
