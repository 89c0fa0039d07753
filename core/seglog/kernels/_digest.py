"""The digest of everything that a kernel's machine code comes from: the modules of this package, and `layout`.

The native library carries the digest of the sources it was built from. It is used beside these sources only.
"""

from __future__ import annotations

from pathlib import Path

try:
    from _blake2 import blake2b  # hashlib's own, without OpenSSL, which takes longer to load than all kernels
except ImportError:
    from hashlib import blake2b


def sources_digest() -> str:
    """32 hexadecimal digits over the name and the bytes of every source, in the order of names."""
    package = Path(__file__).parent
    digest = blake2b(digest_size=16)
    for path in (*sorted(package.rglob("*.py")), package.parent / "layout.py"):
        source = path.read_bytes()
        digest.update(f"{path.relative_to(package.parent)}\0{len(source)}\0".encode())
        digest.update(source)
    return digest.hexdigest()
