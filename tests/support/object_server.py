"""A small object store on loopback, out of a dict: what a store answers, what it was asked, and what can go wrong.

It speaks the few requests of Amazon's S3 that reading needs, and puts objects, whole or in parts. Google's XML API is
the same in these but for parts and the condition of a new object (`GENERATION`), and Azure's listing (`comp=list`) has
a form of its own.
"""

from __future__ import annotations

import bisect
import hashlib
import re
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

from seglog_stores.remote import routing

_MEETS_WITHIN_S = 60.0
GENERATION = "x-goog-if-generation-match"  # of an object that is to be made: 0
SECRETS = {
    "AWS_ACCESS_KEY_ID": "AKIDofthetests",
    "AWS_SECRET_ACCESS_KEY": "s3cr3t/ofthetests",
    "AWS_REGION": "us-east-1",
}


@dataclass(frozen=True)
class Fault:
    """What an answer is like in place of the right one: a status with an error's code or with `text` as its body and
    `headers`, or a body cut after `cut` bytes; `hang` seconds before it; with `reset` the connection is lost in place
    of an answer."""

    status: int = 0
    code: str = ""
    text: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    cut: int = -1
    hang: float = 0.0
    reset: bool = False


@dataclass
class Meeting:
    """A `fault` that answers no request for a file with `text` in its path before `count` requests are there at once,
    however busy the machine is; `most` is how many have been."""

    count: int
    text: str
    most: int = 0
    _now: int = 0
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def __call__(self, _method: str, path: str) -> Fault | None:
        with self._changed:
            self._now += 1
            self.most = max(self.most, self._now)
            self._changed.notify_all()
            if self.text in path and "list-type=2" not in path:
                met = self._changed.wait_for(lambda: self.most >= self.count, _MEETS_WITHIN_S)
                self.count = self.count if met else 0  # the test fails, and nobody else waits
            self._now -= 1
        return None


_BEGUN, _COMPLETE = "InitiateMultipartUploadResult", "CompleteMultipartUploadResult"


@dataclass
class ObjectServer:
    """`objects` by bucket and key (`bkt/a/b`); `asked` are methods and paths, `headers` theirs;
    `fault` is asked before each answer."""

    port: int = 0
    objects: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    fault: Callable[[str, str], Fault | None] = lambda _method, _path: None
    keeps_conditions: bool = True  # else an object is replaced where it was to be made
    page: int = 1000
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)  # parts by number, until an object is made
    released: threading.Event = field(default_factory=threading.Event)
    guard: threading.Lock = field(default_factory=threading.Lock)

    @property
    def environment(self) -> dict[str, str]:
        """How a client finds it."""
        return {**SECRETS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}"}

    @property
    def environments(self) -> dict[str, dict[str, str]]:
        """The same by the scheme of its URLs."""
        here = f"http://127.0.0.1:{self.port}"
        azure = {"AZURE_STORAGE_ENDPOINT": here, "AZURE_STORAGE_ACCOUNT_NAME": "account"}
        return {
            "s3": self.environment,
            "gs": {"GOOGLE_BASE_URL": here, "GOOGLE_BEARER_TOKEN": "token"},
            "az": azure | {"AZURE_STORAGE_ACCOUNT_KEY": "c2VjcmV0L29mdGhldGVzdHM="},
        }

    def count(self, start: str) -> int:
        """How many requests began so."""
        return sum(each.startswith(start) for each in self.asked)


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # a client that was killed
            super().handle_error(request, client_address)


@contextmanager
def object_server(**objects: bytes) -> Iterator[ObjectServer]:
    """The server while the `with` lasts. The process's own files of stores then begin anew, before and after it: they
    have the address of the server that they asked first."""
    routing._shared = None
    served = ObjectServer(objects=dict(objects))
    with _Server(("127.0.0.1", 0), _handler(served)) as server:
        server.daemon_threads = True
        served.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield served
        finally:
            served.released.set()
            server.shutdown()
            thread.join()
            routing._shared = None


@lru_cache(maxsize=64)
def tag_of(data: bytes) -> str:
    """The ETag that the server gives."""
    return f'"{hashlib.md5(data).hexdigest()}"'


def _handler(served: ObjectServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # as servers have it: else a small body waits for the client's delayed ACK

        def log_message(self, *_: object) -> None:
            """Quiet."""

        def do_HEAD(self) -> None:
            self._object()

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(url.query).items()}
            if "list-type" in query or query.get("comp") == "list":
                self._listing(url.path.strip("/"), query)
            else:
                self._object()

        def _object(self) -> None:
            key = unquote(urlsplit(self.path).path).lstrip("/")
            if self._faulty():
                return None
            data = served.objects.get(key)
            if data is None:
                return self._error(404, "NoSuchKey")
            if self.headers.get("If-Match", tag_of(data)) != tag_of(data):
                return self._error(412, "PreconditionFailed")
            start, end, status = 0, len(data), 200
            if "Range" in self.headers:
                first, last = self.headers["Range"].removeprefix("bytes=").split("-")
                start, end, status = int(first), min(len(data), int(last) + 1), 206
                if start >= len(data):
                    return self._error(416, "InvalidRange")
            fault = served.fault("BODY", self.path)
            self.send_response(status)
            self.send_header("ETag", tag_of(data))
            self.send_header("Content-Type", "text/html" if data.startswith(b"<html>") else "binary/octet-stream")
            self.send_header("Last-Modified", "Sun, 22 Nov 2026 10:00:00 GMT")
            self.send_header("Content-Length", str(end - start))
            if status == 206:
                self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(data)}")
            self.end_headers()
            if self.command == "GET":
                body = memoryview(data)[start:end]
                self.wfile.write(body if fault is None else body[: fault.cut])
                self.close_connection = fault is not None
            return None

        def do_PUT(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            key = unquote(urlsplit(self.path).path).lstrip("/")
            if len(data) < int(self.headers["Content-Length"]):  # the client has died, and no store keeps a part
                self.close_connection = True
                return None
            if self._faulty():
                return None
            with served.guard:
                query = parse_qs(urlsplit(self.path).query)
                if "uploadId" in query:
                    return self._take_part(query["uploadId"][0], int(query["partNumber"][0]), data)
                is_new = "*" in self.headers.get("If-None-Match", "") or self.headers.get(GENERATION) == "0"
                if is_new and served.keeps_conditions and key in served.objects:
                    return self._error(412, "PreconditionFailed")
                served.objects[key] = data
            self.send_response(201 if "x-ms-blob-type" in self.headers else 200)  # Azure's is 201
            self.send_header("ETag", tag_of(data))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return None

        def _take_part(self, upload: str, number: int, data: bytes) -> None:
            served.uploads[upload][number] = data
            self.send_response(200)
            self.send_header("ETag", tag_of(data))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def _upload(self, key: str, query: Mapping[str, list[str]]) -> None:
            """Begins an upload in parts, or makes its object."""
            if "uploads" in query:
                upload = f"upload-{len(served.asked)}"
                served.uploads[upload] = {}
                return self._answer(200, f"<{_BEGUN}><UploadId>{upload}</UploadId></{_BEGUN}>")
            data = b"".join(part for _, part in sorted(served.uploads.pop(query["uploadId"][0]).items()))
            with served.guard:
                served.objects[key] = data
            tag = escape(tag_of(data))
            return self._answer(200, f"<{_COMPLETE}><ETag>{tag}</ETag></{_COMPLETE}>")

        def do_DELETE(self) -> None:
            """So Google and Azure remove an object."""
            if self._faulty():
                return
            is_there = served.objects.pop(unquote(urlsplit(self.path).path).lstrip("/"), None) is not None
            self._answer(200 if is_there else 404, "")

        def do_POST(self) -> None:
            """Several objects are removed (`?delete`; Azure's: `comp=batch`): so obstore removes one."""
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            if self._faulty():
                return
            url = urlsplit(self.path)
            query = parse_qs(url.query, keep_blank_values=True)
            if query.keys() & {"uploads", "uploadId"}:
                self._upload(unquote(url.path).lstrip("/"), query)
                return
            if "comp=batch" in self.path:
                parts = ""
                for number, path in enumerate(re.findall(r"^DELETE (\S+) HTTP", body, re.MULTILINE)):
                    found = served.objects.pop(unquote(path).lstrip("/"), None)
                    status = "404 Not Found" if found is None else "202 Accepted"
                    parts += f"--b\r\nContent-ID: {number}\r\n\r\nHTTP/1.1 {status}\r\n\r\n\r\n"
                self._answer(202, f"{parts}--b--\r\n", "multipart/mixed; boundary=b")
                return
            bucket = url.path.strip("/")
            keys = re.findall("<Key>(.*?)</Key>", body)
            for key in keys:
                served.objects.pop(f"{bucket}/{unescape(key)}", None)
            removed = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
            self._answer(200, f"<DeleteResult>{removed}</DeleteResult>")

        def _listing(self, bucket: str, query: dict[str, str]) -> None:
            if self._faulty():
                return None
            prefix, after = (
                query.get("prefix", ""),
                query.get("continuation-token", query.get("start-after", query.get("marker", ""))),
            )
            azure = "comp" in query
            found: dict[str, str] = {}
            keys = sorted(served.objects)
            for full in keys[bisect.bisect_left(keys, f"{bucket}/{max(prefix, after)}") :]:
                key = full.removeprefix(f"{bucket}/")
                if not full.startswith(f"{bucket}/{prefix}") or len(found) > served.page:
                    break
                rest = key[len(prefix) :]
                if query.get("delimiter") and "/" in rest:
                    common = prefix + rest.partition("/")[0] + "/"
                    if common > after:
                        found[common] = _azures_prefix(common) if azure else _prefix(common)
                elif key > after:
                    found[key] = (_azures_blob if azure else _contents)(key, served.objects[full])
            names = list(found)
            shown = names[: served.page]
            more = len(names) > len(shown)
            token = f"<NextContinuationToken>{escape(shown[-1])}</NextContinuationToken>" if more else ""
            body = "".join(found[name] for name in shown)
            if azure:
                token = f"<NextMarker>{escape(shown[-1]) if more else ''}</NextMarker>"
                return self._answer(200, f"<EnumerationResults><Blobs>{body}</Blobs>{token}</EnumerationResults>")
            return self._answer(
                200, f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>{token}{body}</ListBucketResult>"
            )

        def _faulty(self) -> bool:
            served.asked.append(f"{self.command} {self.path}")
            served.headers.append(dict(self.headers))
            fault = served.fault(self.command, self.path)
            if fault is not None and fault.reset:
                self.close_connection = True
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()
                return True
            if fault is None or not (fault.status or fault.hang):
                return False
            if fault.hang:
                served.released.wait(fault.hang)
            if fault.text or fault.headers:
                self._answer(fault.status, fault.text, headers=fault.headers)
            else:
                self._error(fault.status or 500, fault.code)
            return True

        def _error(self, status: int, code: str) -> None:
            key = SECRETS["AWS_ACCESS_KEY_ID"]  # as S3 does
            self._answer(status, f"<Error><Code>{code}</Code><AWSAccessKeyId>{key}</AWSAccessKeyId></Error>")

        def _answer(
            self,
            status: int,
            text: str,
            kind: str = "application/xml",
            headers: tuple[tuple[str, str], ...] = (),
        ) -> None:
            data = text.encode()
            fault = served.fault("LISTING", self.path) if status == 200 and not headers else None
            self.send_response(status)
            if not any(name == "Content-Type" for name, _ in headers):
                self.send_header("Content-Type", kind)
            for name, value in headers:
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data if fault is None else data[: fault.cut])
                self.close_connection = fault is not None

    return Handler


def _contents(key: str, data: bytes) -> str:
    return (
        f"<Contents><Key>{escape(key)}</Key><LastModified>2026-11-22T10:00:00.000Z</LastModified>"
        f"<ETag>{escape(tag_of(data))}</ETag><Size>{len(data)}</Size></Contents>"
    )


def _prefix(common: str) -> str:
    return f"<CommonPrefixes><Prefix>{escape(common)}</Prefix></CommonPrefixes>"


def _azures_prefix(common: str) -> str:
    return f"<BlobPrefix><Name>{escape(common)}</Name></BlobPrefix>"


def _azures_blob(key: str, data: bytes) -> str:
    """Azure's listings have the tag without the quotes that its headers give it."""
    tag = tag_of(data).strip('"')
    return (
        f"<Blob><Name>{escape(key)}</Name><Properties><Last-Modified>Sun, 22 Nov 2026 10:00:00 GMT</Last-Modified>"
        f"<Etag>{tag}</Etag><Content-Length>{len(data)}</Content-Length>"
        "<Content-Type>binary/octet-stream</Content-Type></Properties></Blob>"
    )
