"""Fixtures and rules for all tests, and their two tiers.

Without an option pytest runs the first tier: what takes minutes. Tests against Kafka's classes run on its recorded
answers there (`tests.support.kafka.recorded`); one smoke test of a broker and one of Spark (`smoke`) run live.
`--whole` runs everything. Effort is in `tests.support.effort`.

Tests marked `kafka` or `spark` need Java: without it they skip with the reason, or fail under
SEGLOG_REQUIRE_JAVA=1.
Under pytest-xdist's `--dist loadgroup` each of the two kinds runs in one worker, so there is one JVM of each.
A file that starts brokers of its own, and asks no class of Kafka's, is a group of its own: brokers wait more than they
work, and the longest group ends the run.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.support import native_library
from tests.support.kafka.recorded import RecordingKafka, ReplayedKafka, recorded_tests
from tests.support.memory_disk import use_memory
from tests.support.requirements import require_java, require_kafka

if TYPE_CHECKING:
    from tests.support.kafka import KafkaHarness

# Under numba's JIT the first call of a kernel compiles it: time is no failure anywhere in these tests.
settings.register_profile("seglog", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("seglog")

JVM_MARKERS = ("kafka", "spark")
HARNESSES = {"kafka", "newer_kafka"}  # the fixtures with a JVM for the whole run
SECOND_TIER = (*JVM_MARKERS, "slow")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("seglog")
    group.addoption("--whole", action="store_true", help="run the second tier too: live Kafka, Spark, long searches")
    group.addoption("--second", action="store_true", help="run only what --whole adds to the first tier")
    group.addoption("--record-kafka", action="store_true", help="ask real Kafka, and keep its answers in fixtures/")


def pytest_configure(config: pytest.Config) -> None:
    """Tests run what users get: the native library of these very sources. Their files lie in memory."""
    if not hasattr(config, "workerinput"):  # once, not in each process of pytest-xdist
        native_library.make_current()
        use_memory(config)


def pytest_report_header() -> str:
    from seglog.kernels._mode import MODE

    return f"kernels: {MODE.name} ({MODE.detail})"


def _is_recorded(item: pytest.Item) -> bool:
    return item.get_closest_marker("kafka") is not None and item.name in recorded_tests(item.path.stem)


def _is_first_tier(item: pytest.Item) -> bool:
    later = any(item.get_closest_marker(marker) for marker in SECOND_TIER)
    return not later or item.get_closest_marker("smoke") is not None or _is_recorded(item)


def _is_second_tier(item: pytest.Item) -> bool:
    """Recorded tests are of both tiers: the second asks Kafka itself."""
    return not _is_first_tier(item) or _is_recorded(item)


def _is_live(config: pytest.Config) -> bool:
    """Whether `kafka` is the real one."""
    return bool(config.getoption("whole") or config.getoption("second") or config.getoption("record_kafka"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("whole") and not config.getoption("record_kafka"):
        wanted = _is_second_tier if config.getoption("second") else _is_first_tier
        chosen: dict[bool, list[pytest.Item]] = {True: [], False: []}
        for item in items:
            chosen[wanted(item)].append(item)
        config.hook.pytest_deselected(items=chosen[False])
        items[:] = chosen[True]
    if not config.pluginmanager.hasplugin("xdist") or not _is_live(config):
        return
    of_harness = {item.path for item in items if HARNESSES & set(getattr(item, "fixturenames", ()))}
    for item in items:
        for marker in JVM_MARKERS:
            if item.get_closest_marker(marker) and not item.get_closest_marker("xdist_group"):
                alone = marker == "kafka" and item.path not in of_harness
                item.add_marker(pytest.mark.xdist_group(item.path.stem if alone else marker))


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Refuses a pytest-xdist that does not keep groups: each process would start brokers of its own."""
    if not session.config.getoption("loadgroup", False):
        return
    for item in session.items:
        group = item.get_closest_marker("xdist_group")
        if group is not None and not item.nodeid.endswith(f"@{group.args[0]}"):
            raise pytest.UsageError(f"pytest {pytest.__version__} and pytest-xdist do not keep groups: {item.nodeid}")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("spark"):
        require_java()
    if item.get_closest_marker("kafka") and (_is_live(item.config) or not _is_recorded(item)):
        require_kafka()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call" and report.passed and _kafka is not None and isinstance(_kafka, RecordingKafka):
        _kafka.passed(item.path.stem, item.name)
    return report


@pytest.fixture
def tmp_path(tmp_path: Path) -> Path:
    """Nothing lies beside it: seglog looks for the cluster's metadata beside a log directory and beside its parent, and
    pytest keeps the directories of all tests side by side, with a link to each.
    """
    place = tmp_path / "own"
    place.mkdir()
    return place


@pytest.fixture(scope="session", autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What seglog remembers of its own doing goes to a directory of this run, never to the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


_kafka: KafkaHarness | None = None


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest) -> Iterator[KafkaHarness]:
    """Kafka 4.3.0's own classes in one JVM for the whole run, or their recorded answers; for tests marked `kafka`."""
    global _kafka
    from tests.support.kafka import KafkaHarness

    if request.config.getoption("record_kafka"):
        _kafka = RecordingKafka()
    else:
        _kafka = KafkaHarness() if _is_live(request.config) else ReplayedKafka()
    with _kafka:
        yield _kafka
    _kafka = None


@pytest.fixture(autouse=True, scope="module")
def asked_by(request: pytest.FixtureRequest) -> None:
    """Recorded answers belong to a module; fixtures of the module ask too."""
    if request.config.getoption("record_kafka") or not _is_live(request.config):
        ReplayedKafka.module = RecordingKafka.module = request.path.stem


@pytest.fixture(scope="session")
def newer_kafka() -> Iterator[KafkaHarness]:
    """The same for Kafka 4.4.0."""
    require_kafka()
    from tests.support.kafka import NEWER_KAFKA_VERSION, KafkaHarness

    with KafkaHarness(version=NEWER_KAFKA_VERSION) as harness:
        yield harness
