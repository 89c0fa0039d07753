"""What left a log is said: by the summary of verify, by a repair, and by a recovery without any log."""

from __future__ import annotations

from pathlib import Path

from tests.support.command_line import run
from tests.support.fixtures import fixture_copy

ORDERS = "orders-none-0"


def test_the_summary_counts_the_end_that_is_missing(tmp_path: Path) -> None:
    """Offsets 350 to 399 are damaged, and 750 to 789 were cut off."""
    data = fixture_copy("4.3.0/clean", tmp_path)
    log = data / ORDERS / "00000000000000000350.log"
    log.write_bytes(log.read_bytes()[:5000] + b"XXXX" + log.read_bytes()[5004:])
    last = data / ORDERS / "00000000000000000750.log"
    last.write_bytes(last.read_bytes()[:100])
    assert "90 offsets lost at most" in run("verify", str(data / ORDERS)).stdout


def test_a_repair_says_what_is_no_longer_in_the_log_and_where_it_is_kept(tmp_path: Path) -> None:
    data = fixture_copy("4.3.0/clean", tmp_path)
    log = data / ORDERS / "00000000000000000350.log"
    log.write_bytes(log.read_bytes()[:5000] + b"XXXX" + log.read_bytes()[5004:])
    done = run("verify", "--repair", str(data / ORDERS))
    assert "offsets between 350 and 399, are no longer in orders-none-0, and are kept in" in done.stdout


def test_a_recovery_without_any_log_says_which_offsets_are_gone(tmp_path: Path) -> None:
    data = fixture_copy("4.3.0/clean", tmp_path)
    for log in (data / ORDERS).glob("*.log"):
        log.unlink()
    done = run("recover", str(data / ORDERS))
    assert "offsets 0 to 789 are gone" in done.stdout and "nothing lost" not in done.stdout


def test_a_metrics_file_that_is_a_link_stays_one(tmp_path: Path) -> None:
    data = fixture_copy("4.3.0/clean", tmp_path)
    link, real = tmp_path / "seglog.prom", tmp_path / "real.prom"
    real.touch()
    link.symlink_to(real)
    assert run("stats", "--prometheus", str(link), str(data / ORDERS)).exit_code == 0
    assert link.is_symlink() and "seglog" in real.read_text()


def test_a_later_look_names_what_a_repair_took_out_and_where_it_is_kept(tmp_path: Path) -> None:
    """Of this partition alone, in one line, until it is taken back; nothing is wrong with the files."""
    data = fixture_copy("4.3.0/clean", tmp_path)
    log = data / ORDERS / "00000000000000000350.log"
    log.write_bytes(log.read_bytes()[:5000] + b"XXXX" + log.read_bytes()[5004:])
    run("repair", str(data / ORDERS))
    (kept,) = (data.parent / ".seglog-quarantine").iterdir()
    for command in (["verify"], ["ls"], ["ls", "--long"]):
        for path in (data / ORDERS, data, log):
            done = run(*command, str(path))
            lines = [line for line in done.stderr.splitlines() if "not in the log any more" in line]
            (said,) = lines
            assert f"kB of records of {ORDERS}, which the repair of" in said and str(kept) in said, command
            assert f"`seglog undo {kept.name}` takes it back" in said
        assert "not in the log" not in run(*command, str(data / "orders-lz4-0")).stderr
    assert run("verify", str(data / ORDERS)).exit_code == 0
    run("truncate", str(data / ORDERS), "--to-offset", "100")
    assert "which 2 runs keep, the last one in" in run("verify", str(data / ORDERS)).stderr
    for folder in sorted(kept.parent.iterdir(), reverse=True):
        assert run("undo", str(folder)).exit_code == 0
    assert "not in the log" not in run("ls", str(data)).stderr
