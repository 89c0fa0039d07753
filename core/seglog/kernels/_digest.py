"""The digest of the kernels' sources: the modules of this package, and `layout` and `model`, whose numbers they use.

The native library carries the digest of the sources it was built from, and is used only with those sources.
"""

from __future__ import annotations

from pathlib import Path

try:
    from _blake2 import blake2b  # hashlib's own, without OpenSSL, which takes longer to load than all kernels together
except ImportError:
    from hashlib import blake2b


def sources_digest() -> str:
    """Returns 32 hexadecimal digits over the name and bytes of every source file, in name order."""
    package = Path(__file__).parent
    digest = blake2b(digest_size=16)
    others = (package.parent / name for name in ("layout.py", "model.py"))
    for path in (*sorted(package.rglob("*.py")), *others):
        source = path.read_bytes()
        digest.update(f"{path.relative_to(package.parent)}\0{len(source)}\0".encode())
        digest.update(source)
    return digest.hexdigest()
