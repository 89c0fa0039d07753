"""`Broker`: a real single-node KRaft broker 4.3.0 on the loopback interface; its log directory stays.

1. Format the log directory with Kafka's StorageTool unless a broker has left its meta.properties there.
2. Start on two free ports; ready when a client sees the broker.
3. `stop()` shuts down in order (clean-shutdown marker written); `kill()` ends the process as SIGKILL does.

A KRaft broker sets aside partitions whose topic its metadata log does not know: let it create the topics,
stop it, change the partitions, and start it again on the same directory.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tests.support.kafka import archive
from tests.support.kafka.jvm import KAFKA_VERSION, find_java, kafka_classpath

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

START_LIMIT_SECONDS = 300
STOP_LIMIT_SECONDS = 60
NODE_ID, SECOND_NODE_ID = 1, 2
QUICK_COMPILER = ["-XX:TieredStopAtLevel=1"]  # enough for a process of a few seconds
CLUSTER_ID = "c2VnbG9nLXRlc3RzLS0tLQ"  # any 16 bytes; fixed, so that directories of several runs fit together

SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": str(NODE_ID),
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "2",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "1000",
    "log.cleaner.dedupe.buffer.size": str(16 << 20),
    "log.initial.task.delay.ms": "500",
    "num.network.threads": "2",
    "num.io.threads": "2",
}

# Fixtures grow older than Kafka's seven days of records, offsets, transactional ids, snapshots and rolls. What a broker
# of a test does must not depend on the day: nothing of this expires, unless the test itself names a key of the kind.
FOREVER = {
    "log.retention.ms": "-1",
    "log.roll.ms": str(2**63 - 1),
    "metadata.max.retention.ms": "-1",
    "offsets.retention.minutes": str(2**31 - 1),
    "transaction.remove.expired.transaction.cleanup.interval.ms": str(2**31 - 1),  # ids expire after at most 24 days
}


def without_expiry(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties with those of `FOREVER` that they do not set, in any unit of time."""
    rest = {
        name: value
        for name, value in FOREVER.items()
        if properties.keys().isdisjoint(f"{name.rpartition('.')[0]}.{unit}" for unit in ("ms", "minutes", "hours"))
    }
    return {**rest, **properties}


def with_dynamic_quorum(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties of a controller whose quorum's voters stand in the metadata (KIP-853)."""
    address = properties["controller.quorum.voters"].partition("@")[2]
    rest = {name: value for name, value in properties.items() if name != "controller.quorum.voters"}
    return {**rest, "controller.quorum.bootstrap.servers": address}


class Broker:
    """Starts when made; a context manager stops it. RuntimeError with its own log when it ends, TimeoutError when it
    takes too long.

    `log_directory` may hold partitions already. `settings` are added to server.properties. The working files
    (configuration and log) go to `work_directory`, default beside the log directory. `echo` is what its log holds:
    2 warnings and errors, 3 also what it tells while it starts. With `user` (only root may) the broker runs as that
    user, who must be able to get at the log directory; it gets copies of the jars there, too. With `beside` it is a
    node of that broker's cluster, without a controller (the second one unless `settings` say otherwise). A node that is
    not `alone` is a controller that has brokers beside it, and no listener for clients. One whose speed is `measured`
    has the JVM's whole compiler. `release` is a 4.3 or 4.4. With `dynamic` the voters of its quorum stand in its
    metadata; a controller is then formatted to stand alone. `loading` are the JVM's options to find Kafka's classes.
    """

    def __init__(
        self,
        log_directory: Path,
        *,
        settings: Mapping[str, str] | None = None,
        work_directory: Path | None = None,
        heap: str = "512m",
        echo: int = 2,
        user: int | None = None,
        beside: Broker | None = None,
        alone: bool = True,
        measured: bool = False,
        release: str = KAFKA_VERSION,
        dynamic: bool = False,
        loading: Sequence[str] | None = None,
    ) -> None:
        self.log_directory = log_directory
        self._compiler = [] if measured else QUICK_COMPILER
        self._heap, self._echo, self._user = heap, echo, user
        work = work_directory or log_directory.with_name(log_directory.name + ".broker")
        work.mkdir(parents=True, exist_ok=True)
        if loading is None:
            loading = archive.loading(release) if user is None else ["-cp", copied_jars(work, user, release)]
        self._loading = loading
        self.log_file = work / "broker.log"
        self._properties = work / "server.properties"
        voters = None if beside is None else beside.voters
        properties = server_properties(log_directory, settings, beside=voters, alone=alone)
        listener = properties.get("advertised.listeners", properties["listeners"])
        self.bootstrap = listener.rpartition("//")[2]
        self.voters = properties["controller.quorum.voters"]
        if dynamic:
            properties = with_dynamic_quorum(properties)
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        self._format(*(["--standalone"] if dynamic and beside is None else []))
        self.process = self._start()

    def __enter__(self) -> Broker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.stop()

    @property
    def properties_file(self) -> Path:
        """Its server.properties."""
        return self._properties

    def stop(self) -> None:
        """Shuts down in order and waits for it; RuntimeError when the broker does not end by itself."""
        self.process.terminate()
        try:
            self.process.wait(timeout=STOP_LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise RuntimeError(f"the broker did not stop in order:\n{self.log_text()}") from None

    def kill(self) -> None:
        """Ends the process at once, as a power cut ends it for the log directory's users."""
        self.process.kill()
        self.process.wait()

    def admin(self) -> AdminClient:
        """A new confluent-kafka AdminClient for this broker."""
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.bootstrap})

    def create_topic(self, topic: str, partitions: int = 1, **config: object) -> None:
        """Creates a topic; configuration names with underscores for dots (`cleanup_policy="compact"`)."""
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

        settings = {name.replace("_", "."): str(value) for name, value in config.items()}
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=settings)
        admin = self.admin()  # must outlive the request: its end cancels what is under way
        admin.create_topics([new])[topic].result(30)

    def configure_brokers(self, values: Mapping[str, str], node: str = "") -> None:
        """Sets dynamic values of one broker, or without `node` of all of them (Kafka's own tool: librdkafka takes no
        empty name)."""
        entity = ["--entity-name", node] if node else ["--entity-default"]
        added = ",".join(f"{key}={value}" for key, value in values.items())
        said = ["--bootstrap-server", self.bootstrap, "--entity-type", "brokers", "--alter", "--add-config", added]
        command = self._java("kafka.admin.ConfigCommand", *said, *entity)
        done = subprocess.run(command, capture_output=True, text=True, timeout=START_LIMIT_SECONDS, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"the brokers could not be configured:\n{done.stdout + done.stderr}")

    def log_text(self) -> str:
        """The end of what the broker said (warnings and errors)."""
        return self.log_file.read_text(errors="replace")[-6000:] if self.log_file.exists() else ""

    def _java(self, *arguments: str | Path) -> list[str | Path]:
        return [find_java(), f"-Xmx{self._heap}", "-XX:+UseSerialGC", *self._compiler, "-Djava.awt.headless=true",
                f"-Dseglogkafka.echo={self._echo}", *self._loading, *arguments]  # fmt: skip

    def _format(self, *options: str) -> None:
        if (self.log_directory / "meta.properties").exists():
            return
        self.log_directory.mkdir(parents=True, exist_ok=True)
        self.storage_tool("format", "-t", CLUSTER_ID, "-c", str(self._properties), *options)

    def storage_tool(self, *arguments: str) -> None:
        """Runs kafka-storage. RuntimeError with what it said if it fails."""
        done = subprocess.run(
            self._java("kafka.tools.StorageTool", *arguments),
            capture_output=True,
            text=True,
            timeout=START_LIMIT_SECONDS,
            check=False,
            **self._as_user(),
        )
        if done.returncode != 0:
            raise RuntimeError(f"kafka-storage {' '.join(arguments)}:\n{done.stdout + done.stderr}")

    def _start(self) -> subprocess.Popen[bytes]:
        with self.log_file.open("ab") as log:
            command = self._java("kafka.Kafka", self._properties)
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **self._as_user())
        deadline = time.monotonic() + START_LIMIT_SECONDS
        while not self._answers():
            if process.poll() is not None:
                raise RuntimeError(f"the broker did not start on {self.log_directory}:\n{self.log_text()}")
            if time.monotonic() > deadline:
                process.kill()
                process.wait()
                raise TimeoutError(f"the broker is still starting on {self.log_directory}:\n{self.log_text()}")
            time.sleep(0.2)
        return process

    def _as_user(self) -> dict[str, Any]:
        return {} if self._user is None else {"user": self._user, "group": self._user, "extra_groups": ()}

    def _answers(self) -> bool:
        """A client can talk to the broker: the port is open, and metadata names it."""
        host, port = self.bootstrap.split(":")
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except OSError:
            return False
        from confluent_kafka import KafkaException

        try:
            return bool(self.admin().list_topics(timeout=5).brokers)
        except KafkaException:
            return False


def server_properties(
    log_directory: Path,
    settings: Mapping[str, str] | None = None,
    *,
    beside: str | None = None,
    alone: bool = True,
) -> dict[str, str]:
    """The server.properties of a broker on free ports; `beside` are the voters of a cluster that it joins without a
    controller. Without `alone` it is a controller only."""
    port, controller_port = free_ports(2)
    node = (settings or {}).get("node.id", NODE_ID)
    own = f"PLAINTEXT://127.0.0.1:{port}"
    addresses = {
        "controller.quorum.voters": f"{node}@127.0.0.1:{controller_port}" if beside is None else beside,
        "listeners": own,
        "advertised.listeners": own,
        "log.dirs": str(log_directory),
    }
    if beside is None:
        controllers = f"CONTROLLER://127.0.0.1:{controller_port}"
        addresses["listeners"] = f"{own},{controllers}" if alone else controllers
        if not alone:
            del addresses["advertised.listeners"]
    else:
        addresses |= {"process.roles": "broker", "node.id": str(SECOND_NODE_ID)}
    return without_expiry({**SETTINGS, **addresses, **(settings or {})})


def copied_jars(work: Path, user: int, version: str = KAFKA_VERSION) -> str:
    """The class path, copied to where another user may read it."""
    os.chown(work, user, user)
    copied = []
    for i, entry in enumerate(kafka_classpath(version).split(os.pathsep)):
        source, target = Path(entry.removesuffix("/*")), work / "jars" / str(i)
        if not target.exists():
            shutil.copytree(source, target)
        copied.append(f"{target}/*" if entry.endswith("/*") else str(target))
    return os.pathsep.join(copied)


def free_ports(count: int) -> list[int]:
    """Returns ports of the loopback interface that nothing listens on."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()
