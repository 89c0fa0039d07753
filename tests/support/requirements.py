"""Whether a test's outside needs are met: skip with a plain reason, or fail where they must be met.

`SEGLOG_REQUIRE_JAVA=1` (set by .ci/run) turns a missing Java or Maven from a skip into a failure, so that a
green run there means that the tests against Kafka and Spark did run.
"""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

from tests.support.kafka.jvm import JavaMissing, find_java, kafka_classpath


def require_java() -> None:
    """Skips (or fails) the running test unless Java 17 or later is installed."""
    try:
        find_java()
    except JavaMissing as reason:
        missing(str(reason))


def require_kafka() -> None:
    """Skips (or fails) the running test unless Kafka's classes can be fetched, compiled against and run."""
    try:
        find_java()
        kafka_classpath()
    except JavaMissing as reason:
        missing(str(reason))


def missing(reason: str) -> NoReturn:
    """Skips with the reason, or fails with it under SEGLOG_REQUIRE_JAVA=1."""
    if os.environ.get("SEGLOG_REQUIRE_JAVA") == "1":
        pytest.fail(f"{reason}; SEGLOG_REQUIRE_JAVA=1 asks for it", pytrace=False)
    pytest.skip(reason)
