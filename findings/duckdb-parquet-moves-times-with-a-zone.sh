#!/usr/bin/env bash
# DuckDB 2.0.1: a TIME WITH TIME ZONE that went through Parquet is no longer equal to itself.
#
# Expected: what is written and read again compares as equal.
# Seen: 12:00:00+05 comes back as 07:00:00+00. That is the same moment, but DuckDB's = compares the zone too, and says
# that they differ: a join of a table with its own Parquet copy on such a column finds nothing.
set -euo pipefail
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q duckdb==2.0.1 # which reads and writes Parquet by itself
cd "$work"
venv/bin/python - <<'END'
import duckdb

print(f"duckdb {duckdb.__version__}")
duckdb.sql("create table trains as select '12:00:00+05'::timetz as leaves")
duckdb.sql("copy trains to 'trains.parquet' (format parquet)")
((before,),) = duckdb.sql("select leaves::varchar from trains").fetchall()
((after, kind),) = duckdb.sql("select leaves::varchar, typeof(leaves) from 'trains.parquet'").fetchall()
((pairs,),) = duckdb.sql("select count(*) from trains join 'trains.parquet' as copy using (leaves)").fetchall()
print(f"{before} became {after} ({kind}); rows that a join with the copy finds: {pairs}")
raise SystemExit((before, after, kind, pairs) != ("12:00:00+05", "07:00:00+00", "TIME WITH TIME ZONE", 0))
END
