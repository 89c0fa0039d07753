#!/usr/bin/env bash
# Polars 2.1.0: the same filter gives other rows if the frame is a scan of an Arrow dataset.
#
# Expected: what the same data gives as a DataFrame, where `is_in` of null is null, and so is its negation: the row
# stays away from both answers.
# Seen: `scan_pyarrow_dataset` hands the filter to Arrow, for which `is_in` of null is false, and takes Arrow's word:
# the negation also finds the null. No warning; a join or a sum after it is another one.
set -euo pipefail
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q polars==2.1.0 pyarrow==26.0.1
cd "$work"
venv/bin/python - <<'END'
import polars as pl, pyarrow as pa, pyarrow.dataset as ds, pyarrow.parquet as pq

print(f"polars {pl.__version__}, pyarrow {pa.__version__}")
rows = pa.table({"number": [1, 2, 3, None]})
pq.write_table(rows, "rows.parquet")
answers = {}
for name, frame in {
    "a DataFrame": pl.from_arrow(rows).lazy(),
    "scan_parquet": pl.scan_parquet("rows.parquet"),
    "scan_pyarrow_dataset": pl.scan_pyarrow_dataset(ds.dataset("rows.parquet")),
}.items():
    answers[name] = frame.filter(~pl.col("number").is_in([1, 2])).collect()["number"].to_list()
    print(f"{name}: not in [1, 2]: {answers[name]}")
seen = [answers[name] for name in answers]
raise SystemExit(seen != [[3], [3], [3, None]])
END
