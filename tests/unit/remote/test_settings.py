"""What tasks are told of a store: options before the driver's environment, credentials as one thing, nothing shown."""

from __future__ import annotations

import pickle

import pytest

from seglog.errors import ConfigError
from seglog.locations import parse_location
from seglog_stores.remote.filesystem import RemoteFileSystem
from seglog_stores.remote.settings import StoreSettings
from tests.support.object_server import SECRETS, object_server

OWN = {"aws_access_key_id": "AKIDown", "aws_secret_access_key": "own/s3cr3t"}
LOG = parse_location("s3://bkt/kafka/t-0/00.log")


def test_names_are_known_in_any_case_and_everything_else_is_passed_over() -> None:
    found = StoreSettings.of({**OWN, "path": "s3://bkt/x", "Aws_Region": "eu-west-1", "aws_endpoint_url": ""})
    assert dict(found.values) == {
        "AWS_ACCESS_KEY_ID": "AKIDown",
        "AWS_SECRET_ACCESS_KEY": "own/s3cr3t",
        "AWS_REGION": "eu-west-1",
    }


@pytest.mark.parametrize("given", ["aws_access_key_id", "aws_secret_access_key", "aws_session_token"])
def test_half_of_a_key_is_an_error_that_does_not_show_it(given: str) -> None:
    with pytest.raises(ConfigError, match="missing, although the rest of these credentials is given") as caught:
        StoreSettings.of({given: "s3cr3t"})
    assert "s3cr3t" not in str(caught.value)


def test_settings_print_without_their_values_and_travel_with_them() -> None:
    found = StoreSettings.of(OWN)
    assert "AKIDown" not in f"{found!r} {found} {[found]}"
    assert pickle.loads(pickle.dumps(found)) == found


def test_what_the_environment_says_of_a_store_that_is_met_comes_along() -> None:
    environment = {
        "AWS_REGION": "us-east-1",
        "AWS_SESSION_TOKEN": "of another key",
        "AWS_ACCESS_KEY_ID": "another key",
        "AWS_SECRET_ACCESS_KEY": "its secret",
        "GOOGLE_BEARER_TOKEN": "bears",
        "SEGLOG_REMOTE_CACHE": "1MiB",
        "HOME": "/home/somebody",
        "AWS_WEB_IDENTITY_TOKEN_FILE": "/a/file/of/this/machine",
    }
    own = dict(StoreSettings.of(OWN).beside(environment, ["s3"]).values)
    assert own == {
        "AWS_ACCESS_KEY_ID": "AKIDown",
        "AWS_SECRET_ACCESS_KEY": "own/s3cr3t",
        "AWS_REGION": "us-east-1",
        "SEGLOG_REMOTE_CACHE": "1MiB",
    }
    sent = dict(StoreSettings().beside(environment, ["s3"]).values)
    assert sent["AWS_SESSION_TOKEN"] == "of another key" and "GOOGLE_BEARER_TOKEN" not in sent
    assert StoreSettings().beside(environment, []).values == ()


@pytest.mark.parametrize("scheme", ["https", "s3"])
def test_limits_come_along_to_a_store_without_settings(scheme: str) -> None:
    environment = {"SEGLOG_REMOTE_TIMEOUT": "7s", "SEGLOG_REMOTE_RETRIES": "", "HOME": "/home/somebody"}
    assert StoreSettings().beside(environment, [scheme]).values == (("SEGLOG_REMOTE_TIMEOUT", "7s"),)
    given = StoreSettings.of({"SEGLOG_REMOTE_TIMEOUT": "3s"})
    assert given.beside(environment, [scheme]).values == given.values
    assert StoreSettings().beside(environment, []).values == ()


def test_a_store_is_opened_with_them_whatever_the_environment_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDofanother")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "a token of the environment's")
    with object_server() as server:
        server.objects["bkt/kafka/t-0/00.log"] = b"data"
        given = {**SECRETS, "AWS_ENDPOINT_URL_S3": server.environment["AWS_ENDPOINT_URL"]}
        fs = RemoteFileSystem(environment={"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, settings=StoreSettings.of(given))
        assert fs.read_bytes(LOG) == b"data"
        assert {headers["authorization"].split("/")[0] for headers in server.headers} == {
            f"AWS4-HMAC-SHA256 Credential={SECRETS['AWS_ACCESS_KEY_ID']}"
        }
        assert not any("x-amz-security-token" in headers for headers in server.headers)


def test_an_object_that_a_plan_has_seen_is_opened_without_a_question(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    with object_server() as server:
        server.objects["bkt/kafka/t-0/00.log"] = b"data"
        planned = RemoteFileSystem(environment=server.environment).status(LOG)
        assert planned is not None
        server.asked.clear()
        fs = RemoteFileSystem(environment=server.environment)
        fs.expect(LOG, planned.size, planned.modified_ns, planned.version)
        assert fs.read_bytes(LOG) == b"data" and len(server.asked) == 1
        assert fs.status(LOG) == planned
        server.objects["bkt/kafka/t-0/00.log"] = b"other data"
        fs.forget_listings()
        assert fs.status(LOG) != planned
        fs = RemoteFileSystem(environment=server.environment)
        fs.expect(LOG, planned.size, planned.modified_ns, planned.version)
        with pytest.raises(OSError, match="the object was changed"):
            fs.read_bytes(LOG)
        assert fs.read_bytes(LOG) == b"other data"
