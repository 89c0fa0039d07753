"""The bundle as it was built: its size, what it needs, and what it does where little is allowed."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from native.bundle import elf, tree
from seglog_rescue.serve import protocol
from tests.support.bundles import TOP, Jail, made, needs_mounts, unpacked
from tests.support.command_line import clean_logs, process
from tests.support.other_users import needs_root
from tests.support.packages import INSTALLERS
from tests.support.raw_client import RawClient
from tests.support.serving import address_of

pytestmark = pytest.mark.slow

BASE, EXTRAS = f"{TOP}.tar.xz", f"{TOP.replace('seglog-', 'seglog-extras-', 1)}.tar.xz"
PACKAGES = ("seglog", "seglog-extras")
COUNT = "select count(distinct topic) as n from records"
# Commands that change nothing: the bundle prints what this tree's seglog prints.
READING = [
    ("--version",),
    ("verify", "logs"),
    ("verify", "--json", "logs"),
    ("dump", "--records", "--limit", "3", "logs/orders-zstd-0"),
    ("read", "--limit", "3", "logs/orders-lz4-0"),
    ("ls", "logs"),
    ("stats", "logs/customers-0"),
    ("doctor", "logs"),
    ("groups", "logs"),
    ("txn", "logs/payments-0"),
    ("clean", "--dry-run", "logs/customers-uncleaned-0"),
    ("retain", "--dry-run", "--retention-ms", "1s", "logs/orders-none-0"),
    ("recover", "--dry-run", "--recovery-point", "0", "logs/orders-snappy-0"),
    ("help", "dead-cluster"),
]
CHANGING = [
    ("clean", "logs/customers-uncleaned-0"),
    ("retain", "--retention-ms", "1s", "logs/orders-none-0"),
    ("recover", "--recovery-point", "0", "logs/orders-snappy-0"),
]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The base, unpacked below a directory whose name has a blank."""
    return unpacked([BASE], tmp_path_factory.mktemp("a place"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The base with the extras over it."""
    return unpacked([BASE, EXTRAS], tmp_path_factory.mktemp("whole"))


@pytest.fixture
def jail(base: Path, tmp_path: Path) -> Jail:
    needs_mounts()
    logs_in(tmp_path)
    return Jail(base, tmp_path)


def logs_in(directory: Path) -> Path:
    """A log directory of real Kafka, as `logs` in a directory."""
    return clean_logs(directory).rename(directory / "logs")


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_it_is_as_small_as_promised(base: Path) -> None:
    assert made(BASE).stat().st_size <= 32e6
    assert sum(path.stat().st_size for path in base.rglob("*") if path.is_file()) <= 100e6


def test_the_loader_asks_for_the_same_versions_of_glibc_as_the_builder_read(base: Path, whole: Path) -> None:
    """ldd is the system's own loader, which says what it looks for in each library."""
    programs = list(tree.elf_files(whole))
    assert len(programs) > len(list(tree.elf_files(base))) > 10
    for path in programs:
        needs = elf.needs(path)
        if not needs.libraries:
            assert path.name in ("seglog", "_native.abi3.so")  # a static program; kernels call nothing
            continue
        text = subprocess.run(["ldd", "-v", path], check=True, capture_output=True, text=True).stdout
        own = text.partition(f"\t{path}:\n")[2].split("\n\t/")[0]
        said = {tuple(map(int, version.split("."))) for version in re.findall(r"\(GLIBC_([\d.]+)\)", own)}
        is_base = (base / path.relative_to(whole)).exists()
        assert needs.newest("GLIBC") == max(said, default=()) <= tree.OLDEST_GLIBC["base" if is_base else "extras"], (
            path
        )


@pytest.mark.parametrize("arguments", READING, ids=" ".join)
def test_it_says_what_the_installed_seglog_says(jail: Jail, arguments: tuple[str, ...]) -> None:
    done, expected = jail.run(*arguments), process(*arguments, directory=jail.work, variables={"COLUMNS": "80"})
    assert (done.returncode, done.stderr) == (expected.returncode, expected.stderr.decode())
    assert done.stdout == expected.stdout.decode() != ""


@pytest.mark.parametrize("arguments", CHANGING, ids=" ".join)
def test_it_writes_what_the_installed_seglog_writes(jail: Jail, arguments: tuple[str, ...], tmp_path: Path) -> None:
    other = tmp_path / "other"
    logs_in(other)
    done, expected = jail.run(*arguments), process(*arguments, directory=other)
    assert (done.returncode, expected.returncode) == (0, 0), done.stderr
    assert files(jail.work / "logs") == files(other / "logs")


def test_it_is_compiled_and_writes_nothing_into_itself(base: Path, jail: Jail) -> None:
    before = files(base)
    done = jail.run("--version", "-v")
    assert "kernels: native" in done.stdout, done.stdout
    assert files(base) == before


@pytest.mark.parametrize(
    "arguments", [("serve", "logs"), ("verify", "s3://b/x"), ("sql", "select 1", "logs")], ids=" ".join
)
def test_an_extra_that_is_missing_names_the_second_archive(jail: Jail, arguments: tuple[str, ...]) -> None:
    done = jail.run(*arguments)
    assert done.returncode != 0
    assert f"unpack {EXTRAS} over this bundle" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_extra_that_no_archive_has_is_said_so(jail: Jail) -> None:
    assert "no bundle has it" in jail.run("spark", "verify", "logs").stderr


def test_the_extras_work_unpacked_over_it(whole: Path, jail: Jail) -> None:
    full = Jail(whole, jail.work)
    rows = full.run("sql", "--csv", COUNT, "logs/customers-0")
    assert (rows.returncode, rows.stdout) == (0, "n\n1\n"), rows.stderr
    assert full.run("export", "logs/customers-0", "-o", "/tmp/x.parquet").returncode == 0
    refused = full.run("verify", "s3://b/x")
    assert "unpack" not in refused.stderr and "Traceback" not in refused.stderr


def test_it_serves(whole: Path, jail: Jail) -> None:
    command = Jail(whole, jail.work).command("serve", "--json", "--listen", "127.0.0.1:0", "logs")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as server:
        assert server.stdout is not None and server.stderr is not None
        line = server.stdout.readline()
        try:
            assert line, server.stderr.read()
            with RawClient(address_of(json.loads(line))) as client:
                names = {topic.name for topic in client.ask(protocol.METADATA, 12, {"topics": None}).topics}
        finally:
            server.terminate()
    assert {"orders-none", "customers"} <= names


@needs_root
@pytest.mark.parametrize("kind", ["deb", "rpm"])
def test_packages_are_the_archives_installed_and_leave_nothing(
    kind: str, base: Path, whole: Path, tmp_path: Path
) -> None:
    names = [
        {"deb": f"{name}_{tree.version()}_amd64.deb", "rpm": f"{name}-{tree.version()}-1.x86_64.rpm"}
        for name in PACKAGES
    ]
    root = tmp_path / "root"
    installer = INSTALLERS[kind](root)
    for package, archive in zip(names, (base, whole), strict=True):
        installer.install(made(package[kind]))
        assert laid_out(root) == files(archive)
    program = str((root / "usr/bin/seglog").resolve())
    asked = [program, "sql", "--csv", COUNT, str(logs_in(tmp_path) / "customers-0")]
    assert subprocess.run(asked, env={}, capture_output=True, check=True).stdout == b"n\r\n1\r\n"
    for name in reversed(PACKAGES):
        installer.remove(name)
        assert laid_out(root) == (files(base) if name == "seglog-extras" else {})
    assert not (root / "usr/bin/seglog").is_symlink()


def laid_out(root: Path) -> dict[str, bytes]:
    """The files that a package installed, by their names in the archive."""
    top, share = root / "usr/lib/seglog", root / "usr/share"
    return files(top) | {f"share/{name}": data for name, data in files(share).items()}
