#!/usr/bin/env bash
# DuckDB 2.0.1: COPY … (FORMAT parquet) writes HUGEINT, and so every sum() of integers, as DOUBLE.
#
# Expected: an exact type (Parquet has DECIMAL(38, 0), as which DuckDB gives the same column to Arrow), or an error.
# Seen: the sum of one BIGINT, 9007199254740993, is 9007199254740992 in the file. No warning is given.
set -euo pipefail
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q duckdb==2.0.1 pyarrow==26.0.1
cd "$work"
venv/bin/python - <<'END'
import duckdb, pyarrow.parquet

duckdb.sql("create table readings as select 9007199254740993::bigint as value")
duckdb.sql("copy (select sum(value) as total from readings) to 'total.parquet' (format parquet)")
((answer, kind),) = duckdb.sql("select sum(value), typeof(sum(value)) from readings").fetchall()
in_arrow = duckdb.sql("select sum(value) as total from readings").to_arrow_table().schema.field("total").type
table = pyarrow.parquet.read_table("total.parquet")
in_file, type_in_file = int(table["total"][0].as_py()), table.schema.field("total").type
print(f"duckdb {duckdb.__version__}, pyarrow {pyarrow.__version__}")
print(f"the answer is {answer} ({kind}), in Arrow {in_arrow}, in the Parquet file {in_file} ({type_in_file})")
seen = (answer, kind, str(in_arrow), in_file, str(type_in_file))
raise SystemExit(seen != (9007199254740993, "HUGEINT", "decimal128(38, 0)", 9007199254740992, "double"))
END
