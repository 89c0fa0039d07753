#!/usr/bin/env bash
# fastavro 1.13.1: one date after the year 9999 makes the rest of an Avro file unreadable.
#
# Avro's logical type date is any number of days in 32 bits; 9999-12-31, 10000-01-01 and later are valid, and systems
# write such days for "never".
# Expected: the value in some form, or a way to go on with the next record.
# Seen: the iterator raises, and has ended after that: the records behind are lost to it. Nor does it help to read by
# a schema that leaves the logical type out, because the writer's schema decides.
set -euo pipefail
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q fastavro==1.13.1
cd "$work"
venv/bin/python - <<'END'
import fastavro

def schema(kind):
    return {"type": "record", "name": "contract", "fields": [{"name": "ends", "type": kind}]}

days = [19000, 2932897, 19001]  # the second is 10000-01-01
dated, plain = schema({"type": "int", "logicalType": "date"}), schema("int")
with open("contracts.avro", "wb") as file:
    fastavro.writer(file, dated, [{"ends": day} for day in days])
dates, errors = [], []
with open("contracts.avro", "rb") as file:
    records = fastavro.reader(file)
    while len(errors) < 3:
        try:
            dates.append(str(next(records)["ends"]))
        except StopIteration:
            break
        except (ValueError, OverflowError) as error:
            errors.append(str(error))
numbers = []
with open("contracts.avro", "rb") as file:
    try:
        numbers.extend(record["ends"] for record in fastavro.reader(file, plain))
    except (ValueError, OverflowError) as error:
        errors.append(str(error))
print(f"fastavro {fastavro.__version__}: of three dates {dates} were read; errors: {errors}; by a plain schema: {numbers}")
raise SystemExit(not (dates == ["2022-01-08"] and len(errors) == 2 and len(numbers) < 2))
END
