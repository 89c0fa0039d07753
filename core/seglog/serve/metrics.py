"""The endpoint's counters, and their text for Prometheus."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(slots=True)
class Metrics:
    """Counters since the start; `connections`, `requests_bytes`, `groups` and `members` are current values."""

    connections: int = 0
    connections_total: int = 0
    connections_refused_total: int = 0
    hostile_total: int = 0
    requests_total: int = 0
    requests_bytes: int = 0
    fetched_bytes_total: int = 0
    sent_bytes_total: int = 0
    refused_writes_total: int = 0
    damages_total: int = 0
    groups: int = 0
    members: int = 0
    rebalances_total: int = 0
    commits_total: int = 0


HELP = {
    "connections": "Open connections.",
    "connections_total": "Accepted connections.",
    "connections_refused_total": "Connections closed at once because of the limit.",
    "hostile_total": "Connections closed because of what the client sent.",
    "requests_total": "Requests answered.",
    "requests_bytes": "Bytes of the requests being read or answered.",
    "fetched_bytes_total": "Bytes of segment files sent.",
    "sent_bytes_total": "All bytes sent in answers.",
    "refused_writes_total": "Requests refused because the endpoint is read-only.",
    "damages_total": "Damaged places in the logs, each counted once.",
    "groups": "Groups with members.",
    "members": "Members of groups.",
    "rebalances_total": "Completed rebalances.",
    "commits_total": "Offsets committed.",
}


def exposition(metrics: Metrics) -> str:
    """Returns the counters in Prometheus' text format 0.0.4."""
    lines = []
    for field in fields(metrics):
        name = f"seglog_serve_{field.name}"
        kind = "counter" if field.name.endswith("_total") else "gauge"
        lines += [f"# HELP {name} {HELP[field.name]}", f"# TYPE {name} {kind}"]
        lines.append(f"{name} {getattr(metrics, field.name)}")
    return "\n".join(lines) + "\n"
