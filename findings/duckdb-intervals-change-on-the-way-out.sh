#!/usr/bin/env bash
# DuckDB 2.0.1: an INTERVAL that DuckDB shows rightly is another one in Arrow, and another one in Parquet.
#
# Expected: the same length, or an error where the other format cannot hold it.
# Seen: 3,000,000 hours are less than zero in Arrow, where nanoseconds in 64 bits overflow. 1,500 microseconds are
# 1,000 in a Parquet file, whose INTERVAL counts milliseconds. Both without a warning.
set -euo pipefail
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q duckdb==2.0.1 pyarrow==26.0.1
cd "$work"
venv/bin/python - <<'END'
import datetime

import duckdb, pyarrow

print(f"duckdb {duckdb.__version__}, pyarrow {pyarrow.__version__}")
long, short = "to_hours(3000000)", "to_microseconds(1500)"
((text,),) = duckdb.sql(f"select {long}::varchar").fetchall()
nanoseconds = duckdb.sql(f"select {long} as length").to_arrow_table()["length"][0].as_py().nanoseconds
print(f"{text} in DuckDB is {nanoseconds} nanoseconds in Arrow")
duckdb.sql(f"copy (select {short} as length) to 'length.parquet' (format parquet)")
((before,),) = duckdb.sql(f"select {short}").fetchall()
((after,),) = duckdb.sql("select length from 'length.parquet'").fetchall()
print(f"{before / datetime.timedelta(microseconds=1):.0f} microseconds are", end=" ")
print(f"{after / datetime.timedelta(microseconds=1):.0f} in Parquet")
hours = int(text.split(":")[0])
overflown = (3_000_000 * 3_600_000_000_000 + 2**63) % 2**64 - 2**63
ends = (datetime.timedelta(microseconds=1500), datetime.timedelta(microseconds=1000))
raise SystemExit((hours, nanoseconds, before, after) != (3_000_000, overflown, *ends))
END
