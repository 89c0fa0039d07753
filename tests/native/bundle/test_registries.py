"""Fetching sources: hashes, and what is said where there is no client."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from native.building import BuildError
from native.bundle import registries
from native.bundle.registries import Source


def source(data: bytes) -> Source:
    return Source("zlib", "1", "zlib_1.orig.tar.gz", hashlib.sha256(data).hexdigest())


def test_every_source_is_pinned() -> None:
    pins = registries.sources()
    assert set(pins) == {"cpython", "zlib", "libffi", "openssl"}
    assert all(len(pin.sha256) == 64 and pin.version in pin.file for pin in pins.values())
    assert pins["cpython"].package == "python{}.{}".format(*registries.PYTHON)


def test_a_file_put_there_by_hand_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    (tmp_path / "zlib_1.orig.tar.gz").write_bytes(b"right")
    registries.fetch_sources([source(b"right")], tmp_path)


def test_without_apt_the_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    (tmp_path / "zlib_1.orig.tar.gz").write_bytes(b"wrong")
    with pytest.raises(
        BuildError, match=r"put these files of \w+ into .*: zlib_1\.orig\.tar\.gz \(SHA-256 [0-9a-f]{64}\)"
    ):
        registries.fetch_sources([source(b"right")], tmp_path)


def test_a_tool_that_fails_is_named_with_its_output() -> None:
    with pytest.raises(BuildError, match=r"(?s)sh -c .* failed \(3\).*no such thing"):
        registries.run(["sh", "-c", "echo no such thing >&2; exit 3"])
