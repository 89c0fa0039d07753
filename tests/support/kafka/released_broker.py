"""`ReleasedBroker`: a real broker of any release from 0.11 on, on the loopback interface; its log directory stays.

Before 3.3 it has a ZooKeeper beside it, whose data lie in the work directory: a broker that starts again on the log
directory needs the same work directory. From 3.3 on it is broker and controller in one. Jars come through Maven.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from seglog.kafka_version import KafkaVersion
from tests.support.kafka.broker import (
    CLUSTER_ID,
    NODE_ID,
    QUICK_COMPILER,
    SETTINGS,
    START_LIMIT_SECONDS,
    Broker,
    free_ports,
)
from tests.support.kafka.jvm import SOURCES, compiled, kafka_jars

FIRST_OF_KRAFT = KafkaVersion(3, 3)
FIRST_OF_SCALA_2_13 = KafkaVersion(2, 8)
SESSION_MS = 4000
ZOOKEEPER_MAIN = "org.apache.zookeeper.server.ZooKeeperServerMain"


class ReleasedBroker(Broker):
    """A broker of `release` ("2.8.2"). Starts when made, as `Broker` does, and takes the same settings."""

    def __init__(
        self, release: str, log_directory: Path, work_directory: Path, *, settings: Mapping[str, str] | None = None
    ) -> None:
        self.release, self.version = release, KafkaVersion.parse(release)
        self.log_directory = log_directory
        self._heap, self._echo, self._user = "384m", 2, None
        self._compiler = QUICK_COMPILER
        self._work = work_directory
        work_directory.mkdir(parents=True, exist_ok=True)
        self.log_file = work_directory / "broker.log"
        self._properties = work_directory / "server.properties"
        self._class_path = classpath_of(release)
        port, self._other_port = free_ports(2)
        self.bootstrap = f"127.0.0.1:{port}"
        self._zookeeper: subprocess.Popen[bytes] | None = None
        addresses = {"listeners": f"PLAINTEXT://{self.bootstrap}", "log.dirs": str(log_directory)}
        own = self._of_kraft() if self.is_kraft else self._of_zookeeper()
        lines = (f"{name}={value}\n" for name, value in {**own, **addresses, **(settings or {})}.items())
        if self.is_kraft:
            addresses["listeners"] += f",CONTROLLER://127.0.0.1:{self._other_port}"
            lines = (f"{name}={value}\n" for name, value in {**own, **addresses, **(settings or {})}.items())
        self._properties.write_text("".join(lines))
        log_directory.mkdir(parents=True, exist_ok=True)
        try:
            if self.is_kraft:
                self._format()
            else:
                self._zookeeper = self._start_zookeeper()
            self.process = self._start()
        except BaseException:
            self._end_zookeeper()
            raise

    @property
    def is_kraft(self) -> bool:
        """True if it has its own controller."""
        return self.version >= FIRST_OF_KRAFT

    def stop(self) -> None:
        super().stop()
        self._end_zookeeper()

    def kill(self) -> None:
        super().kill()
        self._end_zookeeper()

    def _of_kraft(self) -> dict[str, str]:
        return {**SETTINGS, "controller.quorum.voters": f"{NODE_ID}@127.0.0.1:{self._other_port}"}

    def _of_zookeeper(self) -> dict[str, str]:
        kept = {
            name: value
            for name, value in SETTINGS.items()
            if not name.startswith(("process.", "node.", "controller.", "inter.", "share.", "log.initial"))
        }
        return {
            **kept,
            "broker.id": str(NODE_ID),
            "zookeeper.connect": f"127.0.0.1:{self._other_port}",
            "zookeeper.session.timeout.ms": str(SESSION_MS),
            "zookeeper.connection.timeout.ms": "60000",
        }

    def _start_zookeeper(self) -> subprocess.Popen[bytes]:
        data = self._work / "zookeeper"
        again = data.exists()
        data.mkdir(exist_ok=True)
        configuration = self._work / "zookeeper.properties"
        lines = {
            "dataDir": data,
            "clientPort": self._other_port,
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
            "tickTime": SESSION_MS // 4,
        }
        configuration.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        with (self._work / "zookeeper.log").open("ab") as log:
            command = self._java("-Dzookeeper.jmx.log4j.disable=true", ZOOKEEPER_MAIN, configuration)
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + START_LIMIT_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self._other_port), timeout=1).close()
                time.sleep(1.5 * SESSION_MS / 1000 if again else 0)  # a killed broker's registration must expire
                return process
            except OSError:
                time.sleep(0.2)
        process.kill()
        process.wait()
        raise RuntimeError(f"ZooKeeper did not start:\n{(self._work / 'zookeeper.log').read_text()[-2000:]}")

    def _end_zookeeper(self) -> None:
        if self._zookeeper is not None and self._zookeeper.poll() is None:
            self._zookeeper.kill()
            self._zookeeper.wait()

    def _format(self) -> None:
        if not (self.log_directory / "meta.properties").exists():
            command = self._java("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", self._properties)
            done = subprocess.run(command, capture_output=True, text=True, timeout=START_LIMIT_SECONDS, check=False)
            if done.returncode != 0:
                raise RuntimeError(f"{self.log_directory} could not be formatted:\n{done.stdout + done.stderr}")


def classpath_of(release: str) -> str:
    """The jars of a release's broker, after a binding that writes its warnings to standard error."""
    scala = "2.13" if KafkaVersion.parse(release) >= FIRST_OF_SCALA_2_13 else "2.12"
    artifact = f"kafka_{scala}"
    jars = kafka_jars(release, (artifact,))
    return f"{compiled(SOURCES / 'org' / 'slf4j', jars)}:{jars}/*"
