"""Fixtures and rules for all tests.

Tests marked `kafka` or `spark` need Java: without it they skip with the reason, or fail under
SEGLOG_REQUIRE_JAVA=1.
Under pytest-xdist's `--dist loadgroup` each of the two kinds runs in one worker, so there is one JVM of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.support import native_library
from tests.support.requirements import require_java, require_kafka

if TYPE_CHECKING:
    from tests.support.kafka import KafkaHarness

# Under numba's JIT the first call of a kernel compiles it: time is no failure anywhere in these tests.
settings.register_profile("seglog", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("seglog")

JVM_MARKERS = ("kafka", "spark")


def pytest_configure(config: pytest.Config) -> None:
    """Tests run what users get: the native library of these very sources."""
    if not hasattr(config, "workerinput"):  # once, not in each process of pytest-xdist
        native_library.make_current()


def pytest_report_header() -> str:
    from seglog.kernels._mode import MODE

    return f"kernels: {MODE.name} ({MODE.detail})"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.pluginmanager.hasplugin("xdist"):
        return
    for item in items:
        for marker in JVM_MARKERS:
            if item.get_closest_marker(marker) and not item.get_closest_marker("xdist_group"):
                item.add_marker(pytest.mark.xdist_group(marker))


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("spark"):
        require_java()
    if item.get_closest_marker("kafka"):
        require_kafka()


@pytest.fixture(scope="session", autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What seglog remembers of its own doing goes to a directory of this run, never to the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaHarness]:
    """Kafka 4.3.0's own classes in one JVM for the whole run; only for tests marked `kafka`."""
    require_kafka()
    from tests.support.kafka import KafkaHarness

    with KafkaHarness() as harness:
        yield harness


@pytest.fixture(scope="session")
def newer_kafka() -> Iterator[KafkaHarness]:
    """The same for Kafka 4.4.0."""
    require_kafka()
    from tests.support.kafka import NEWER_KAFKA_VERSION, KafkaHarness

    with KafkaHarness(version=NEWER_KAFKA_VERSION) as harness:
        yield harness
