"""The platforms that the library is built for.

One module of intermediate code serves all of them: every target has 64-bit little-endian words, and kernels call only
memmove and memset. x86-64 means the second level of its ABI supplement, with SSE4.2 and POPCNT (2009); the third level,
with AVX2, measured no faster. ARM means ARMv8 with the instructions for CRC-32C.
"""

from __future__ import annotations

import platform
import sys
from dataclasses import dataclass

# The function that lowered kernels call for the CRC-32C of a word; each target defines it.
CRC32C_HELPER = "seglog.crc32c_word"
# Prefix of a kernel's name, for its function in the object file.
ENTRY_PREFIX = "seglog_"

_X86_CRC32C = f"""
declare i64 @llvm.x86.sse42.crc32.64.64(i64, i64)
define i64 @{CRC32C_HELPER}(i64 %crc, i64 %word) alwaysinline {{
  %result = call i64 @llvm.x86.sse42.crc32.64.64(i64 %crc, i64 %word)
  ret i64 %result
}}
"""
_ARM_CRC32C = f"""
declare i32 @llvm.aarch64.crc32cx(i32, i64)
define i64 @{CRC32C_HELPER}(i64 %crc, i64 %word) alwaysinline {{
  %low = trunc i64 %crc to i32
  %next = call i32 @llvm.aarch64.crc32cx(i32 %low, i64 %word)
  %result = zext i32 %next to i64
  ret i64 %result
}}
"""


@dataclass(frozen=True)
class Target:
    """A platform: `tag` is that of the wheel, `zig` Zig's name with the oldest system that the library must run on."""

    name: str
    tag: str
    zig: str
    triple: str
    processor: str
    features: str
    crc32c: str
    code_model: str = "small"
    link: tuple[str, ...] = ("-nostdlib",)  # the C library is the process's own: glibc's or musl's


TARGETS = (
    Target(
        name="x86_64-linux",
        tag="cp311-abi3-manylinux_2_17_x86_64",
        zig="x86_64-linux-gnu.2.17",
        triple="x86_64-unknown-linux-gnu",
        processor="x86-64-v2",
        features="",
        crc32c=_X86_CRC32C,
    ),
    Target(
        name="aarch64-linux",
        tag="cp311-abi3-manylinux_2_17_aarch64",
        zig="aarch64-linux-gnu.2.17",
        triple="aarch64-unknown-linux-gnu",
        processor="generic",
        features="+crc",
        crc32c=_ARM_CRC32C,
    ),
    Target(
        name="arm64-macos",
        tag="cp311-abi3-macosx_11_0_arm64",
        zig="aarch64-macos.11.0",
        triple="arm64-apple-macosx11.0.0",
        processor="apple-m1",
        features="",
        crc32c=_ARM_CRC32C,
        code_model="default",
        link=("-Wl,-undefined,dynamic_lookup",),
    ),
)


def this_platform() -> Target | None:
    """Returns the target for this platform, or None."""
    system = {"linux": "linux", "darwin": "macos"}.get(sys.platform)
    wanted = f"{platform.machine().lower()}-{system}"
    return next((target for target in TARGETS if target.name == wanted), None)


def named(name: str) -> Target:
    """Returns the target of that name. Raises ValueError if there is none."""
    for target in TARGETS:
        if target.name == name:
            return target
    raise ValueError(f"{name} is not one of the targets {', '.join(target.name for target in TARGETS)}")
