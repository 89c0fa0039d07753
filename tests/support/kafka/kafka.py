"""`KafkaHarness`: one JVM that answers questions about logs with the own classes of Kafka 4.3.0, or of 4.4.0.

The Java side is `java/seglogkafka`. A request is a JSON object in a line; so is the answer, after the lines
that `list` streams. Answers have Kafka's field names (`logEndOffset`), options have ours (`segment_bytes`).
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from tests.support.kafka.jvm import KAFKA_VERSION, find_java, kafka_classpath

Answer = dict[str, Any]
Rows = list[dict[str, Any]]
Lines = list[str]
Batch = bytes | Sequence["RecordTuple"] | Mapping[str, Any]
RecordTuple = tuple[Any, ...]

ANSWER_LIMIT_SECONDS = 300


class KafkaFailure(Exception):
    """Kafka (or the harness) refused a whole request: `error` is the Java class's simple name."""

    def __init__(self, error: str, message: str, log: str = "") -> None:
        super().__init__(f"{error}: {message}{log}")
        self.error = error
        self.message = message


class DumpOutput(NamedTuple):
    """What kafka-dump-log wrote."""

    stdout: str
    stderr: str


class KafkaHarness:
    """A running JVM; use as a context manager, or `close()` it. Not for use by several threads at once.

    It starts quickly and stays small; with `measuring` it has the collector and compiler that a broker runs with.
    """

    def __init__(self, heap: str = "512m", *, measuring: bool = False, version: str = KAFKA_VERSION) -> None:
        quick = [] if measuring else ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        flags = [f"-Xmx{heap}", *quick, "-Djava.awt.headless=true"]
        command = [str(find_java()), *flags, "-cp", kafka_classpath(version), "seglogkafka.Harness"]
        self._log = tempfile.TemporaryFile("w+", prefix="seglog-kafka-")  # noqa: SIM115 (lives as long as the JVM)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, encoding="utf-8"
        )

    def __enter__(self) -> KafkaHarness:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def cpu_seconds(self) -> float:
        """User and system time of the JVM so far, that of its compiler and collector included."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        """Ends the JVM; open logs (`unclean=True`) are left as a kill leaves them."""
        if self._process.stdin and not self._process.stdin.closed:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()
        self._log.close()

    # ---- requests

    def generate(self, directory: Path, **options: Any) -> Answer:
        """Writes `directory/TOPIC-N`; answers offsets, counts and segments of each partition."""
        return self._ask("generate", directory=directory, **options)

    def list(self, path: Path, **options: Any) -> Rows:
        """Batches and records of a directory or one .log (options: `fields`, `batches_only`, `validate`)."""
        return [json.loads(line) for line in self.list_lines(path, **options)]

    def list_lines(self, path: Path, **options: Any) -> Lines:
        """The same as canonical JSON text; `digest` is the SHA-256 of these with a newline after each."""
        lines: Lines = []
        self._ask("list", lines, path=path, **options)
        return lines

    def digest(self, path: Path, **options: Any) -> Answer:
        """SHA-256 of the canonical lines, with counts."""
        return self._ask("digest", path=path, **options)

    def index(self, directory: Path) -> Answer:
        """File name → size, sha256 and entries (or lines, or error) of every file that is not a .log."""
        return self._ask("index", directory=directory)

    def clean(self, directory: Path, **options: Any) -> Answer:
        """Passes of Kafka's Cleaner; a pass that failed has `error`, one with nothing to do has `skipped`."""
        return self._ask("clean", directory=directory, **options)

    def recover(self, directory: Path, **options: Any) -> Answer:
        """Opens as after a crash (`recovery_point`, default 0) and closes in order; a refusal is `error`."""
        return self._ask("recover", directory=directory, **options)

    def load(self, directory: Path, **options: Any) -> Answer:
        """Opens as after a clean shutdown and closes in order; a refusal is `error`."""
        return self._ask("load", directory=directory, **options)

    def retain(self, directory: Path, **options: Any) -> Answer:
        """UnifiedLog.deleteOldSegments under the given retention."""
        return self._ask("retain", directory=directory, **options)

    def read(self, directory: Path, offsets: int | Sequence[int], **options: Any) -> Answer:
        """UnifiedLog.read at each offset; a refusal is that result's `error`."""
        return self._ask("read", directory=directory, offsets=offsets, **options)

    def search(self, directory: Path, timestamps: int | Sequence[int], **options: Any) -> Answer:
        """UnifiedLog.fetchOffsetByTimestamp for each (-1 latest, -2 earliest, -3 largest timestamp)."""
        return self._ask("search", directory=directory, timestamps=timestamps, **options)

    def append(self, directory: Path, *batches: Batch, **options: Any) -> Answer:
        """Appends batches to a (new or existing) partition directory through UnifiedLog.

        A batch is its bytes; or a sequence of `(key, value[, timestamp[, headers]])`; or a mapping with
        `records` (such a sequence) and any of codec, magic, base_offset, producer_id, producer_epoch,
        base_sequence, transactional. `appends` of the answer has an entry a batch: LogAppendInfo, or Kafka's
        refusal as `error`.
        """
        directory.mkdir(parents=True, exist_ok=True)
        requests = [_batch(batch) for batch in batches]
        return self._ask("append", directory=directory, batches=requests, **options)

    def live(self, directory: Path, step: str, **options: Any) -> Answer:
        """One step with a log that stays open: open, append, truncate_to, truncate_fully, delete_records, retain, roll,
        high_watermark, flush, wait, close, or kill (LiveLog.java). `state` says what it is like then; a refusal is
        `error`.
        """
        return self._ask("live", directory=directory, do=step, **options)

    def measure(self, directory: Path, what: str, **options: Any) -> list[float]:
        """Seconds that Kafka's classes took, a run each (Timing.java says what can be measured)."""
        answer = self._ask("measure", directory=directory, what=what, **options)
        return [float(seconds) for seconds in answer["seconds"]]

    def dump_log(self, *arguments: str | Path) -> DumpOutput:
        """Runs kafka-dump-log; a status other than 0 raises KafkaFailure with both outputs in it."""
        answer = self._ask("dump_log", arguments=[str(argument) for argument in arguments])
        if answer["status"] != 0:
            said = f"{answer['stdout']}\n{answer['stderr']}"
            raise KafkaFailure("DumpLogSegments", f"status {answer['status']}\n{said}")
        return DumpOutput(answer["stdout"], answer["stderr"])

    def image(self, records: Sequence[bytes]) -> Sequence[bytes]:
        """The records of a snapshot of the cluster that these metadata records describe."""
        answer = self._ask("image", records=[_base64(record) for record in records])
        return [base64.b64decode(record) for record in answer["records"]]

    def known(self) -> Answer:
        """`metadataVersions` by level, the `latest`, other `features`, and the defaults of `topicKeys`."""
        return self._ask("known")

    # ---- the line protocol

    def _ask(self, command: str, lines: Lines | None = None, **fields: Any) -> Answer:
        request = json.dumps({"command": command, **fields}, default=str)
        watchdog = threading.Timer(ANSWER_LIMIT_SECONDS, self._process.kill)
        watchdog.start()
        try:
            answer = self._exchange(request, lines)
        finally:
            watchdog.cancel()
        failure = answer.get("failure")
        if failure is not None:
            raise KafkaFailure(failure["error"], failure["message"])
        result: Answer = answer["answer"]
        return result

    def _exchange(self, request: str, lines: Lines | None) -> Answer:
        assert self._process.stdin and self._process.stdout
        try:
            self._process.stdin.write(request + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None
        for line in self._process.stdout:
            if lines is not None and line.startswith('{"t":'):
                lines.append(line.removesuffix("\n"))
            else:
                answer: Answer = json.loads(line)
                return answer
        raise self._ended()

    def _ended(self) -> KafkaFailure:
        status = self._process.wait()
        self._log.seek(0)
        said = self._log.read()[-4000:]
        return KafkaFailure("JvmEnded", f"the JVM ended with status {status}", f"\n{said}")


def _batch(batch: Batch) -> Mapping[str, Any]:
    if isinstance(batch, bytes):
        return {"data": base64.b64encode(batch).decode()}
    if isinstance(batch, Mapping):
        return {**batch, "records": [_record(*record) for record in batch["records"]]}
    return {"records": [_record(*record) for record in batch]}


def _record(
    key: bytes | None,
    value: bytes | None,
    timestamp: int | None = None,
    headers: Iterable[tuple[str, bytes | None]] = (),
) -> Mapping[str, Any]:
    pairs = [[name, _base64(own)] for name, own in headers]
    fields = {"key": _base64(key), "value": _base64(value), "headers": pairs}
    return fields if timestamp is None else {**fields, "timestamp": timestamp}


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()
