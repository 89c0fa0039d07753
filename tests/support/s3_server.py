"""A real S3 server on loopback (moto), and directories put into a bucket of it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tests.support.object_server import SECRETS

BUCKET = "backup"
_START_S = 60.0


@contextmanager
def s3_server(log: Path) -> Iterator[dict[str, str]]:
    """The environment of its clients, while the `with` lasts; the server's own messages go to `log`."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with log.open("wb") as messages, subprocess.Popen(command, stdout=messages, stderr=messages) as process:
        try:
            _wait(process, port)
            yield {**SECRETS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}
        finally:
            process.terminate()


def _wait(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + _START_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def store_of(environment: dict[str, str]) -> Any:
    """obstore's own client of the bucket."""
    from obstore.store import S3Store

    return S3Store(
        BUCKET,
        client_options={"allow_http": True},
        endpoint=environment["AWS_ENDPOINT_URL"],
        access_key_id=environment["AWS_ACCESS_KEY_ID"],
        secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        region=environment["AWS_REGION"],
    )


def put_directory(environment: dict[str, str], directory: Path) -> str:
    """Puts a directory's files into the bucket, under its name, and gives them the objects' times; returns the URL."""
    import obstore

    store = store_of(environment)
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            key = f"{directory.name}/{path.relative_to(directory)}"
            obstore.put(store, key, path.read_bytes(), use_multipart=False)
            moment = int(obstore.head(store, key)["last_modified"].timestamp()) * 1_000_000_000
            os.utime(path, ns=(moment, moment))
    return f"s3://{BUCKET}/{directory.name}"


def make_bucket(environment: dict[str, str]) -> None:
    """Makes the bucket."""
    import boto3

    boto3.client(
        "s3",
        endpoint_url=environment["AWS_ENDPOINT_URL"],
        aws_access_key_id=SECRETS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=SECRETS["AWS_SECRET_ACCESS_KEY"],
        region_name=SECRETS["AWS_REGION"],
    ).create_bucket(Bucket=BUCKET)
