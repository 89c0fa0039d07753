"""`ReleasedBroker`: a real broker of any release from 0.11 on, on the loopback interface; its log directory stays.

Before 3.3 it needs a `ZooKeeper`, which goes on while the broker is stopped or killed and started again. From 3.3 on it
is broker and controller in one. Jars come through Maven.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from seglog.kafka_version import KafkaVersion
from tests.support.kafka.broker import (
    NODE_ID,
    QUICK_COMPILER,
    SETTINGS,
    START_LIMIT_SECONDS,
    Broker,
    free_ports,
    with_dynamic_quorum,
    without_expiry,
)
from tests.support.kafka.jvm import SOURCES, compiled, find_java, kafka_jars, maven_jars

FIRST_OF_KRAFT = KafkaVersion(3, 3)
FIRST_OF_SCALA_2_13 = KafkaVersion(2, 8)
SESSION_MS = 4000
ZOOKEEPER_MAIN = "org.apache.zookeeper.server.ZooKeeperServerMain"
LOG4J = """\
log4j.rootLogger=WARN, err
log4j.appender.err=org.apache.log4j.ConsoleAppender
log4j.appender.err.target=System.err
log4j.appender.err.layout=org.apache.log4j.PatternLayout
log4j.appender.err.layout.ConversionPattern=%p %c{1}: %m%n
"""

# For releases up to the first item: a jar that goes before its own on Java 17.
MENDED_FOR_OUR_JAVA = (
    (KafkaVersion(0, 11), "javax.xml.bind", "jaxb-api", "2.3.1"),  # no longer in Java
    (KafkaVersion(2, 3), "org.apache.zookeeper", "zookeeper", "3.4.12"),  # 3.4.13 and .14 misread a host's name
)


class ZooKeeper:
    """The ZooKeeper of a cluster of `release`, without anything in it. Starts when made; a context manager ends it."""

    def __init__(self, release: str, work_directory: Path) -> None:
        work_directory.mkdir(parents=True, exist_ok=True)
        self.address = f"127.0.0.1:{free_ports(1)[0]}"
        self._log = work_directory / "zookeeper.log"
        self._gone_at = 0.0
        configuration = work_directory / "zookeeper.properties"
        lines = {
            "dataDir": work_directory / "zookeeper",
            "clientPort": self.address.rpartition(":")[2],
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
            "tickTime": SESSION_MS // 4,
        }
        configuration.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        java = [find_java(), "-Xmx128m", "-XX:+UseSerialGC", *QUICK_COMPILER, "-Dzookeeper.jmx.log4j.disable=true"]
        with self._log.open("ab") as log:
            command = [*java, "-cp", classpath_of(release), ZOOKEEPER_MAIN, configuration]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._wait()

    def __enter__(self) -> ZooKeeper:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """Ends it; its data are of no use without the process."""
        self._process.kill()
        self._process.wait()

    def broker_was_killed(self) -> None:
        """To be told of a broker that could not say goodbye: its name stays taken until its session expires."""
        self._gone_at = time.monotonic() + 1.5 * SESSION_MS / 1000

    def wait_until_free(self) -> None:
        """Returns when a broker may take the name of one that was killed."""
        time.sleep(max(0.0, self._gone_at - time.monotonic()))

    def _wait(self) -> None:
        host, port = self.address.split(":")
        deadline = time.monotonic() + START_LIMIT_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                socket.create_connection((host, int(port)), timeout=1).close()
                return
            except OSError:
                time.sleep(0.1)
        self.end()
        raise RuntimeError(f"ZooKeeper did not start:\n{self._log.read_text()[-2000:]}")


class ReleasedBroker(Broker):
    """A broker of `release` ("2.8.2"). Starts when made, as `Broker` does, and takes the same settings.

    With `dynamic` the voters of its quorum stand in its metadata. `prepare` gets the broker before it starts. `ports`
    are those of its clients and of its controller, where they must be the same again.
    """

    def __init__(
        self,
        release: str,
        log_directory: Path,
        work_directory: Path,
        *,
        zookeeper: ZooKeeper | None = None,
        settings: Mapping[str, str] | None = None,
        dynamic: bool = False,
        prepare: Callable[[ReleasedBroker], None] = lambda _broker: None,
        ports: Sequence[int] = (),
    ) -> None:
        self.release, self.version = release, KafkaVersion.parse(release)
        self.log_directory, self._zookeeper = log_directory, zookeeper
        self._heap, self._echo, self._user = "384m", 2, None
        self._compiler = QUICK_COMPILER
        work_directory.mkdir(parents=True, exist_ok=True)
        self.log_file = work_directory / "broker.log"
        self._properties = work_directory / "server.properties"
        self._loading = ["-cp", classpath_of(release)]
        port, other_port = ports or free_ports(2)
        self.bootstrap = f"127.0.0.1:{port}"
        properties = {"listeners": f"PLAINTEXT://{self.bootstrap}", "log.dirs": str(log_directory)}
        if zookeeper is None:
            properties["listeners"] += f",CONTROLLER://127.0.0.1:{other_port}"
            properties |= {**SETTINGS, "controller.quorum.voters": f"{NODE_ID}@127.0.0.1:{other_port}"}
        else:
            properties |= _of_zookeeper(zookeeper)
            log4j = work_directory / "log4j.properties"
            log4j.write_text(LOG4J)
            self._compiler = [*QUICK_COMPILER, f"-Dlog4j.configuration=file:{log4j}"]
        properties = without_expiry({**properties, **(settings or {})})
        if dynamic:
            properties = with_dynamic_quorum(properties)
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        log_directory.mkdir(parents=True, exist_ok=True)
        if zookeeper is None:
            self._format(*(["--standalone"] if dynamic else []))
        else:
            zookeeper.wait_until_free()
        prepare(self)
        self.process = self._start()

    def kill(self) -> None:
        super().kill()
        if self._zookeeper is not None:
            self._zookeeper.broker_was_killed()


def _of_zookeeper(zookeeper: ZooKeeper) -> dict[str, str]:
    of_kraft = ("process.", "node.", "controller.", "inter.", "share.", "log.initial")
    return {
        **{name: value for name, value in SETTINGS.items() if not name.startswith(of_kraft)},
        "broker.id": str(NODE_ID),
        "zookeeper.connect": zookeeper.address,
        "zookeeper.session.timeout.ms": str(SESSION_MS),
        "zookeeper.connection.timeout.ms": "60000",
    }


def classpath_of(release: str) -> str:
    """The jars of a release's broker, after a binding that writes its warnings to standard error."""
    version = KafkaVersion.parse(release)
    scala = "2.13" if version >= FIRST_OF_SCALA_2_13 else "2.12"
    jars = kafka_jars(release, (f"kafka_{scala}",))
    before = [str(compiled(SOURCES / "org" / "slf4j", jars))]
    for last, group, name, number in MENDED_FOR_OUR_JAVA:
        if version <= last:
            mended = maven_jars(f"{name}-{number}", [(group, name, number)], dependencies=False)
            before.append(str(mended / f"{name}-{number}.jar"))
    return os.pathsep.join((*before, f"{jars}/*"))
