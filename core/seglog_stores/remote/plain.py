"""What a store answers to a listing without a signature: where a bucket is, or that a web page is there instead.

obstore drops headers and the bodies of redirects, and takes an HTML page for an empty listing. So after such an answer
one more request is made, without credentials. A proxy of the environment is used, as obstore does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_ANSWER_BYTES = 64 << 10
_REGION_HEADER = "x-amz-bucket-region"
_REGION = r"([a-z]{2}[a-z0-9-]{0,40}[0-9])"
_REGIONS = (  # in the order of trust; a store's message names the wrong region too
    re.compile(rf"<Region>{_REGION}</Region>"),
    re.compile(rf"expecting (?:'|&apos;|&#39;){_REGION}(?:'|&apos;|&#39;)"),
    re.compile(rf"The {_REGION} location constraint is incompatible"),
    re.compile(rf"<Endpoint>[^<\s]{{0,255}}?\bs3(?:\.dualstack)?[.-]{_REGION}\.amazonaws\.com(?:\.cn)?</Endpoint>"),
)
_PAGE = re.compile(r"<(?:!doctype\s+html|html)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PlainAnswer:
    """`region` is the bucket's, "" if the answer does not say; `is_page` if a web page came with success."""

    region: str = ""
    is_page: bool = False


@dataclass(frozen=True, slots=True)
class Address:
    """Where a bucket is asked: the URL of its listing ("" if it cannot be asked plainly), and the region given."""

    url: str = ""
    region: str = ""
    is_endpoint: bool = False  # the URL is one that was given


def region_in(text: str) -> str:
    """Returns the region that a store's answer names as the right one, or ""."""
    return next((found[1] for each in _REGIONS if (found := each.search(text))), "")


def is_page(text: str) -> bool:
    """True if there is an HTML page in an answer."""
    return _PAGE.search(text) is not None


def address_of(scheme: str, bucket: str, endpoint: str, given: Mapping[str, str]) -> Address:
    """Returns the address of a bucket. `given` are the settings and the environment, `endpoint` overrides them."""
    if scheme == "gs":
        return Address(f"{(endpoint or 'https://storage.googleapis.com').rstrip('/')}/{bucket}?list-type=2&max-keys=1")
    if scheme != "s3":
        return Address()
    region = given.get("AWS_REGION") or given.get("AWS_DEFAULT_REGION") or "us-east-1"
    base = (endpoint or f"https://s3.{region}.amazonaws.com").rstrip("/")
    is_virtual = endpoint and given.get("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "").lower() in ("1", "true")
    whole = base if is_virtual else f"{base}/{bucket}"
    return Address(f"{whole}?list-type=2&max-keys=1", region, bool(endpoint))


def ask_plainly(url: str, timeout_s: float) -> PlainAnswer:
    """Asks once. An answer that does not come tells nothing: the error that led here is reported."""
    import http.client
    import urllib.error
    import urllib.request

    if not url.startswith(("http://", "https://")):
        return PlainAnswer()
    try:
        with urllib.request.urlopen(url, timeout=timeout_s) as answer:
            text = answer.read(_ANSWER_BYTES).decode("utf-8", "replace")
            kind = answer.headers.get("Content-Type") or ""
            return PlainAnswer("", kind.startswith("text/html") or is_page(text[:1024]))
    except urllib.error.HTTPError as error:
        with error:
            named = re.fullmatch(_REGION, error.headers.get(_REGION_HEADER) or "")
            try:
                text = error.read(_ANSWER_BYTES).decode("utf-8", "replace")
            except (OSError, http.client.HTTPException):
                text = ""
            return PlainAnswer(named[1] if named else region_in(text))
    except (OSError, ValueError, http.client.HTTPException):
        return PlainAnswer()
