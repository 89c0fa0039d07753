"""Values as programs write them without a registry, in every command that shows records."""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import seglog
from tests.support.command_line import json_lines, run
from tests.support.schema_registry import write_log
from tests.unit.table.test_spark_values import batches_of

WRITTEN: dict[str, tuple[bytes, Any]] = {
    "long-le": (b"\7" + bytes(7), 7),
    "msgpack": (bytes.fromhex("82a269640701c403000102"), {"id": 7, "1": "AAEC"}),
    "cbor": (bytes.fromhex("a2626964070143000102"), {"id": 7, "1": "AAEC"}),
    "gzip": (gzip.compress(b"plain"), "plain"),
    "gzip-json": (gzip.compress(b'{"id":7}'), {"id": 7}),
    "avro-file": (
        b'Obj\1\2\x16avro.schema\x0c"long"\0' + b"sync" * 4 + b"\4\4\x0e\x10" + b"sync" * 4,
        [7, 8],
    ),
}


@pytest.mark.parametrize("form", sorted(WRITTEN))
def test_values_that_programs_write_are_the_same_through_each_door(form: str, tmp_path: Path) -> None:
    data, wanted = WRITTEN[form]
    log = write_log(tmp_path / "t-0", [seglog.Record(one, key=b"k") for one in (data, data[:-1], b"\xc1")])
    decoded = "--value-as", form
    commands = (
        ("read", log, "--json"),
        ("dump", log, "--records", "--json"),
        ("export", log, "-o", "-", "--format", "jsonl"),
    )
    for command in commands:
        lines = json_lines(run(*command, *decoded))
        good, *bad = (line for line in lines if line["type"] == "record")
        assert good["value"] == wanted and "value_error" not in good
        assert len(bad) == 2 and all(line["value_error"] and line["value_b64"] for line in bad)
    text = wanted if isinstance(wanted, str) else json.dumps(wanted, separators=(",", ":"))
    assert run("export", log, "-o", tmp_path / "t.parquet", *decoded).exit_code == 0
    as_csv = run("export", log, "-o", "-", "--format", "csv", *decoded).stdout
    in_spark = [row for one in batches_of(log, valueAs=form) for row in one.to_pylist()]
    tables: list[list[dict[str, Any]]] = [
        list(csv.DictReader(io.StringIO(as_csv))),
        json_lines(run("sql", "--json", "select value, value_error from t", tmp_path, *decoded)),
        pq.read_table(tmp_path / "t.parquet").to_pylist(),
        seglog.open_table(log, value_as=form).to_table().to_pylist(),
        [{"value": row["value"], "value_error": row["valueError"]} for row in in_spark],
    ]
    for good, *bad in tables:
        assert good["value"] == text and not good["value_error"]
        assert len(bad) == 2 and all(row["value_error"] for row in bad)
    (line, *_) = json_lines(run("read", log, "--json", "--key-as", form, "--limit", "1"))
    assert ("key_error" in line) == (form != "msgpack")  # in which k is the number 107


def test_without_the_library_of_a_form_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = write_log(tmp_path / "t-0", [seglog.Record(b"v")])
    monkeypatch.setitem(sys.modules, "msgpack", None)
    monkeypatch.delitem(sys.modules, "seglog_ask.values.documents", raising=False)
    done = run("read", log, "--value-as", "cbor")
    assert done.exit_code == 13 and "'.[schemas]'" in done.stderr
