"""What an ELF file needs, and a file without its sections."""

from __future__ import annotations

import ctypes
import shutil
import struct
from pathlib import Path

import numpy.linalg
import pytest

from native.bundle import elf
from tests.support.elf_files import shared_library


def test_libraries_and_versions_are_read(tmp_path: Path) -> None:
    path = tmp_path / "some.so"
    path.write_bytes(shared_library({"libc.so.6": ["GLIBC_2.9", "GLIBC_2.17"], "libstdc++.so.6": ["GLIBCXX_3.4.19"]}))
    needs = elf.needs(path)
    assert needs.libraries == ["libc.so.6", "libstdc++.so.6"]
    assert needs.versions == {"libc.so.6": {"GLIBC_2.9", "GLIBC_2.17"}, "libstdc++.so.6": {"GLIBCXX_3.4.19"}}
    assert (needs.newest("GLIBC"), needs.newest("GLIBCXX"), needs.newest("CXXABI")) == ((2, 17), (3, 4, 19), ())


def test_a_private_version_has_no_number(tmp_path: Path) -> None:
    path = tmp_path / "some.so"
    path.write_bytes(shared_library({"ld-linux-x86-64.so.2": ["GLIBC_PRIVATE", "GLIBC_2.3"]}))
    assert elf.needs(path).newest("GLIBC") == (2, 3)


def test_a_file_that_is_cut_off_is_an_error_wherever_it_is_cut(tmp_path: Path) -> None:
    whole, path = shared_library({"libc.so.6": ["GLIBC_2.17"]}), tmp_path / "cut.so"
    for size in range(0, len(whole), 7):
        path.write_bytes(whole[:size])
        with pytest.raises(elf.ElfError, match=r"cut\.so"):
            elf.needs(path)


def test_a_wheels_library_is_as_its_tag_says() -> None:
    library = next(Path(numpy.linalg.__file__).parent.glob("_umath_linalg*.so"))
    assert (2, 2, 5) <= elf.needs(library).newest("GLIBC") <= (2, 28)


def test_a_library_without_sections_still_loads(tmp_path: Path) -> None:
    copy = Path(shutil.copy(next(Path(numpy.linalg.__file__).parent.glob("lapack_lite*.so")), tmp_path))
    before, needed = copy.read_bytes(), elf.needs(copy)
    for library in Path(numpy.__file__).parent.with_name("numpy.libs").glob("*"):
        ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
    copy.write_bytes(elf.without_sections(before))
    after = copy.read_bytes()
    assert (len(after) < len(before), struct.unpack_from("<Q", after, 40)[0]) == (True, 0)
    assert elf.needs(copy) == needed
    assert elf.without_sections(after) == after
    assert ctypes.CDLL(str(copy)).PyInit_lapack_lite


def test_what_is_no_elf_file_stays_as_it_is() -> None:
    assert elf.without_sections(b"#!/bin/sh\n") == b"#!/bin/sh\n"
