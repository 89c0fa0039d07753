#!/usr/bin/env bash
# confluent-kafka 2.16.1: `AdminClient.elect_leaders` takes neither of the time limits that it documents.
#
# Its docstring names `request_timeout` and `operation_timeout`, numbers of seconds, as other methods of the class do.
# Expected: a future, as without them; no broker has to answer for that.
# Seen: with either one the call raises SystemError ("more argument specifiers than keyword list entries"), which the
# docstring does not name. So the only limit is `socket.timeout.ms`, for all requests of the client.
set -euo pipefail
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q confluent-kafka==2.16.1
"$work/venv/bin/python" - <<'PY'
import confluent_kafka
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient

print(f"confluent-kafka {confluent_kafka.version()}, librdkafka {confluent_kafka.libversion()[0]}")
admin = AdminClient({"bootstrap.servers": "127.0.0.1:9", "log_level": 0})  # nothing has to answer
documented = [name for name in ("request_timeout", "operation_timeout") if name in (admin.elect_leaders.__doc__ or "")]
print("time limits that the docstring of elect_leaders names:", ", ".join(documented))
outcomes = []
for limits in ({}, {"request_timeout": 5.0}, {"operation_timeout": 5.0}):
    try:
        admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition("orders", 0)], **limits)
        outcome = "a future"
    except SystemError as error:
        outcome = f"SystemError: {error}"
    print(f"  {limits or 'no limit'}: {outcome}")
    outcomes.append(outcome)
still = outcomes[0] == "a future" and all(outcome.startswith("SystemError") for outcome in outcomes[1:])
raise SystemExit(not (still and len(documented) == 2))
PY
