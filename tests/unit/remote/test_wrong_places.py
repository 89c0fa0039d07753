"""A bucket in another region, and a web page where a store should be, are said as what they are."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

pytest.importorskip("obstore")

from seglog.locations import parse_location
from seglog_stores.remote.failures import WebPageError
from seglog_stores.remote.filesystem import RemoteFileSystem
from seglog_stores.remote.limits import Limits
from tests.support.object_server import Fault, ObjectServer, object_server

LIMITS = Limits(retries=1, timeout_s=5.0)
LOG = "t-0/00000000000000000000.log"
MOVED = "<Message>The bucket must be addressed using the specified endpoint.</Message>"
WRONG = "The authorization header is malformed; the region 'us-east-1' is wrong; expecting"
PAGE = "<!DOCTYPE html><html><head><title>Sign in</title></head><body>us-east-1</body></html>"
HTML = (("Content-Type", "text/html; charset=utf-8"),)


def error(code: str, rest: str) -> str:
    return f'<?xml version="1.0"?><Error><Code>{code}</Code>{rest}<AWSAccessKeyId>AKIDsecret</AWSAccessKeyId></Error>'


ELSEWHERE = {
    "301 with a header": Fault(
        301, text=error("PermanentRedirect", MOVED), headers=(("x-amz-bucket-region", "eu-west-1"),)
    ),
    "301 without a body": Fault(301, headers=(("x-amz-bucket-region", "eu-west-1"),)),
    "301 with an endpoint": Fault(
        301, text=error("PermanentRedirect", f"{MOVED}<Endpoint>bkt.s3-eu-west-1.amazonaws.com</Endpoint>")
    ),
    "301 with a newer endpoint": Fault(
        301, text=error("PermanentRedirect", f"{MOVED}<Endpoint>bkt.s3.eu-west-1.amazonaws.com</Endpoint>")
    ),
    "400 with a region": Fault(400, text=error("AuthorizationHeaderMalformed", "<Region>eu-west-1</Region>")),
    "400 with a message": Fault(
        400, text=error("AuthorizationHeaderMalformed", f"<Message>{WRONG} 'eu-west-1'</Message>")
    ),
    "400 without a body": Fault(400, headers=(("x-amz-bucket-region", "eu-west-1"),)),
    "400 of another constraint": Fault(
        400,
        text=error(
            "IllegalLocationConstraintException",
            "<Message>The eu-west-1 location constraint is incompatible for the region specific endpoint this request"
            " was sent to.</Message>",
        ),
    ),
}


@pytest.fixture
def server() -> Iterator[ObjectServer]:
    with object_server(**{f"bkt/{LOG}": b"0123456789"}) as served:
        yield served


def files(server: ObjectServer, scheme: str = "s3", **more: str) -> RemoteFileSystem:
    return RemoteFileSystem(environment=server.environments[scheme] | more, limits=LIMITS)


@pytest.fixture(autouse=True)
def settings(server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for environment in server.environments.values():
        for name, value in environment.items():
            monkeypatch.setenv(name, value)


@pytest.mark.parametrize("answer", ELSEWHERE)
@pytest.mark.parametrize("asked", ["listing", "open", "put"])
def test_a_bucket_of_another_region_is_an_error_that_says_which(server: ObjectServer, answer: str, asked: str) -> None:
    server.fault = lambda _method, _path: ELSEWHERE[answer]
    fs = files(server)
    with pytest.raises(OSError, match="the bucket is in the region eu-west-1, and us-east-1 was asked") as caught:
        if asked == "listing":
            fs.list(parse_location("s3://bkt"))
        elif asked == "open":
            fs.expect(parse_location(f"s3://bkt/{LOG}"), 10, 0, '"tag"')
            fs.read_bytes(parse_location(f"s3://bkt/{LOG}"))
        else:
            fs.put(parse_location("s3://bkt/new"), [b"x"], 1)
    assert "set AWS_REGION=eu-west-1" in str(caught.value) and "AKID" not in str(caught.value)
    assert caught.value.filename.startswith("s3://bkt")


def test_a_redirect_that_names_no_region_is_said_so(server: ObjectServer) -> None:
    server.fault = lambda _method, _path: Fault(301, "PermanentRedirect")
    with pytest.raises(OSError, match=r"redirects without saying where to.*region or endpoint.*us-east-1"):
        files(server).list(parse_location("s3://bkt/logs"))


def test_another_bad_request_is_no_matter_of_regions(server: ObjectServer) -> None:
    server.fault = lambda _method, _path: Fault(400, "InvalidArgument")
    with pytest.raises(OSError, match="the store answered 400 InvalidArgument") as caught:
        files(server).list(parse_location("s3://bkt/logs"))
    assert not {"region", "retries"} & set(str(caught.value).split()) and len(server.asked) == 1


@pytest.mark.parametrize("scheme", ["s3", "gs"])
@pytest.mark.parametrize("where", ["everywhere", "listings"])
@pytest.mark.parametrize("place", ["", "/logs", "/t-0/00000000000000000007.log"])
def test_a_web_page_in_place_of_a_listing_is_not_an_empty_or_a_missing_directory(
    server: ObjectServer, scheme: str, where: str, place: str
) -> None:
    page = Fault(200, text=PAGE, headers=HTML)
    server.fault = lambda _method, path: page if where == "everywhere" or urlsplit(path).query else None
    fs = files(server, scheme)
    for look in (fs.list, fs.status, fs.list) if place else (fs.list, fs.list):  # a bucket itself is always there
        with pytest.raises(WebPageError, match=f"{scheme}://bkt") as caught:
            look(parse_location(f"{scheme}://bkt{place}"))
        assert "HTML page" in str(caught.value) and "endpoint" in str(caught.value)


@pytest.mark.parametrize("status", [403, 404])
def test_a_web_page_with_an_error_is_said_as_what_it_is(server: ObjectServer, status: int) -> None:
    server.fault = lambda _method, _path: Fault(status, text=PAGE, headers=HTML)
    with pytest.raises(WebPageError, match=f"HTML page.*{status}"):
        files(server).list(parse_location("s3://bkt/logs"))


def test_azures_listing_is_not_taken_from_a_page(server: ObjectServer) -> None:
    server.fault = lambda _method, _path: Fault(200, text=PAGE, headers=HTML)
    with pytest.raises(OSError, match="not a store's listing"):
        files(server, "az").list(parse_location("az://bkt/logs"))


def test_what_is_missing_in_a_store_stays_missing_and_costs_one_request_more(server: ObjectServer) -> None:
    fs = files(server)
    for name in ("logs", "other", "third"):
        with pytest.raises(FileNotFoundError):
            fs.list(parse_location(f"s3://bkt/{name}"))
    assert sum("max-keys" in each for each in server.asked) == 1
    fs = files(server)
    server.asked.clear()
    assert fs.list(parse_location("s3://bkt/t-0")) == [LOG.rpartition("/")[2]]
    assert fs.status(parse_location("s3://bkt/none")) is None
    assert not any("max-keys" in each for each in server.asked)


def test_an_object_that_is_a_page_is_read(server: ObjectServer) -> None:
    server.objects["bkt/page"] = b"<html>data</html>"
    assert files(server).read_bytes(parse_location("s3://bkt/page")) == b"<html>data</html>"
