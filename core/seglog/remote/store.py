"""What is asked of an object store: listings, heads, ranges, and new objects, through the library obstore.

`ObjectStore` is the interface; `ObstoreStore` asks a real one. obstore repeats requests that fail on the way or with
5xx; what it does not cover is repeated here: a body that ends early. Every answer is held against what was known of the
object: one that has changed is an error, never a mixture of two versions. Requests and bytes are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from seglog.clock import Clock
from seglog.errors import ConfigError, UnsupportedError
from seglog.remote.credentials import profile_settings
from seglog.remote.failures import ChangedObjectError, ShortBodyError, os_error_of
from seglog.remote.limits import Limits
from seglog.remote.settings import ENDPOINTS, StoreSettings
from seglog.remote.traffic import Traffic
from seglog.remote_path import WEB_SERVERS, RemotePath, remote_path

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

PAGE = 1000  # keys in a listing's answer; S3 gives no more
_FIRST_PAUSE_S = 0.1
_PART = 16 << 20  # of an object that is sent in parts: 10,000 of them are 160 GB
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ObjectStatus:
    """An object as a listing or an answer describes it. `tag` is its ETag, empty where the server gives none."""

    key: str
    size: int
    modified_ns: int
    tag: str
    is_page: bool = False  # a page of a web server's in place of a directory

    @property
    def version(self) -> str:
        """The same for two objects only when they hold the same bytes, as far as the store says."""
        return self.tag or f"{self.modified_ns}/{self.size}"


class ObjectStore(Protocol):
    """One bucket, container or host. Errors are OSErrors that name the URL.

    `lists`: whether it can be counted on to list what it has.
    """

    lists: bool

    def get(self, known: ObjectStatus, start: int, size: int) -> ReadableBuffer:
        """`size` bytes from `start`, which the object has. ChangedObjectError when it is no longer `known`."""
        ...

    def stream(self, known: ObjectStatus, start: int, size: int, piece: int) -> Iterator[memoryview]:
        """The same in pieces of at least `piece` bytes, but for the last one, as they come."""
        ...

    def head(self, key: str) -> ObjectStatus | None:
        """The object of that name; None when there is none."""
        ...

    def pages(self, prefix: str, after: str = "") -> Iterator[Sequence[ObjectStatus]]:
        """All objects below the directory `prefix`, however deep, by key, from `after` on; a request a thousand."""
        ...

    def level(self, prefix: str) -> tuple[Sequence[ObjectStatus], Sequence[str]]:
        """The objects in the directory `prefix` itself, and the keys of the directories in it."""
        ...

    def put(self, key: str, pieces: Iterable[bytes], size: int) -> None:
        """Makes an object of `size` bytes, which come in pieces; nothing of it is seen before it is whole."""
        ...

    def create(self, key: str, data: bytes) -> bool:
        """Makes an object where there is none; False where there is one, also one that this call has made."""
        ...

    def delete(self, key: str) -> None:
        """Removes an object, if it is there."""
        ...


class ObstoreStore:
    """`store`, one of obstore's, whose objects are those below `root`."""

    def __init__(self, store: Any, root: RemotePath, limits: Limits, traffic: Traffic, clock: Clock) -> None:
        self._store, self._root, self._limits = store, root, limits
        self._traffic, self._clock = traffic, clock
        self.lists = root.scheme not in WEB_SERVERS

    def get(self, known: ObjectStatus, start: int, size: int) -> ReadableBuffer:
        return self._repeated(lambda: self._get_once(known, start, size))

    def _repeated(self, ask: Callable[[], _T]) -> _T:
        """What `ask` gives, asked again while the answer is cut short."""
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
                # a long answer may lose its connection, or run out of time, as often as it has brought something
                repetition = 0 if position > begun else repetition + 1
                if repetition > self._limits.retries or (position == begun and not isinstance(error, ShortBodyError)):
                    raise
                self._clock.sleep(_FIRST_PAUSE_S * 2**repetition)

    def _pieces(self, known: ObjectStatus, start: int, size: int, piece: int) -> Iterator[memoryview]:
        """What one request brings. ShortBodyError where that is less."""
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
            raise os_error_of(error, self._path(known.key)) from None
        if received != size:
            raise ShortBodyError(self._path(known.key), f"{received} of {size} bytes came")

    def _asked(self, known: ObjectStatus, start: int, size: int) -> Any:
        """obstore's answer to the request for a range. ChangedObjectError where the object is another one."""
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
            raise os_error_of(error, self._path(known.key)) from None
        received = memoryview(data).nbytes
        self._traffic.count(bytes_read=received)
        if received != size:
            raise ShortBodyError(self._path(known.key), f"{received} of {size} bytes came")
        return data

    def head(self, key: str) -> ObjectStatus | None:
        import obstore
        from obstore.exceptions import BaseError

        try:
            self._traffic.count(heads=1)
            answer = obstore.get(self._store, key, options={"head": True})
            kind = "" if self.lists else str(answer.attributes.get("Content-Type", ""))
            return replace(_status_of(answer.meta), is_page=kind.startswith("text/html"))
        except FileNotFoundError:
            return None
        except (BaseError, OSError, ValueError) as error:
            raise os_error_of(error, self._path(key)) from None

    def pages(self, prefix: str, after: str = "") -> Iterator[Sequence[ObjectStatus]]:
        last = after  # a listing that is cut short goes on after the last key that came
        repetition = 0
        while True:
            try:
                for page in self._pages_after(prefix, last):
                    yield page
                    last = page[-1].key if page else last
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
            raise os_error_of(error, self._path(prefix), is_listing=True) from None

    def level(self, prefix: str) -> tuple[Sequence[ObjectStatus], Sequence[str]]:
        return self._repeated(lambda: self._level_once(prefix))

    def _level_once(self, prefix: str) -> tuple[Sequence[ObjectStatus], Sequence[str]]:
        import obstore
        from obstore.exceptions import BaseError

        try:
            found = obstore.list_with_delimiter(self._store, prefix or None)
        except (BaseError, OSError, ValueError) as error:
            self._traffic.count(listings=1)
            raise os_error_of(error, self._path(prefix), is_listing=True) from None
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
            raise os_error_of(error, self._path(key), is_change=True) from None

    def create(self, key: str, data: bytes) -> bool:
        import obstore
        from obstore.exceptions import AlreadyExistsError, BaseError

        self._traffic.count(puts=1)
        try:
            obstore.put(self._store, key, data, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return False
        except (BaseError, OSError, ValueError) as error:
            raise os_error_of(error, self._path(key), is_change=True) from None
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
            raise os_error_of(error, self._path(key), is_change=True) from None

    def _path(self, key: str) -> RemotePath:
        return self._root / key if key else self._root


def open_store(root: RemotePath, limits: Limits, environment: Mapping[str, str], settings: StoreSettings) -> Any:
    """obstore's store for a bucket, container or host. It takes credentials from `settings`, else from the variables
    that its users know.

    UnsupportedError without the extra `remote`, ConfigError where the store's own settings are wrong.
    """
    try:
        from obstore.exceptions import BaseError
        from obstore.store import AzureStore, GCSStore, HTTPStore, S3Store
    except ImportError:
        raise UnsupportedError(f"{root}: URLs need the extra remote: pip install 'seglog[remote]'") from None
    scheme, store, key = root.scheme, root.store, settings.s3_key()
    said = dict(settings.values)
    names = _ENDPOINTS.get(scheme, ())
    endpoint = next((each[name] for each in (said, environment) for name in names if each.get(name)), "")
    own: dict[str, Any] = {}
    if scheme == "s3" and key is not None:
        own["credential_provider"] = _FixedKey(*key)
    elif scheme == "s3":
        own = profile_settings(root, settings.over(environment))
    if scheme == "s3" and endpoint:
        own["endpoint"] = endpoint
    is_plain = _is_plain(scheme, own.get("endpoint", endpoint), environment)
    common: dict[str, Any] = {"client_options": limits.client(is_plain), "retry_config": limits.retrying()}
    if config := settings.config(scheme):
        common["config"] = config
    try:
        if scheme in WEB_SERVERS:
            return HTTPStore.from_url(f"{scheme}://{store}", **common)
        if scheme == "s3":
            return S3Store(store, **common, **own)
        return (GCSStore if scheme == "gs" else AzureStore)(store, **common)
    except BaseError as error:
        named = {"s3": "AWS_*", "gs": "GOOGLE_*", "az": "AZURE_*, AZURE_STORAGE_ACCOUNT_NAME at least"}.get(scheme, "")
        where = "that were given or are in the environment" if settings.values else "in the environment"
        why = f" by the settings {where} ({named})" if named else ""
        raise ConfigError(f"{root}: the store cannot be opened{why}: {type(error).__name__}") from None


class _FixedKey:
    """Credentials that were handed over, whatever the environment has."""

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


def _is_plain(scheme: str, endpoint: str, environment: Mapping[str, str]) -> bool:
    """Whether the user wants a server that speaks no TLS."""
    allowed = environment.get(_PLAIN_ALLOWED.get(scheme, ""), "").lower() in ("1", "true")
    return scheme == "http" or allowed or endpoint.lower().startswith("http://")


def root_of(path: RemotePath) -> RemotePath:
    """The bucket, container or host that a path lies in."""
    return remote_path(path.scheme, path.store)


def _status_of(meta: Any) -> ObjectStatus:
    moment = meta["last_modified"]
    whole = int(moment.timestamp()) if moment is not None else 0
    nanoseconds = whole * 1_000_000_000 + (moment.microsecond * 1000 if moment is not None else 0)
    return ObjectStatus(meta["path"], meta["size"], nanoseconds, _tag_of(meta["e_tag"] or ""))


def _tag_of(told: str) -> str:
    """An ETag as headers have it (RFC 9110, 8.8.3): Azure's listings leave out the quotes."""
    return told if not told or told.startswith(('"', "W/")) else f'"{told}"'
