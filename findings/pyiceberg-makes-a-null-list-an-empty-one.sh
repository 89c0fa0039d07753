#!/usr/bin/env bash
# PyIceberg 0.12.0: `append` writes a null list of structs as an empty list.
#
# Expected: null, as for a list of integers in the same table; the column is optional in Iceberg's schema.
# Seen: the data file has an empty list, so that `is null` no longer finds the row. No warning.
set -euo pipefail
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q 'pyiceberg[sql-sqlite]==0.12.0' pyarrow==26.0.1
cd "$work"
venv/bin/python - <<'END'
import importlib.metadata, pathlib

import pyarrow as pa, pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog

print(f"pyiceberg {importlib.metadata.version('pyiceberg')}, pyarrow {pa.__version__}")
rows = pa.table(
    {
        "numbers": pa.array([[1], None, []], pa.list_(pa.int32())),
        "structs": pa.array([[{"a": 1}], None, []], pa.list_(pa.struct([("a", pa.int32())]))),
    }
)
here = pathlib.Path.cwd()
catalog = SqlCatalog("lake", uri=f"sqlite:///{here}/catalog.db", warehouse=f"file://{here}/lake")
catalog.create_namespace("n")
copy = catalog.create_table("n.t", schema=rows.schema)
copy.append(rows)
(file,) = here.glob("lake/**/*.parquet")
written = pq.read_table(file)
numbers, structs = written["numbers"].to_pylist(), written["structs"].to_pylist()
print(f"optional: {not copy.schema().find_field('structs').required}; numbers: {numbers}; structs: {structs}")
raise SystemExit((numbers, structs) != ([[1], None, []], [[{"a": 1}], [], []]))
END
