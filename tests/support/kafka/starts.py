"""`Starts`: real brokers of one release, one after the other in one warm JVM: a start takes a second, not ten.

A broker whose start ends its process ends only itself here (see `java/seglogkafka/Starts.java`). It leaves threads
behind, so the JVM is replaced after some of them.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from tests.support.kafka import archive
from tests.support.kafka.broker import QUICK_COMPILER, copied_jars, server_properties
from tests.support.kafka.jvm import KAFKA_VERSION, find_java

_REFUSALS_A_JVM = 6  # the threads of each go on asking for a controller


class Starts:
    """A context manager. `work` gets the brokers' properties and what they say (`log`). `release` is a 4.3 or 4.4.

    With `user` (only root may) the brokers run as that user, who must be able to get at the log directories. `echo` is
    as for `Broker`.
    """

    def __init__(self, work: Path, *, user: int | None = None, release: str = KAFKA_VERSION, echo: int = 3) -> None:
        self._work, self._user, self._release, self._echo = work, user, release, echo
        self._process: subprocess.Popen[str] | None = None
        self._refusals = 0
        self.log = work / "brokers.log"
        work.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Starts:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def start(self, log_directories: list[Path], settings: Mapping[str, str]) -> str:
        """Starts a broker; returns "" if it has started, else why it has not."""
        properties = {**server_properties(log_directories[0]), "log.dirs": ",".join(map(str, log_directories))}
        return self.start_with({**properties, **settings})

    def start_with(self, properties: Mapping[str, str]) -> str:
        """Starts a node on these properties; returns "" if it has started, else why it has not."""
        if self._process is None:
            self._process = self._begin()
        path = self._work / "server.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        answer = self._asked(str(path))
        refusal = answer.removeprefix("refused: ") if answer != "started" else ""
        self._refusals += bool(refusal)
        return refusal

    def end(self) -> str:
        """Ends the broker; returns why it had ended by itself since it started, "" if it had not."""
        answer = self._asked("end")
        if self._refusals >= _REFUSALS_A_JVM:
            self._end()
        return answer.removeprefix("ended").removeprefix(": ")

    def _asked(self, line: str) -> str:
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        process.stdin.write(f"{line}\n")
        process.stdin.flush()
        answer = process.stdout.readline().rstrip("\n")
        if not answer:
            raise RuntimeError(f"the brokers' JVM has ended:\n{self.log.read_text(errors='replace')[-4000:]}")
        return answer

    def _begin(self) -> subprocess.Popen[str]:
        self._refusals = 0
        release, user = self._release, self._user
        loading = archive.loading(release) if user is None else ["-cp", copied_jars(self._work, user, release)]
        command: list[str | Path] = [find_java(), "-Xmx1g", "-XX:+UseSerialGC", *QUICK_COMPILER]
        command += ["-Djava.awt.headless=true", f"-Dseglogkafka.echo={self._echo}", *loading]
        command.append("seglogkafka.Starts")
        as_user = {} if self._user is None else {"user": self._user, "group": self._user, "extra_groups": ()}
        with self.log.open("ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                **as_user,  # type: ignore[arg-type]
            )

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
