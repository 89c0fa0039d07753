"""Who asks a store: keys in variables, profiles of ~/.aws, other clouds' accounts; none of it is shown to anybody."""

from __future__ import annotations

import base64
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from seglog.errors import ConfigError
from seglog.locations import parse_location
from seglog_stores.remote.filesystem import RemoteFileSystem
from seglog_stores.remote.limits import Limits
from tests.support.command_line import ended
from tests.support.object_server import Fault, ObjectServer, object_server

LIMITS = Limits(retries=0, timeout_s=5.0)
DATA = bytes(range(256)) * 8
KEY, SECRET, TOKEN = "AKIAPROFILEOFTESTS", "pr0file/Secret+ofthetests", "FwoGZXIvYXdzEtoken"
ACCOUNT_KEY = base64.b64encode(b"azure-secret-of-the-tests").decode()


@pytest.fixture
def server() -> Iterator[ObjectServer]:
    with object_server() as served:
        served.objects.update({"bkt/kafka/t-0/00.log": DATA, "bkt/kafka/t-1/00.log": DATA[:9], "bkt/other/x": b"x"})
        yield served


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory, and nothing about any cloud in the environment."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "GOOGLE_", "AZURE_", "AZURITE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return tmp_path


def write_profile(home: Path, name: str, *more: str) -> None:
    (home / ".aws").mkdir(exist_ok=True)
    lines = [f"[{name}]", f"aws_access_key_id = {KEY}", f"aws_secret_access_key = {SECRET}"]
    (home / ".aws" / "credentials").write_text("\n".join([*lines, f"aws_session_token = {TOKEN}", ""]))
    section = name if name == "default" else f"profile {name}"
    (home / ".aws" / "config").write_text("\n".join([f"[{section}]", *more, ""]))


def signed(server: ObjectServer) -> list[str]:
    """What the requests said of who asks."""
    return [value for each in server.headers for name, value in each.items() if name.lower() == "authorization"]


def read(url: str = "s3://bkt/kafka/t-0/00.log") -> bytes:
    return RemoteFileSystem(limits=LIMITS).read_bytes(parse_location(url))


def test_a_profile_gives_keys_region_and_endpoint(
    server: ObjectServer, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_profile(home, "backup", "region = eu-north-1", f"endpoint_url = http://127.0.0.1:{server.port}")
    monkeypatch.setenv("AWS_PROFILE", "backup")
    assert read() == DATA
    assert signed(server) and all(f"Credential={KEY}/" in each and "/eu-north-1/s3/" in each for each in signed(server))


def test_the_default_profile_counts_where_nothing_else_is_said(
    server: ObjectServer, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_profile(home, "default", "region = eu-north-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.port}")
    assert read() == DATA
    assert all(f"Credential={KEY}/" in each for each in signed(server))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAVARIABLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_REGION", "us-west-2")
    server.headers.clear()
    assert read() == DATA
    assert all("Credential=AKIAVARIABLE/" in each and "/us-west-2/" in each for each in signed(server))


def test_a_profile_that_is_not_there_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_profile(home, "backup", "region = eu-north-1")
    monkeypatch.setenv("AWS_PROFILE", "other")
    with pytest.raises(ConfigError, match=r"s3://bkt: cannot get the credentials of the profile other: Profile"):
        read()
    (home / ".aws" / "config").write_text("[profile other]\nregion = eu-north-1\n")
    with pytest.raises(ConfigError, match=r"s3://bkt: the profile other has no credentials"):
        read()


def test_a_profile_needs_boto3_and_says_so(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_profile(home, "backup")
    monkeypatch.setenv("AWS_PROFILE", "backup")
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    with pytest.raises(ConfigError, match=r"profiles need boto3: pip install '\.\[aws\]' in seglog's clone"):
        read()


@pytest.mark.parametrize("fault", [Fault(403, "ExpiredToken"), Fault(400, "InvalidToken"), Fault(500, "Oops")])
def test_credentials_are_nowhere_to_be_read(
    server: ObjectServer, home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fault: Fault
) -> None:
    write_profile(home, "backup", f"endpoint_url = http://127.0.0.1:{server.port}")
    monkeypatch.setenv("AWS_PROFILE", "backup")
    monkeypatch.setenv("SEGLOG_REMOTE_RETRIES", "0")
    monkeypatch.setattr("seglog_stores.remote.routing._shared", None)
    server.fault = lambda method, _path: fault
    with caplog.at_level(logging.DEBUG):
        try:
            read()
            pytest.fail("the store refused")
        except OSError as error:
            assert error.__traceback__ is not None
            error.with_traceback(error.__traceback__.tb_next)  # this test knows the server
            shown = "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())
        end = ended("ls", "-vv", "--json", "s3://bkt/kafka")
    assert end.code and b"s3://bkt/kafka" in end.stderr
    said = shown + end.stdout.decode() + end.stderr.decode() + caplog.text
    assert not [each for each in (KEY, SECRET, TOKEN) if each in said]


def through_google(server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("GOOGLE_BASE_URL", f"http://127.0.0.1:{server.port}")
    monkeypatch.setenv("GOOGLE_SKIP_SIGNATURE", "true")
    return "gs://bkt"


def through_azure(server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", f"http://127.0.0.1:{server.port}")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", ACCOUNT_KEY)
    return "az://bkt"


@pytest.mark.parametrize("through", [through_google, through_azure])
def test_other_clouds_are_read_as_amazons_is(
    server: ObjectServer,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    through: Callable[[ObjectServer, pytest.MonkeyPatch], str],
) -> None:
    root = parse_location(through(server, monkeypatch))
    fs = RemoteFileSystem(limits=LIMITS)
    assert fs.list(root) == ["kafka", "other"] and fs.list(root / "kafka") == ["t-0", "t-1"]
    path = root / "kafka" / "t-0" / "00.log"
    status = fs.status(path)
    assert status is not None and (status.size, status.modified_ms) == (len(DATA), 1795341600000)
    with fs.open(path, "r") as file:
        assert file.read_at(100, 50) == DATA[100:150]
    server.objects["bkt/kafka/t-0/00.log"] = DATA[::-1]
    with RemoteFileSystem(limits=LIMITS).open(path, "r") as file:
        server.objects["bkt/kafka/t-0/00.log"] = DATA
        with pytest.raises(OSError, match="the object was changed while it was read"):
            file.read_at(0, 10)
    assert fs.status(path.with_name("none")) is None
    server.fault = lambda method, _path: Fault(403, "AuthenticationFailed")
    with pytest.raises(PermissionError, match=r"the store refuses to show it \(403") as caught:
        RemoteFileSystem(limits=LIMITS).status(path)
    assert ACCOUNT_KEY not in repr(caught.value) and caught.value.__suppress_context__
