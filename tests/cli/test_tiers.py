"""`seglog tiers`: the contents of tiers, what is missing, and the effect of the metadata."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

import pytest

from seglog.storage.filesystem import FileStatus
from seglog.storage.local import LocalFileSystem
from tests.support.command_line import json_lines, run
from tests.support.fixtures import CLEAN, clean_partition
from tests.support.log_files import write_segment
from tests.support.naive import NaiveRecord, batch_v2
from tests.support.tiers import (
    custom_metadata,
    remote_record,
    tier_segments,
    write_aiven,
    write_local_tiered,
    write_pinterest,
)

NAME = "customers-uncleaned-0"
GENUINE = CLEAN / NAME
SEGMENTS = tier_segments(GENUINE)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_aiven(tmp_path / "tier", "customers-uncleaned", 0, SEGMENTS)
    return tmp_path / "tier"


def metadata_of(tmp_path: Path, *records: bytes) -> Path:
    batches = [batch_v2(i, [NaiveRecord(0, 0, None, value)]) for i, value in enumerate(records)]
    write_segment(tmp_path / "brokers" / "__remote_log_metadata-0", 0, *batches)
    return tmp_path / "brokers"


def test_a_whole_tier_is_a_table_of_its_partitions(root: Path) -> None:
    result = run("tiers", "--long", root)
    size = sum(len(one.log) for one in SEGMENTS)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[1].split() == [NAME, "Aiven", "4", "0", "2119", str(size), "-", "0"]
    assert [line.split()[1:3] for line in result.stdout.splitlines()[4:]] == [
        ["0", "399"], ["400", "799"], ["800", "1199"], ["1200", "2119"],
    ]  # fmt: skip


def test_the_local_part_counts_from_its_first_segment_on(root: Path, tmp_path: Path) -> None:
    local = clean_partition(NAME, tmp_path / "logs")
    for path in (*local.glob(f"{0:020d}.*"), *local.glob(f"{400:020d}.*")):
        path.unlink()
    rows = json_lines(run("tiers", "--json", "--local", local.parent, root))
    assert (rows[0]["segments"], rows[0]["last_offset"], rows[0]["local_start_offset"]) == (2, 799, 800)
    assert [row["where"] for row in rows if row["type"] == "tier_segment"] == ["tier", "tier", "local", "local"]


def test_an_unfinished_run_in_the_log_directory_of_the_local_part_is_told(root: Path, tmp_path: Path) -> None:
    """As for a log that is read alone: its files may be incomplete."""
    local = clean_partition(NAME, tmp_path / "logs").parent
    target = tmp_path / "restored" / NAME
    reading = [("ls",), ("tiers",), ("read", "--limit", "1"), ("dump",), ("verify", "--level", "header")]
    shown = next(root.glob("*/0"))
    for words in reading:
        assert "a run of seglog" not in run(*words, "--local", local, shown).output, words
    (local / ".seglog-run").write_text("/somewhere\n")
    for words in reading:
        done = run(*words, "--local", local, shown)
        assert done.output.count(f"{local}: a run of seglog was cut short here") == 1, (words, done.output)
    (local / "seglog-run-unfinished").mkdir()
    rows = json_lines(run("doctor", "--json", "--local", local, root))
    assert "RUN_UNFINISHED" in [row.get("code") for row in rows]
    for words in (("serve",), ("fetch", "-o", target)):
        done = run(*words, "--local", local, shown)
        assert (done.exit_code, done.stderr.count("a run of seglog was cut short here")) == (12, 1), (
            words,
            done.stderr,
        )
    assert not target.exists()


def test_what_is_missing_is_found(tmp_path: Path) -> None:
    directory = write_local_tiered(tmp_path, "customers-uncleaned", 0, [SEGMENTS[0], *SEGMENTS[2:]])
    next(directory.glob(f"{1200:020d}-*.timeindex")).unlink()
    result = run("tiers", "--json", directory)
    remarks = [row for row in json_lines(result) if row["type"] == "tier_remark"]
    assert result.exit_code == 1
    assert [(row["code"], row["first_offset"], row["last_offset"]) for row in remarks] == [
        ("INCOMPLETE_UPLOAD", 1200, None),
        ("GAP", 400, 799),
    ]
    assert json_lines(result)[0]["missing"] == [{"first_offset": 400, "last_offset": 799}]


WRITERS = {"Aiven": (write_aiven, "rsm-manifest"), "LocalTieredStorage": (write_local_tiered, "index")} | {
    "Pinterest": (write_pinterest, "index")
}


@pytest.mark.parametrize("layout", WRITERS)
def test_a_segment_that_cannot_be_read_does_not_hide_the_others(layout: str, tmp_path: Path) -> None:
    write, kind = WRITERS[layout]
    directory = write(tmp_path, "customers-uncleaned", 0, SEGMENTS)
    whole = [row for row in json_lines(run("tiers", "--json", directory)) if row["type"] == "tier_segment"]
    (broken,) = directory.glob(f"{400:020d}*.{kind}")
    broken.unlink()
    broken.symlink_to(broken.name)
    result = run("tiers", "--json", directory)
    tier, *segments, remark, gap = json_lines(result)
    assert result.exit_code == 3
    assert (tier["partition"], tier["segments"], tier["last_offset"]) == (NAME, 3, 2119)
    assert segments == [row for row in whole if row["start_offset"] != 400]
    assert (remark["severity"], remark["code"], remark["first_offset"]) == ("error", "UNREADABLE", 400)
    assert remark["file"] == str(broken) and "the segment at offset 400" in remark["message"]
    assert (gap["code"], gap["message"]) == ("GAP", "offsets 400 to 799 are in no segment that can be read")
    for command in ("ls", "read", "verify"):  # whoever reads gets all of a log, or hears why not
        found = run(command, directory)
        assert found.exit_code not in (0, 1) and str(broken) in found.output, command


def test_a_watermark_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    directory = write_pinterest(tmp_path, "customers-uncleaned", 0, SEGMENTS)
    (directory / "offset.wm").unlink()
    (directory / "offset.wm").symlink_to("offset.wm")
    result = run("tiers", "--json", directory)
    (remark,) = (row for row in json_lines(result) if row["type"] == "tier_remark")
    assert (result.exit_code, remark["code"], json_lines(result)[0]["segments"]) == (3, "UNREADABLE", 4)
    assert "every segment counts as complete" in remark["message"]


def test_a_partition_that_cannot_be_read_does_not_hide_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_local_tiered(tmp_path, "customers-uncleaned", 0, SEGMENTS)
    broken = write_local_tiered(tmp_path, "broken", 0, SEGMENTS)
    entries = LocalFileSystem.entries

    def failing(fs: LocalFileSystem, directory: Path) -> Sequence[tuple[str, FileStatus]]:
        if directory == broken:
            raise OSError(errno.EIO, "Input/output error", str(directory))
        return entries(fs, directory)

    monkeypatch.setattr(LocalFileSystem, "entries", failing)
    result = run("tiers", "--json", tmp_path)
    tier, remark = (row for row in json_lines(result) if row["type"] != "tier_segment")
    assert result.exit_code == 3
    assert (tier["partition"], tier["segments"]) == (NAME, 4)
    assert (remark["severity"], remark["code"], remark["partition"]) == ("error", "UNREADABLE", "broken-0")
    assert remark["file"] == str(broken)


def test_objects_and_metadata_are_compared(root: Path, tmp_path: Path) -> None:
    finished = [remote_record(one, "customers-uncleaned", 0, state=1) for one in SEGMENTS]
    whole = metadata_of(tmp_path / "a", *finished)
    assert run("tiers", root, "--remote-metadata", whole).exit_code == 0
    orphan = metadata_of(tmp_path / "b", *finished[:3], remote_record(SEGMENTS[0], "other", 3, state=1, number=99))
    result = run("tiers", "--json", root, "--remote-metadata", orphan)
    remarks = [row for row in json_lines(result) if row["type"] == "tier_remark"]
    assert result.exit_code == 1
    assert [(row["code"], row["partition"]) for row in remarks] == [
        ("ORPHAN_OBJECT", NAME),
        ("MISSING_OBJECT", "other-3"),
    ]


def test_every_reading_command_finds_objects_where_custom_metadata_names_them(tmp_path: Path) -> None:
    """The first segment's log and indexes have an older prefix: only the metadata shows it, and `fetch` gets all."""
    directory = write_aiven(tmp_path / "tier" / "new", "customers-uncleaned", 0, SEGMENTS)
    before = json_lines(run("read", "--json", directory))
    custom = custom_metadata("old/")
    records = [remote_record(one, "customers-uncleaned", 0, state=1, custom=custom) for one in SEGMENTS[:1]]
    records += [remote_record(one, "customers-uncleaned", 0, state=1) for one in SEGMENTS[1:]]
    metadata = metadata_of(tmp_path, *records)
    old = tmp_path / "tier" / "old" / directory.parent.name / "0"
    old.mkdir(parents=True)
    for kind in ("log", "indexes"):
        (path,) = directory.glob(f"{0:020d}-*.{kind}")
        path.rename(old / path.name)
    given = ("--remote-metadata", metadata, directory)
    assert run("tiers", directory).exit_code == 1
    for command in ("tiers", "ls", "dump", "verify"):
        found = run(command, *given)
        assert (found.exit_code, found.stderr) == (0, ""), (command, found.output)
    assert json_lines(run("read", "--json", *given)) == before != json_lines(run("read", "--json", directory))
    target = tmp_path / "restored" / NAME
    assert run("fetch", *given, "-o", target).exit_code == 0
    for one in SEGMENTS:
        assert (target / f"{one.start:020d}.log").read_bytes() == one.log


def test_custom_metadata_that_cannot_be_read_is_told_by_each_command(root: Path, tmp_path: Path) -> None:
    records = [remote_record(one, "customers-uncleaned", 0, state=1, custom=b"\xff") for one in SEGMENTS]
    metadata = metadata_of(tmp_path, *records)
    for command in ("tiers", "ls", "read"):
        found = run(command, "--remote-metadata", metadata, next(root.glob("*/0")))
        assert "the custom metadata of the segment at offset 1200 cannot be read" in found.output, command
        assert found.exit_code == (1 if command == "tiers" else 3), command


def test_a_path_without_a_tier_is_refused_by_name(tmp_path: Path) -> None:
    clean_partition(NAME, tmp_path)
    result = run("tiers", tmp_path)
    assert result.exit_code == 10 and "there is no tiered storage" in result.stderr
