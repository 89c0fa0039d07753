#!/usr/bin/env bash
# DuckDB 2.0.1 with pyarrow 26.0.1 and Polars 2.1.0: the TIME 24:00:00 is a text, the beginning of the day, or null.
#
# DuckDB has 24:00:00, the end of a day, as a value of TIME that sorts after all others.
# Expected: one meaning in all of DuckDB's ways to give an answer to Python, or an error.
# Seen: fetchall() gives the text '24:00:00', Arrow's to_pylist() gives 00:00, and Polars shows null.
set -euo pipefail
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q duckdb==2.0.1 pyarrow==26.0.1 polars==2.1.0
cd "$work"
venv/bin/python - <<'END'
import datetime

import duckdb, polars, pyarrow

print(f"duckdb {duckdb.__version__}, pyarrow {pyarrow.__version__}, polars {polars.__version__}")
query = "select time '24:00:00' as closes, time '24:00:00' > time '23:59:59' as is_last"
((row, is_last),) = duckdb.sql(query).fetchall()
arrow = duckdb.sql(query).to_arrow_table()["closes"][0].as_py()
shown = "null" in str(duckdb.sql(query).pl()["closes"])
print(f"after 23:59:59: {is_last}; fetchall {row!r}, Arrow {arrow!r}, shown as null by Polars: {shown}")
raise SystemExit((row, is_last, arrow, shown) != ("24:00:00", True, datetime.time(0, 0), True))
END
