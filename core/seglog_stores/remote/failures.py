"""Translates errors of an object store into OSErrors with an errno, a reason and the URL.

A store's answer may contain a key id, a signature or a token, so only its status and error code are passed on
(`403 ExpiredToken`).
"""

from __future__ import annotations

import errno
import re

from seglog.errors import ChangedObjectError, reduced
from seglog.remote_path import OBJECT_STORES, WEB_SERVERS, RemotePath
from seglog_stores.remote.plain import Address, is_page

_STATUS = re.compile(r"status(?: code)?: (\d{3})")
_CODE = re.compile(r"<Code>([A-Za-z]{1,60})</Code>")
_OF_REGION = ("AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect")
_NO_CREDENTIALS = ("169.254.169.254", "metadata.google.internal", "CredentialsNotLoaded", "MissingCredentials")


class _ObjectError(OSError):
    """Base of errors about one object."""

    def __reduce__(self) -> tuple[object, ...]:
        return reduced(self)


class ShortBodyError(_ObjectError):
    """An answer ended before all of its bytes arrived."""

    def __init__(self, path: RemotePath, reason: str) -> None:
        super().__init__(errno.EIO, f"the store's answer was cut short, also on retries: {reason}", str(path))


class WebPageError(_ObjectError):
    """A web page came where the store's answer should be."""

    def __init__(self, path: RemotePath, status: int = 0) -> None:
        named = f" ({status})" if status else ""
        who = "a web console, a login or a proxy is there; look at the endpoint in the settings"
        super().__init__(errno.EIO, f"an HTML page came in place of the store's answer{named}: {who}", str(path))


def is_of_region(error: Exception) -> bool:
    """True if a wrong region may have caused an error of obstore's S3 client."""
    text = str(error)
    status, code = _STATUS.search(text), _CODE.search(text)
    if "BareRedirect" in text or (status is not None and status[1] == "301"):
        return True
    return status is not None and status[1] == "400" and (code is None or code[1] in _OF_REGION)


def wrong_region(path: RemotePath, address: Address, region: str) -> OSError:
    """Returns the error of a bucket in `region` that was asked elsewhere; "" if the store does not say where."""
    if not region:
        reason = "the store redirects without saying where to, which a wrong region or endpoint makes it do"
        return OSError(errno.EIO, f"{reason} (asked in {address.region}); set AWS_REGION to the bucket's", str(path))
    if region == address.region:
        reason = f"the bucket is in {region}, as AWS_REGION says, but the endpoint is another region's"
        return OSError(errno.EIO, f"{reason}; look at AWS_ENDPOINT_URL", str(path))
    too = ", and AWS_ENDPOINT_URL if it names a region" if address.is_endpoint else ""
    reason = f"the bucket is in the region {region}, and {address.region} was asked"
    return OSError(errno.EIO, f"{reason}: set AWS_REGION={region}{too}", str(path))


def os_error_of(error: Exception, path: RemotePath, *, is_listing: bool = False, is_change: bool = False) -> OSError:
    """Returns the OSError for an error of obstore."""
    text, kind = str(error), type(error).__name__
    status, code = _STATUS.search(text), _CODE.search(text)
    answer = " ".join(part[1] for part in (status, code) if part is not None)
    number = int(status[1]) if status is not None else 0
    if path.scheme in OBJECT_STORES and number < 500 and code is None and is_page(text):
        return WebPageError(path, number)
    if number == 412 or kind == "PreconditionError":
        return ChangedObjectError(path)
    if kind == "InvalidPathError":
        reason = "an object there has a key with an empty part (//), . or .., which cannot be a path"
        return OSError(errno.ENOTSUP, reason, str(path))
    if is_listing and path.scheme in WEB_SERVERS and (number in (400, 404, 405, 501) or "InvalidPropFind" in text):
        reason = "this web server has no listings (WebDAV's PROPFIND); use an object store, or copy the files"
        return OSError(errno.ENOTSUP, reason, str(path))
    if isinstance(error, FileNotFoundError) or number == 404:
        reason = "no such bucket" if code is not None and code[1] == "NoSuchBucket" else "no such object"
        return FileNotFoundError(errno.ENOENT, reason, str(path))
    if any(sign in text for sign in _NO_CREDENTIALS):
        profiles = "; profiles (AWS_PROFILE, ~/.aws) need boto3" if path.scheme == "s3" else ""
        return PermissionError(errno.EACCES, f"the environment has no credentials for the store{profiles}", str(path))
    if number in (401, 403) or kind in ("PermissionDeniedError", "UnauthenticatedError"):
        return PermissionError(
            errno.EACCES, f"the store refuses to {'change' if is_change else 'show'} it ({answer or kind})", str(path)
        )
    return _transport_error(text, answer, path)


def _transport_error(text: str, answer: str, path: RemotePath) -> OSError:
    if "error decoding response body" in text or "kind: Body" in text or "kind: Decode" in text:
        return ShortBodyError(path, "the connection was lost")
    if answer:
        repeated = "" if answer.startswith("4") else ", also on retries"
        return OSError(errno.EIO, f"the store answered {answer}{repeated}", str(path))
    if "ConnectionRefused" in text or "Connection refused" in text:
        return ConnectionRefusedError(errno.ECONNREFUSED, "nothing answers at the store's address", str(path))
    if "dns error" in text:
        return OSError(errno.EHOSTUNREACH, "the store's host name is unknown", str(path))
    if "TimedOut" in text or "timed out" in text or "kind: Timeout" in text:
        return TimeoutError(errno.ETIMEDOUT, "the store did not answer in time, also on retries", str(path))
    if "NotPartial" in text or ("range" in text.lower() and "NotSupported" in text):
        return OSError(errno.ENOTSUP, "the server does not support ranges of a file", str(path))
    if "BareRedirect" in text:
        return OSError(errno.EIO, "the server redirects without saying where to", str(path))
    if "list response" in text:
        return OSError(
            errno.EIO, "the answer is not a store's listing; look at the endpoint in the settings", str(path)
        )
    return OSError(errno.EIO, "the request to the store failed, or its answer could not be read", str(path))
