"""A real schema registry: Apicurio, which speaks Confluent's REST API, on loopback and in memory."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any, Self
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from tests.support.kafka.broker import free_ports
from tests.support.kafka.jvm import find_java, maven_archive

VERSION = "3.0.9"  # the newest that is there for Java 17
STARTS_WITHIN = 90  # seconds


class Apicurio:
    """Runs from `with` on; `url` is where Confluent's API is."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __enter__(self) -> Self:
        home = maven_archive("io.apicurio", "apicurio-registry-app", VERSION, "all")
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
        options = ["-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dquarkus.http.host=127.0.0.1"]
        command = [find_java("java"), *options, f"-Dquarkus.http.port={port}", "-jar"]
        self._log = (self._directory / "apicurio.log").open("wb")
        self._process = subprocess.Popen(
            [*command, home / f"apicurio-registry-app-{VERSION}-runner.jar"],
            stdout=self._log,
            stderr=subprocess.STDOUT,
            cwd=self._directory,
        )
        self._wait()
        return self

    def _wait(self) -> None:
        end = time.monotonic() + STARTS_WITHIN
        while True:
            try:
                assert self.asked("GET", "/subjects") == []
                return
            except URLError as error:
                if self._process.poll() is not None or time.monotonic() > end:
                    self.__exit__()
                    said = Path(self._log.name).read_text()[-4000:]
                    raise RuntimeError(f"Apicurio did not start:\n{said}") from error
                time.sleep(0.5)

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()

    def asked(self, method: str, path: str, body: Any = None) -> Any:
        """The answer to a request."""
        data = None if body is None else json.dumps(body).encode()
        request = Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urlopen(request, timeout=20) as answer:
                return json.loads(answer.read())
        except HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.code} {error.read()[:500]!r}") from error

    def register(self, subject: str, schema: Any, kind: str = "AVRO", *references: tuple[str, str, int]) -> int:
        """Registers a version; returns its id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        names = [dict(zip(("name", "subject", "version"), one, strict=True)) for one in references]
        body = {"schema": text, "schemaType": kind, "references": names}
        return int(self.asked("POST", f"/subjects/{subject}/versions", body)["id"])
