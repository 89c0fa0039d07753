"""Requests to an object store through the library obstore: listings, heads, ranges, and new objects.

`ObjectStore` is the interface; `ObstoreStore` implements it with obstore. obstore retries requests that fail on the way
or with 5xx; this module also retries a body that ends early. Every answer is compared with the known version of the
object: a changed object is an error, never a mixture of two versions. Requests and bytes are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from seglog import extras
from seglog.clock import Clock
from seglog.errors import ChangedObjectError, ConfigError, UnsupportedError
from seglog.remote_path import WEB_SERVERS, RemotePath, remote_path
from seglog_stores.remote.credentials import profile_settings
from seglog_stores.remote.failures import ShortBodyError, WebPageError, is_of_region, os_error_of, wrong_region
from seglog_stores.remote.limits import Limits
from seglog_stores.remote.plain import Address, PlainAnswer, address_of, ask_plainly, region_in
from seglog_stores.remote.settings import ENDPOINTS, StoreSettings
from seglog_stores.remote.traffic import Traffic

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

PAGE = 1000  # keys in the answer to a listing, the maximum of S3
_FIRST_PAUSE_S = 0.1
_PART = 16 << 20  # of a multipart upload: 10,000 of them are 160 GB
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ObjectStatus:
    """An object by a listing or an answer. `tag` is its ETag, "" if the server gives none."""

    key: str
    size: int
    modified_ns: int
    tag: str
    is_page: bool = False  # a web server's page for a directory

    @property
    def version(self) -> str:
        """Equal for two objects only if they have the same bytes, as far as the store tells."""
        return self.tag or f"{self.modified_ns}/{self.size}"


class ObjectStore(Protocol):
    """One bucket, container or host. Errors are OSErrors with the URL.

    `lists`: True if it reliably lists its contents.
    """

    lists: bool

    def get(self, known: ObjectStatus, start: int, size: int) -> ReadableBuffer:
        """Returns `size` bytes from `start`, which the object has. Raises ChangedObjectError if it is not `known`."""
        ...

    def stream(self, known: ObjectStatus, start: int, size: int, piece: int) -> Iterator[memoryview]:
        """Yields the bytes as they arrive, in pieces of at least `piece` bytes except the last."""
        ...

    def head(self, key: str) -> ObjectStatus | None:
        """Returns the object with that key, None if there is none."""
        ...

    def pages(self, prefix: str, after: str = "") -> Iterator[Sequence[ObjectStatus]]:
        """Yields all objects below the directory `prefix`, at any depth, by key, after `after`; a page per request."""
        ...

    def level(self, prefix: str) -> tuple[Sequence[ObjectStatus], Sequence[str]]:
        """Returns the objects in the directory `prefix` itself, and the keys of the directories in it."""
        ...

    def put(self, key: str, pieces: Iterable[bytes], size: int) -> None:
        """Makes an object of `size` bytes from pieces; it becomes visible only when it is complete."""
        ...

    def create(self, key: str, data: bytes) -> bool:
        """Makes an object if none exists. Returns False if one exists, even one that a retry of this call has made."""
        ...

    def delete(self, key: str) -> None:
        """Removes an object if it exists."""
        ...


class ObstoreStore:
    """An obstore `store` with the objects below `root`, which is at `address`."""

    def __init__(
        self, store: Any, root: RemotePath, address: Address, limits: Limits, traffic: Traffic, clock: Clock
    ) -> None:
        self._store, self._root, self._address, self._limits = store, root, address, limits
        self._is_store = False  # True once an answer could only be a store's, not a web page
        self._traffic, self._clock = traffic, clock
        self.lists = root.scheme not in WEB_SERVERS

    def get(self, known: ObjectStatus, start: int, size: int) -> ReadableBuffer:
        return self._repeated(lambda: self._get_once(known, start, size))

    def _repeated(self, ask: Callable[[], _T]) -> _T:
        """Calls `ask`, and again if the answer is cut short."""
        for repetition in range(self._limits.retries + 1):
            try:
                return ask()
            except ShortBodyError:
                if repetition == self._limits.retries:
                    raise
            self._clock.sleep(_FIRST_PAUSE_S * 2**repetition)
        raise AssertionError("a loop that returns or raises")

    def stream(self, known: ObjectStatus, start: int, size: int, piece: int) -> Iterator[memoryview]:
        position, stop, repetition = start, start + size, 0
        while position < stop:
            begun = position
            try:
                for data in self._pieces(known, position, stop - position, piece):
                    position += data.nbytes
                    yield data
            except ChangedObjectError:
                raise
            except OSError as error:
                # a long answer may lose its connection or time out any number of times, as long as it makes progress
                repetition = 0 if position > begun else repetition + 1
                if repetition > self._limits.retries or (position == begun and not isinstance(error, ShortBodyError)):
                    raise
                self._clock.sleep(_FIRST_PAUSE_S * 2**repetition)

    def _pieces(self, known: ObjectStatus, start: int, size: int, piece: int) -> Iterator[memoryview]:
        """Yields the answer to one request. Raises ShortBodyError if it is too short."""
        from obstore.exceptions import BaseError

        received = 0
        try:
            for each in self._asked(known, start, size).stream(min_chunk_size=piece):
                data = memoryview(each).cast("B")
                received += data.nbytes
                self._traffic.count(bytes_read=data.nbytes)
                yield data
        except ChangedObjectError:
            raise
        except (BaseError, OSError, ValueError) as error:
            raise self._failure(error, known.key) from None
        if received != size:
            raise ShortBodyError(self._path(known.key), f"{received} of {size} bytes arrived")

    def _asked(self, known: ObjectStatus, start: int, size: int) -> Any:
        """Returns obstore's answer to a range request. Raises ChangedObjectError if the object has changed."""
        import obstore

        options: dict[str, Any] = {"range": (start, start + size)}
        if known.tag and not known.tag.startswith("W/"):  # a weak tag matches nothing
            options["if_match"] = known.tag
        self._traffic.count(gets=1)
        answer = obstore.get(self._store, known.key, options=options)  # type: ignore[arg-type]
        if _status_of(answer.meta).version != known.version:
            raise ChangedObjectError(self._path(known.key))
        return answer

    def _get_once(self, known: ObjectStatus, start: int, size: int) -> ReadableBuffer:
        from obstore.exceptions import BaseError

        try:
            data: ReadableBuffer = self._asked(known, start, size).bytes()
        except ChangedObjectError:
            raise
        except (BaseError, OSError, ValueError) as error:
            raise self._failure(error, known.key) from None
        received = memoryview(data).nbytes
        self._traffic.count(bytes_read=received)
        if received != size:
            raise ShortBodyError(self._path(known.key), f"{received} of {size} bytes arrived")
        return data

    def head(self, key: str) -> ObjectStatus | None:
        import obstore
        from obstore.exceptions import BaseError

        try:
            self._traffic.count(heads=1)
            answer = obstore.get(self._store, key, options={"head": True})
            is_page = str(answer.attributes.get("Content-Type", "")).startswith("text/html")
        except FileNotFoundError:
            self._require_store(key)
            return None
        except (BaseError, OSError, ValueError) as error:
            if self.lists and "missing from response" in str(error):  # a header that every store gives
                self._require_store(key)
            raise self._failure(error, key) from None
        if is_page and self.lists:
            self._require_store(key)
        return replace(_status_of(answer.meta), is_page=is_page and not self.lists)

    def pages(self, prefix: str, after: str = "") -> Iterator[Sequence[ObjectStatus]]:
        last = after  # a listing that is cut short continues after the last key received
        repetition = 0
        while True:
            try:
                for page in self._pages_after(prefix, last):
                    self._is_store = self._is_store or bool(page)
                    yield page
                    last = page[-1].key if page else last
                if not prefix:
                    self._require_store(prefix)
                return
            except ShortBodyError:
                if repetition == self._limits.retries or not (last == after or self.lists):  # web servers have no order
                    raise
            self._clock.sleep(_FIRST_PAUSE_S * 2**repetition)
            repetition += 1

    def _pages_after(self, prefix: str, after: str) -> Iterator[Sequence[ObjectStatus]]:
        import obstore
        from obstore.exceptions import BaseError

        try:
            found = iter(obstore.list(self._store, prefix or None, offset=after or None, chunk_size=PAGE))
            while True:
                self._traffic.count(listings=1)
                page = next(found, None)
                if page is None:
                    return
                yield [_status_of(each) for each in page]
                if len(page) < PAGE:
                    return
        except (BaseError, OSError, ValueError) as error:
            raise self._failure(error, prefix, is_listing=True) from None

    def level(self, prefix: str) -> tuple[Sequence[ObjectStatus], Sequence[str]]:
        return self._repeated(lambda: self._level_once(prefix))

    def _level_once(self, prefix: str) -> tuple[Sequence[ObjectStatus], Sequence[str]]:
        import obstore
        from obstore.exceptions import BaseError

        try:
            found = obstore.list_with_delimiter(self._store, prefix or None)
        except (BaseError, OSError, ValueError) as error:
            self._traffic.count(listings=1)
            raise self._failure(error, prefix, is_listing=True) from None
        objects, directories = found["objects"], found["common_prefixes"]
        self._traffic.count(listings=1 + (len(objects) + len(directories)) // PAGE)
        return [_status_of(each) for each in objects], directories

    def put(self, key: str, pieces: Iterable[bytes], size: int) -> None:
        import obstore
        from obstore.exceptions import BaseError

        is_small = size <= _PART
        self._traffic.count(puts=1 if is_small else 2 - -size // _PART)
        try:
            whole: Any = b"".join(pieces) if is_small else pieces
            obstore.put(
                self._store,
                key,
                whole,
                use_multipart=not is_small,
                chunk_size=_PART,
                max_concurrency=self._limits.requests_at_once,
            )
        except (BaseError, ValueError) as error:
            raise self._failure(error, key, is_change=True) from None

    def create(self, key: str, data: bytes) -> bool:
        import obstore
        from obstore.exceptions import AlreadyExistsError, BaseError

        self._traffic.count(puts=1)
        try:
            obstore.put(self._store, key, data, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return False
        except (BaseError, OSError, ValueError) as error:
            raise self._failure(error, key, is_change=True) from None
        return True

    def delete(self, key: str) -> None:
        import obstore
        from obstore.exceptions import BaseError

        self._traffic.count(puts=1)
        try:
            obstore.delete(self._store, key)
        except FileNotFoundError:
            return
        except (BaseError, OSError, ValueError) as error:
            raise self._failure(error, key, is_change=True) from None

    def _require_store(self, key: str) -> None:
        """Raises WebPageError if a web page is there in place of the store. obstore takes one for an empty listing, so
        what seems to be empty or missing is believed only of a store that has listed something, or is asked once.
        """
        if not self._is_store and self._address.url:
            if self._asked_plainly().is_page:
                raise WebPageError(self._path(key)) from None
            self._is_store = True

    def _asked_plainly(self) -> PlainAnswer:
        self._traffic.count(listings=1)
        return ask_plainly(self._address.url, self._limits.timeout_s)

    def _failure(self, error: Exception, key: str, *, is_listing: bool = False, is_change: bool = False) -> OSError:
        """Returns the OSError for an error of obstore."""
        if self._root.scheme == "s3" and is_of_region(error):
            region = region_in(str(error)) or self._asked_plainly().region
            if region or "BareRedirect" in str(error):
                return wrong_region(self._path(key), self._address, region)
        return os_error_of(error, self._path(key), is_listing=is_listing, is_change=is_change)

    def _path(self, key: str) -> RemotePath:
        return self._root / key if key else self._root


def open_store(
    root: RemotePath, limits: Limits, environment: Mapping[str, str], settings: StoreSettings
) -> tuple[Any, Address]:
    """Opens obstore's store for a bucket, container or host, with credentials from `settings`, else the environment.

    Returns its address too. Raises UnsupportedError without the extra `remote`, ConfigError if the store's settings are
    wrong.
    """
    try:
        from obstore.exceptions import BaseError
        from obstore.store import AzureStore, GCSStore, HTTPStore, S3Store
    except ImportError:
        raise UnsupportedError(f"{root}: URLs need the extra remote: {extras.advice('remote')}") from None
    scheme, store, key = root.scheme, root.store, settings.s3_key()
    given = dict(settings.values)
    names = _ENDPOINTS.get(scheme, ())
    endpoint = next((each[name] for each in (given, environment) for name in names if each.get(name)), "")
    own: dict[str, Any] = {}
    if scheme == "s3" and key is not None:
        own["credential_provider"] = _FixedKey(*key)
    elif scheme == "s3":
        own = profile_settings(root, settings.over(environment))
    if scheme == "s3" and endpoint:
        own["endpoint"] = endpoint
    allows_plain = environment.get(_PLAIN_ALLOWED.get(scheme, ""), "").lower() in ("1", "true")
    is_plain = scheme == "http" or allows_plain or own.get("endpoint", endpoint).lower().startswith("http://")
    common: dict[str, Any] = {"client_options": limits.client(is_plain), "retry_config": limits.retrying()}
    if config := settings.config(scheme):
        common["config"] = config
    try:
        if scheme in WEB_SERVERS:
            return HTTPStore.from_url(f"{scheme}://{store}", **common), Address()
        given = dict(settings.over(environment)) | ({"AWS_REGION": own["region"]} if "region" in own else {})
        address = address_of(scheme, store, own.get("endpoint", endpoint), given)
        if scheme == "s3":
            return S3Store(store, **common, **own), address
        return (GCSStore if scheme == "gs" else AzureStore)(store, **common), address
    except BaseError as error:
        named = {"s3": "AWS_*", "gs": "GOOGLE_*", "az": "AZURE_*, AZURE_STORAGE_ACCOUNT_NAME at least"}.get(scheme, "")
        where = "that were given or are in the environment" if settings.values else "in the environment"
        why = f" by the settings {where} ({named})" if named else ""
        raise ConfigError(f"{root}: the store cannot be opened{why}: {type(error).__name__}") from None


class _FixedKey:
    """A credential provider with given credentials, whatever the environment has."""

    def __init__(self, key: str, secret: str, token: str | None) -> None:
        self._found = {"access_key_id": key, "secret_access_key": secret, "token": token, "expires_at": None}

    def __call__(self) -> dict[str, str | None]:
        return self._found


_ENDPOINTS = {
    "s3": ENDPOINTS,
    "gs": ("GOOGLE_BASE_URL",),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
_PLAIN_ALLOWED = {"s3": "AWS_ALLOW_HTTP", "gs": "GOOGLE_ALLOW_HTTP", "az": "AZURE_ALLOW_HTTP"}


def root_of(path: RemotePath) -> RemotePath:
    """Returns the bucket, container or host of a path."""
    return remote_path(path.scheme, path.store)


def _status_of(meta: Any) -> ObjectStatus:
    moment = meta["last_modified"]
    whole = int(moment.timestamp()) if moment is not None else 0
    nanoseconds = whole * 1_000_000_000 + (moment.microsecond * 1000 if moment is not None else 0)
    tag = meta["e_tag"] or ""
    if tag and not tag.startswith(('"', "W/")):  # Azure's listings omit the quotes (RFC 9110, 8.8.3)
        tag = f'"{tag}"'
    return ObjectStatus(meta["path"], meta["size"], nanoseconds, tag)
