"""The public names: all there, lazily imported, and their examples run."""

from __future__ import annotations

import ast
import doctest
import gc
import inspect
import re
import subprocess
import sys
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path

import pytest

import seglog
from seglog.errors import NotALogError, RefusedError
from tests.support.cleaning import digest

CORE = Path(seglog.__file__).parents[1]


def test_every_public_name_can_be_imported_and_no_other() -> None:
    for name in seglog.__all__:
        assert getattr(seglog, name) is not None
    assert sorted(seglog.__all__) == seglog.__all__
    assert set(seglog.__all__) <= set(dir(seglog))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = seglog.nonsense  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "module",
    ["seglog", *sorted({home for name, home in seglog._homes().items() if ".api." in home and name.islower()})],
)
def test_the_examples_run(module: str) -> None:
    result = doctest.testmod(import_module(module))
    assert result.attempted > 0
    assert result.failed == 0


def test_help_shows_an_example_of_each_function_that_the_page_lists() -> None:
    page = (CORE.parent / "README.md").read_text()
    rows = re.findall(
        r"^\| ((?:`\w[^`]*`(?:, )?)+) \|", page.partition("| function |")[2].partition("\n\n")[0], re.MULTILINE
    )
    names = [name for row in rows for name in re.findall(r"`(\w+)", row) if name != "LogDirectory"]
    assert len(names) > 20
    without = {name for name in names if ">>>" not in (getattr(seglog, name).__doc__ or "")}
    # shown by the example of their other half
    assert without == {
        "rebuild",
        "plan_restore",
        "plan_transplant",
        "plan_clean",
        "plan_repair",
        "plan_recover",
        "plan_redact",
        "plan_reindex",
        "plan_truncate",
        "snapshots",
        "plan_prune_backup",
        "plan_redact_backup",
    }


def test_importing_seglog_loads_no_numpy_and_no_numba() -> None:
    code = "import seglog, sys; print([m for m in ('numpy', 'numba', 'seglog.log') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": str(CORE)}
    )
    assert done.stdout.strip() == "[]"


def test_reading_changes_nothing_and_cannot_append(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    with seglog.open_log(path, create=True) as log:
        log.append([seglog.Record(b"v", timestamp=5)])
    before = {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in path.iterdir()}
    with seglog.open_log(path) as log:
        assert [record.value for record in log.records()] == [b"v"]
        with pytest.raises(RefusedError, match="reading only"):
            log.append([seglog.Record(b"w")])
    assert {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in path.iterdir()} == before


def test_a_missing_log_is_an_error_unless_it_is_to_be_made(tmp_path: Path) -> None:
    with pytest.raises(NotALogError), seglog.open_log(tmp_path / "none-0"):
        pass
    assert not (tmp_path / "none-0").exists()


@pytest.mark.parametrize("how", [{}, {"writable": True}, {"create": True}])
def test_a_log_directory_is_not_opened_as_a_log(tmp_path: Path, how: dict[str, bool]) -> None:
    with seglog.open_log(tmp_path / "t-0", create=True):
        pass
    before = sorted(tmp_path.rglob("*"))
    told = "a log directory, not a partition; name its partition, t-0"
    with pytest.raises(NotALogError, match=told), seglog.open_log(tmp_path, **how):
        pass
    assert sorted(tmp_path.rglob("*")) == before


def test_values_of_a_fixed_set_may_be_given_as_text_and_others_are_refused(tmp_path: Path) -> None:
    config = seglog.LogConfig(
        message_timestamp_type="LogAppendTime",  # type: ignore[arg-type]
        cleanup_policy="compact,delete",  # type: ignore[arg-type]
        compression_type=seglog.Compression.ZSTD,  # type: ignore[arg-type]
    )
    assert config.message_timestamp_type is seglog.TimestampType.LOG_APPEND_TIME
    assert config.compact and config.delete and config.codec is seglog.Compression.ZSTD
    with seglog.open_log(tmp_path / "t-0", create=True) as log:
        log.append([seglog.Record(b"v", timestamp=5)], codec="gzip")
        (rows,) = log.segments.active.rows()
        assert rows["attributes"].tolist() == [int(seglog.Compression.GZIP)]
        with pytest.raises(ValueError, match="'zip' is not one of none, gzip, snappy, lz4, zstd"):
            log.append([seglog.Record(b"v")], codec="zip")
        with pytest.raises(ValueError, match="'leader' is not one of client, coordinator, replication"):
            log.append_batches(b"", origin="leader")
    for wrong, told in {
        "message_timestamp_type": "NoTimestampType, CreateTime, LogAppendTime",
        "cleanup_policy": "compact, delete or compact,delete",
        "compression_type": "producer, uncompressed, gzip",
    }.items():
        with pytest.raises(seglog.SeglogError, match=f"{wrong}: .*{told}"):
            seglog.LogConfig(**{wrong: "neither"})  # type: ignore[arg-type]


def test_an_error_in_the_block_still_closes_the_log(tmp_path: Path) -> None:
    with pytest.raises(KeyError), seglog.open_log(tmp_path / "t-0", create=True) as log:
        log.append([seglog.Record(b"v", timestamp=5)])
        raise KeyError("the caller's own")
    assert (tmp_path / "t-0" / "00000000000000000001.snapshot").exists()


def test_no_room_has_the_name_of_a_public_function() -> None:
    """Importing a package below seglog would put it in the function's place."""
    rooms = {path.parent.name for path in Path(seglog.__file__).parent.glob("*/__init__.py")}
    assert not rooms & set(seglog.__all__)


def test_a_public_name_stands_once_in_the_stub_with_the_module_that_defines_it() -> None:
    tree = ast.parse(Path(seglog.__file__).with_suffix(".pyi").read_text())
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    names = [(alias.asname, node.module) for node in imports for alias in node.names]
    assert sorted(name for name, _module in names if name) == seglog.__all__
    assert all(getattr(getattr(seglog, name or ""), "__module__", module) == module for name, module in names)


def test_what_is_shown_of_a_log_and_of_records_is_short(tmp_path: Path) -> None:
    with seglog.open_log(tmp_path / "t-0", create=True) as log:
        log.append([seglog.Record(b"v" * 100, timestamp=5) for _ in range(1000)])
        (columns,) = log.columns()
        assert repr(log) == f"<Log {tmp_path / 't-0'}: offsets 0 to 1000, for writing>"
        assert repr(columns) == "<Records: 1000, offsets 0 to 999, of 7 batches>"
    assert repr(log).endswith("closed>")
    assert repr(seglog.columns_of([])) == "<Records: none, of 0 batches>"


WRONG_RECORDS = {
    "records must be an iterable of seglog.Record, not Record(value=b'v'": seglog.Record(b"v"),
    "records must be an iterable of seglog.Record, not 5 (int)": 5,
    "records must be an iterable of seglog.Record, not b'v' (bytes)": b"v",
    "records[1] must be a seglog.Record, not b'w' (bytes)": [seglog.Record(b"v"), b"w"],
    "records[1] must be a seglog.Record, not {'value': b'w'} (dict)": [seglog.Record(b"v"), {"value": b"w"}],
    "records[0].value must be bytes or None, not 'v' (str)": [seglog.Record("v")],  # type: ignore[arg-type]
    "records[0].key must be bytes or None, not 7 (int)": [seglog.Record(b"v", key=7)],  # type: ignore[arg-type]
    "records[0].timestamp must be an integer, not 1.5 (float)": [
        seglog.Record(b"v", timestamp=1.5)  # type: ignore[arg-type]
    ],
    "records[0].headers must be seglog.Header, not {'a': b'b'} (dict)": [
        seglog.Record(b"v", headers={"a": b"b"})  # type: ignore[arg-type]
    ],
    "records[0].headers: a key must be text": [
        seglog.Record(b"v", headers=(seglog.Header(b"a", b"b"),))  # type: ignore[arg-type]
    ],
}


@pytest.mark.parametrize("told", WRONG_RECORDS)
def test_what_is_no_record_is_named_and_nothing_is_appended(tmp_path: Path, told: str) -> None:
    with seglog.open_log(tmp_path / "t-0", create=True) as log:
        with pytest.raises(TypeError, match=re.escape(told)):
            log.append(WRONG_RECORDS[told])  # type: ignore[arg-type]
        assert log.log_end_offset == 0
        with pytest.raises(ValueError, match=re.escape("records[0]: its timestamp, offset or sequence is too large")):
            log.append([seglog.Record(b"v", timestamp=1 << 70)])


def test_a_wrong_type_is_an_error_that_names_the_argument(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"a path must be text or a pathlib.Path, not None \(NoneType\)"):
        list(seglog.verify(None))  # type: ignore[arg-type]
    with seglog.open_log(tmp_path / "t-0", create=True) as log:
        log.append([seglog.Record(b"v", timestamp=5)])
        for call in (
            lambda: log.read("0", 100, "read_committed"),  # type: ignore[arg-type]
            lambda: log.records("0"),  # type: ignore[arg-type]
            lambda: log.truncate_to(1.0),  # type: ignore[arg-type]
        ):
            with pytest.raises(TypeError, match="offset must be an integer, not "):
                call()
        with pytest.raises(
            TypeError, match=r"5 \(int\) is not a member of Isolation: read_uncommitted, read_committed"
        ):
            log.records(0, 5)  # type: ignore[arg-type]
        assert [record.value for record in log.records(0, "read_committed")] == [b"v"]


NEEDED: dict[str, dict[str, object]] = {  # besides a path
    "convert": {"output": "new-0"},
    "plan_restore": {"output": "new"},
    "plan_truncate": {"to_offset": 0},
    "truncate": {"to_offset": 0},
    "undo": {},
    **{
        name: {}
        for name in ("clean", "diff", "doctor", "explain", "open_log", "partitions", "plan_clean", "plan_rebuild")
    },
    **{name: {} for name in ("plan_recover", "plan_repair", "plan_retain", "recover", "repair", "retain")},
    **{name: {} for name in ("stats", "verify")},
}
ARGUMENTS = [
    (name, argument)
    for name in NEEDED
    for each in list(inspect.signature(getattr(seglog, name)).parameters.values())[1:]
    for argument in (
        ("config", "config_file", "threads", "clock", "fs") if each.kind is each.VAR_KEYWORD else (each.name,)
    )
]


@pytest.mark.parametrize(("function", "argument"), ARGUMENTS)
def test_what_is_nothing_that_an_argument_takes_is_named_before_anything_is_done(
    tmp_path: Path, function: str, argument: str
) -> None:
    path = tmp_path / "t-0"
    with seglog.open_log(path, create=True) as log:
        log.append([seglog.Record(b"v", timestamp=5)])
    before = digest(path)
    given = {**NEEDED[function], argument: object()}
    with pytest.raises((TypeError, ValueError), match=rf"\b{argument}\b"):
        done = getattr(seglog, function)(path, **given)
        if isinstance(done, AbstractContextManager):
            done.__enter__()
        list(done)
    assert digest(path) == before


def test_a_text_is_no_flag_and_another_plan_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    with seglog.open_log(path, create=True):
        pass
    for call in (seglog.clean, seglog.plan_clean):
        with pytest.raises(TypeError, match=r"expire must be True or False, not 'false' \(str\)"):
            call(path, policy="compact", expire="false")  # type: ignore[arg-type]
    for function in (seglog.restore, lambda plan: seglog.rebuild(plan, tmp_path / "new")):
        with pytest.raises(TypeError, match=r"plan must be what plan_\w+ gives, not \[\] \(list\)"):
            function([])  # type: ignore[arg-type]


def test_a_configuration_of_wrong_types_is_refused_where_it_is_made() -> None:
    with pytest.raises(TypeError, match=r"segment_bytes must be an integer, not '1 GiB' \(str\)"):
        seglog.LogConfig(segment_bytes="1 GiB")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"preallocate must be True or False, not 'true' \(str\)"):
        seglog.LogConfig(preallocate="true")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"index_interval_bytes: 9223372036854775808 is not from"):
        seglog.LogConfig(index_interval_bytes=2**63)
    with pytest.raises(TypeError, match=r"values must be a mapping from Kafka's keys to values, not 5 \(int\)"):
        seglog.LogConfig.from_mapping(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"a configuration key must be text, not 5 \(int\)"):
        seglog.LogConfig.from_mapping({5: 1})  # type: ignore[dict-item]


def test_the_readme_lists_every_function() -> None:
    page = (CORE.parent / "README.md").read_text()
    functions = [name for name in seglog.__all__ if inspect.isfunction(getattr(seglog, name))]
    assert len(functions) > 15
    assert [name for name in functions if f"`{name}" not in page and not name.startswith("columns_of")] == []


def test_a_log_directory_opens_with_its_path_alone(tmp_path: Path) -> None:
    with seglog.open_log(tmp_path / "t-0", create=True) as log:
        log.append([seglog.Record(b"v", timestamp=5)])
    with seglog.LogDirectory.open(str(tmp_path)) as directory:
        assert repr(directory) == f"<LogDirectory {tmp_path}: 1 partition, for reading>"
        (key,) = directory.topic_partitions
        assert [record.value for record in directory.log(key).records()] == [b"v"]


def test_what_the_library_returns_fits_two_lines_of_a_screen(tmp_path: Path) -> None:
    """At a prompt a value is shown by its repr: what it is of, and its figures, not all that it holds."""
    path = tmp_path / "orders-0"
    with seglog.open_log(path, create=True, config={"cleanup.policy": "compact", "segment.bytes": 5000}) as log:
        for _ in range(3):
            log.append([seglog.Record(b"value", key=b"k%d" % (i % 5), timestamp=1000) for i in range(20)])
            log.roll()
        shown: list[object] = [log, log.view, log.segments, log.config, log.recovery]
    with seglog.open_log(path) as log:
        shown += [log, log.read(30, 1000), log.recovery, next(log.columns())]
    assert repr(seglog.LogConfig(segment_bytes=5000)) == "LogConfig(segment_bytes=5000)"
    shown += [seglog.verify(path), seglog.doctor(tmp_path), *seglog.partitions(tmp_path), *seglog.stats(path)]
    shown += [*seglog.plan_clean(path, policy="compact"), *seglog.plan_retain(path, policy="delete")]
    shown += [*seglog.plan_recover(path), *seglog.plan_repair(path), *seglog.repair(path)]
    shown += [seglog.plan_truncate(path, to_offset=45), seglog.truncate(path, to_offset=45), seglog.explain(path)]
    wide = [text for each in shown if len(text := repr(each).replace(str(tmp_path), "/logs")) > 160]
    assert wide == []
    assert all(type(each).__name__ in repr(each) for each in shown)


def test_help_names_every_argument_of_a_function() -> None:
    for name in ("clean", "verify", "salvage", "transplant", "groups", "recover"):
        function = getattr(seglog, name)
        named = inspect.signature(function).parameters
        assert {"config", "config_file", "threads", "progress", "clock", "fs"} <= set(named), name
        assert "common" not in named
        assert "`progress` (called with the bytes read since its last call)" in function.__doc__
    assert "tier_keys" in inspect.signature(seglog.verify).parameters


def test_an_argument_whose_default_is_none_takes_none() -> None:
    functions = [value for name in seglog.__all__ if inspect.isfunction(value := getattr(seglog, name))]
    arguments = [each for function in functions for each in inspect.signature(function).parameters.values()]
    assert sum(each.default is None for each in arguments) > 200
    assert {str(each) for each in arguments if each.default is None and "None" not in str(each.annotation)} == set()


def test_every_error_that_is_raised_can_be_caught_by_its_public_name() -> None:
    kinds = [name for name, kind in vars(seglog.errors).items() if inspect.isclass(kind)]
    raised = [name for name in kinds if issubclass(getattr(seglog.errors, name), seglog.SeglogError)]
    assert len(raised) > 20
    assert [name for name in raised if getattr(seglog, name) is not getattr(seglog.errors, name)] == []


def test_a_log_is_used_without_a_with_block(tmp_path: Path) -> None:
    log = seglog.open_log(tmp_path / "t-0", create=True)
    assert log.append([seglog.Record(b"v", timestamp=5)]).last_offset == 0
    with pytest.raises(seglog.LockedError):
        seglog.open_log(tmp_path / "t-0", writable=True)
    log.close()
    log.close()
    assert (tmp_path / "t-0" / "00000000000000000001.snapshot").exists()
    again = seglog.open_log(tmp_path / "t-0", writable=True)
    again.close()
    reading = seglog.open_log(tmp_path / "t-0")
    assert [record.value for record in reading.records()] == [b"v"]
    reading.close()
    assert repr(reading).endswith("closed>")


def test_a_log_that_nobody_closed_is_closed_when_it_is_collected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gc.collect()  # what other tests left; its errors are not those of these logs
    raised: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: raised.append(repr(found.exc_value)))
    log = seglog.open_log(tmp_path / "t-0", create=True)
    log.append([seglog.Record(b"v", timestamp=5)])
    del log
    gc.collect()
    assert (tmp_path / "t-0" / "00000000000000000001.snapshot").exists()
    reading = seglog.open_log(tmp_path / "t-0")
    assert reading.log_end_offset == 1
    del reading
    gc.collect()
    assert raised == []


def test_opening_a_log_that_is_not_there_fails_at_once(tmp_path: Path) -> None:
    with pytest.raises(NotALogError):
        seglog.open_log(tmp_path / "t-0")


def test_what_has_not_run_says_so(tmp_path: Path) -> None:
    with seglog.open_log(tmp_path / "t-0", create=True) as log:
        log.append([seglog.Record(b"v", timestamp=5)])
    for lazy in (seglog.verify(tmp_path), seglog.doctor(tmp_path), seglog.stats(tmp_path)):
        assert "nothing is" in repr(lazy) and "iterate over it" in repr(lazy)
        list(lazy)
        assert "nothing is" not in repr(lazy)
    with pytest.raises(ValueError, match="at least two copies"):
        list(seglog.diff(tmp_path / "t-0"))


def test_arguments_are_checked_when_the_function_is_called_not_when_its_rows_are_read(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="write_rate is for sizing"):
        seglog.stats(tmp_path, write_rate=5)
    with pytest.raises(ValueError, match="is not one of bytes, batches, view"):
        seglog.diff(tmp_path, tmp_path, level="names")  # type: ignore[arg-type]


def test_durations_sizes_and_times_may_be_text(tmp_path: Path) -> None:
    with seglog.open_log(tmp_path / "t-0", create=True) as log:
        for stamp in (1_000, 90_000_000_000):
            log.append([seglog.Record(b"v", timestamp=stamp)])
            log.roll()
    as_text, as_number = (
        [each.removed for each in seglog.plan_retain(tmp_path / "t-0", retention_ms=given)[0].plan.segments]
        for given in ("7d", 604_800_000)
    )
    assert as_text == as_number
    assert seglog.plan_truncate(tmp_path / "t-0", to_time_ms="1970-01-02").cut.end_offset == 1
    assert seglog.plan_retain(tmp_path / "t-0", retention_bytes="1KiB")
    assert list(seglog.verify(tmp_path, max_duration_s="10m")) == []
    with pytest.raises(ValueError, match="retention_ms: '7 fortnights' is not a duration"):
        seglog.plan_retain(tmp_path / "t-0", retention_ms="7 fortnights")
    with pytest.raises(ValueError, match="to_time_ms: 'soon' is not a time"):
        seglog.plan_truncate(tmp_path / "t-0", to_time_ms="soon")


def test_progress_is_called_with_the_bytes_that_are_read(tmp_path: Path) -> None:
    with seglog.open_log(tmp_path / "t-0", create=True) as log:
        log.append([seglog.Record(b"v" * 1000, timestamp=5) for _ in range(100)])
    size = (tmp_path / "t-0" / "00000000000000000000.log").stat().st_size
    for call in (
        lambda told: list(seglog.verify(tmp_path, progress=told)),
        lambda told: list(seglog.stats(tmp_path, progress=told)),
        lambda told: seglog.reindex(tmp_path, progress=told),
        lambda told: seglog.export(tmp_path / "t-0", tmp_path / "out.csv", replace=True, progress=told),
    ):
        read: list[int] = []
        call(read.append)  # type: ignore[no-untyped-call]
        assert sum(read) >= size
    with pytest.raises(TypeError, match="progress must be a function that takes a number of bytes"):
        seglog.partitions(tmp_path, progress=5)  # type: ignore[arg-type]


def test_the_library_does_what_the_commands_do(tmp_path: Path) -> None:
    from seglog_cli.catalogue import COMMANDS

    others = {"ls": "partitions", "read": "open_log", "append": "open_log", "dump": "open_log", "txn": "transactions"}
    others |= {"config": "settings", "tiers": "tier_contents", "quarantine": "undo"}
    # a service, a network protocol, another tool's text, jobs of a cluster, and a live view of what `report` has
    apart = {"cleaner", "serve", "replay", "dump-log", "spark", "top"}
    apart |= {"sql", "latest", "where"}  # questions that a program asks of `open_table`
    missing = [name for name in COMMANDS if name not in apart and not hasattr(seglog, others.get(name, name))]
    assert missing == []


def test_an_export_whose_format_nothing_names_asks_for_it(tmp_path: Path) -> None:
    with seglog.open_log(tmp_path / "t-0", create=True) as log:
        log.append([seglog.Record(b"v", timestamp=5)])
    with pytest.raises(ValueError, match=r"give format, jsonl, csv or parquet: .*t\.txt has no extension"):
        seglog.export(tmp_path / "t-0", tmp_path / "t.txt")
    assert seglog.export(tmp_path / "t-0", tmp_path / "t.txt", format="csv") == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"from_offset": 9, "to_offset": 5}, "to_offset: 5 is before from_offset, 9"),
        ({"since_ms": 9, "until_ms": 5}, "until_ms: 5 is before since_ms, 9"),
    ],
)
def test_an_export_of_a_range_that_ends_before_it_begins_is_refused(
    tmp_path: Path, given: dict[str, int], said: str
) -> None:
    with seglog.open_log(tmp_path / "t-0", create=True) as log:
        log.append([seglog.Record(b"v", timestamp=5)])
    with pytest.raises(ValueError, match=said):
        seglog.export(tmp_path / "t-0", tmp_path / "t.csv", **given)  # type: ignore[arg-type]
    assert not (tmp_path / "t.csv").exists()
