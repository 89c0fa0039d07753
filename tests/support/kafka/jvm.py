"""Finds Java, fetches Kafka's jars through Maven and compiles the harness, once a machine.

Everything made here lies under `$SEGLOG_TEST_CACHE`, or `seglog-tests` in the user's cache directory; in the clone
where the user has no home to write to. A file lock lets several pytest workers ask at once.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import pwd
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

KAFKA_VERSION = "4.3.0"
NEWER_KAFKA_VERSION = "4.4.0"
OLDEST_JAVA = 17
MAVEN_LIMIT_SECONDS = 600
COMPILE_LIMIT_SECONDS = 120

SOURCES = Path(__file__).parent / "java"
CLONE = Path(__file__).resolve().parents[3]

POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>seglogkafka</groupId><artifactId>jars</artifactId><version>1</version>
  <dependencies>{dependencies}</dependencies>
</project>
"""
DEPENDENCY = (
    "<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
    "<version>{version}</version>{classifier}{exclusions}</dependency>"
)
WITHOUT_DEPENDENCIES = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"


class JavaMissing(Exception):
    """Java, its compiler or Maven is not installed or too old: says which."""


def cache_directory() -> Path:
    """Where jars and compiled classes are kept between runs."""
    named = os.environ.get("SEGLOG_TEST_CACHE")
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    base = Path(named) if named else user / "seglog-tests"
    if not named and not _can_be_made(base):
        base = CLONE / ".pytest_cache" / "seglog-tests"
    base.mkdir(parents=True, exist_ok=True)
    return base


def _can_be_made(directory: Path) -> bool:
    """Whether this user may write to a directory, or to the nearest one above it that is there."""
    there = next(path for path in (directory, *directory.parents) if path.exists())
    return os.access(there, os.W_OK | os.X_OK)


def _local_repository() -> list[str]:
    """Where Maven keeps what it fetched, if not in the home of /etc/passwd: Java does not ask HOME."""
    try:
        if _can_be_made(Path(pwd.getpwuid(os.getuid()).pw_dir) / ".m2" / "repository"):
            return []
    except KeyError:  # a user without an entry, as in some containers
        pass
    return [f"-Dmaven.repo.local={cache_directory() / 'repository'}"]


@cache
def find_java(program: str = "java") -> Path:
    """Path of `java` or `javac` (JAVA_HOME, else PATH); JavaMissing when absent or older than 17."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(str(Path(home) / "bin" / program) if home else program)
    if found is None:
        raise JavaMissing(f"{program} is not installed ({'in JAVA_HOME' if home else 'on PATH'})")
    said = subprocess.run([found, "-version"], capture_output=True, text=True, timeout=60, check=False)
    number = re.search(r"(?:version \"|javac )(\d+)", said.stderr + said.stdout)
    if number is None or int(number[1]) < OLDEST_JAVA:
        raise JavaMissing(f"{found} is not Java {OLDEST_JAVA} or later")
    return Path(found)


def kafka_jars(version: str = KAFKA_VERSION, artifacts: tuple[str, ...] = ("kafka_2.13", "kafka-tools")) -> Path:
    """Directory with all jars of a Kafka version; fetched through Maven when not there yet."""
    more = "".join(name.removeprefix("kafka") for name in artifacts if not name.startswith("kafka_"))
    return maven_jars(f"kafka-{version}{more}", [("org.apache.kafka", name, version) for name in artifacts])


def maven_jars(
    name: str, artifacts: Sequence[tuple[str, str, str]], *, dependencies: bool = True, classifier: str = ""
) -> Path:
    """Directory with the jars of artifacts (group, artifact, version), of `classifier`, and of what they depend on.

    Kept under `name` in the cache directory; fetched through Maven when not there yet.
    """
    directory = cache_directory() / name
    done = directory / "jars.complete"
    with locked(name):
        if done.exists():
            return directory / "jars"
        maven = shutil.which("mvn")
        if maven is None:
            raise JavaMissing(f"Maven (mvn) is not on PATH, and the jars of {name} have not been fetched yet")
        directory.mkdir(parents=True, exist_ok=True)
        exclusions = "" if dependencies else WITHOUT_DEPENDENCIES
        kind = f"<classifier>{classifier}</classifier>" if classifier else ""
        wanted = "".join(
            DEPENDENCY.format(group=group, artifact=artifact, version=version, classifier=kind, exclusions=exclusions)
            for group, artifact, version in artifacts
        )
        (directory / "pom.xml").write_text(POM.format(dependencies=wanted))
        _run([maven, "-q", "-B", "-f", directory / "pom.xml", "dependency:copy-dependencies",
              f"-DoutputDirectory={directory / 'jars'}", *_local_repository()], MAVEN_LIMIT_SECONDS)  # fmt: skip
        done.touch()
    return directory / "jars"


def application_jars(version: str = KAFKA_VERSION) -> Path:
    """Directory with the jars of Streams, Connect and MirrorMaker. Registries do not have the latter's of 4.4.0."""
    artifacts = [(name, version) for name in ("kafka-streams", "kafka-streams-test-utils", "connect-runtime")]
    artifacts.append(("connect-mirror", KAFKA_VERSION))
    return maven_jars(f"topics-{version}", [("org.apache.kafka", *artifact) for artifact in artifacts])


def maven_archive(group: str, artifact: str, version: str, classifier: str) -> Path:
    """Directory with what the .tar.gz of an artifact holds; fetched through Maven when not there yet."""
    directory = cache_directory() / f"{artifact}-{version}"
    with locked(directory.name):
        if not (directory / "archive.complete").exists():
            maven = shutil.which("mvn")
            if maven is None:
                raise JavaMissing(f"Maven (mvn) is not on PATH, and {directory.name} has not been fetched yet")
            directory.mkdir(parents=True, exist_ok=True)
            _run([maven, "-q", "-B", "dependency:copy",
                  f"-Dartifact={group}:{artifact}:{version}:tar.gz:{classifier}",
                  f"-DoutputDirectory={directory}", *_local_repository()], MAVEN_LIMIT_SECONDS)  # fmt: skip
            (archive,) = directory.glob("*.tar.gz")
            with tarfile.open(archive) as opened:
                opened.extractall(directory, filter="data")
            archive.unlink()
            (directory / "archive.complete").touch()
    return directory


@cache
def kafka_classpath(version: str = KAFKA_VERSION) -> str:
    """Class path of the harness, compiled against this Kafka, and of its jars; both are made when missing."""
    jars = kafka_jars(version)
    return f"{compiled(SOURCES, jars)}{os.pathsep}{jars}/*"


def compiled(sources: Path, jars: Path, *, also: Sequence[Path] = ()) -> Path:
    """Directory with the classes of every .java below `sources`, and of the files `also`; compiled anew when a source
    or the jars change."""
    files = sorted({*sources.rglob("*.java"), *also})
    parts = (str(jars).encode(), *(file.read_bytes() for file in files))
    state = hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
    classes = cache_directory() / "classes" / state
    done = classes.with_suffix(".complete")
    with locked(f"classes-{state}"):
        if not done.exists():
            classes.mkdir(parents=True, exist_ok=True)
            _run([find_java("javac"), "--release", str(OLDEST_JAVA), "-nowarn", "-Xlint:-options",
                  "-cp", f"{jars}/*", "-d", classes, *files], COMPILE_LIMIT_SECONDS)  # fmt: skip
            done.touch()
    return classes


def _run(command: list[str | Path], limit_seconds: int) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit_seconds, check=False)
    if done.returncode != 0:
        said = (done.stdout + done.stderr)[-4000:]
        raise RuntimeError(f"{Path(command[0]).name} failed ({done.returncode}):\n{said}")


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Holds a lock of this machine while something of that name is made."""
    with (cache_directory() / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
