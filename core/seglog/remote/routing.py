"""Turns text into a path, and routes a path to its file system: the machine's, or that of URLs.

`parse_location` is the only place where text becomes a path. Users, SQL and other programs write:

| text | path |
|---|---|
| a plain path | that path |
| `file:/a/b` | `/a/b`, percent-decoded; Spark writes a path in SQL like this |
| `s3://bucket/key`, `gs://…`, `az://container/…` | a `RemotePath`; the key is used as written, as by stores' tools |
| `http://host/a`, `https://…` | a `RemotePath`; percent-decoded, as in any URL |
| `s3a://…`, `s3n://…` | the same as `s3://…`, as Hadoop's users write it |
| any other scheme | an error: seglog does not reach that file system |

A `RemotePath` prints as its URL, and only a `RemotePath` is read from an object store: nothing looks at the text again.
A Path that began as a URL (`Path("s3://bucket/key")`, which pathlib turns into `s3:/bucket/key`) means the URL too. A
file of this machine with such a name is written `./s3:/x`, and becomes an absolute path.

Credentials do not belong in a URL, which ends up in logs and on screens. A URL with a user part or a query is refused,
and the message repeats neither.

`machine_files()` is where commands, the library and Spark get their files. Remote code is imported, and a store opened,
only when a URL comes up. A path of this machine costs one check of its type.
"""

from __future__ import annotations

import math
import os
import re
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from seglog.arguments import described
from seglog.errors import ConfigError, UnsupportedError
from seglog.remote_path import OBJECT_STORES, SCHEMES, WEB_SERVERS, RemotePath, remote_path
from seglog.storage.filesystem import READ_BYTES_LIMIT, File, FileStatus, FileSystem, OpenMode, PassingFileSystem
from seglog.storage.local import LocalFileSystem

if TYPE_CHECKING:
    from seglog.remote.filesystem import RemoteFileSystem
    from seglog.remote.settings import StoreSettings
    from seglog.remote.traffic import Traffic


# `hdfs:/x`, `s3://bucket/x`; a local path that begins like this must be written `./hdfs:/x`.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
_FILE = "file:"
_FILE_HOSTS = ("", "localhost")
_OF_HADOOP = {"s3a": "s3", "s3n": "s3"}
_AZURE_OF_HADOOP = ("abfs", "abfss", "wasb", "wasbs")
_CONTAINER_AND_ACCOUNT = re.compile(r"([a-z0-9$-]{3,63})@([a-z0-9]{3,24})(?:\.[a-z0-9.-]+)?")
_STORE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*(:[0-9]{1,5})?|\[[0-9a-fA-F:.]+\](:[0-9]{1,5})?")


def parse_location(location: str | os.PathLike[str]) -> Path:
    """Returns the path of `location`, a RemotePath for a URL.

    Raises ConfigError for text that is empty or cannot name a file or object, UnsupportedError for an unknown scheme,
    and TypeError if `location` is not a path.
    """
    if isinstance(location, RemotePath):
        return location
    text = os.fspath(location) if isinstance(location, os.PathLike) else location
    if not isinstance(text, str):
        raise TypeError(f"a path is text or a pathlib.Path, not {described(location)}")
    require_name(text)
    path = _path_of_uri(text) if text.lower().startswith(_FILE) else text
    if not path:  # not the working directory: a variable was not set
        raise ConfigError(f"'{text}' is an empty path: was a variable not set?")
    require_name(path)
    found = None if path is not text else _SCHEME.match(text)
    if found is not None:
        return _path_of_url(found[1].lower(), text[found.end() :])
    local = Path(path)
    # pathlib turns `./s3:/x` into `s3:/x`, which would be a URL when read again
    return local.absolute() if _SCHEME.match(str(local)) else local


def require_local(path: str | os.PathLike[str]) -> None:
    """Raises ConfigError for a URL, where a directory of this machine is needed."""
    if isinstance(path, RemotePath):
        os.fspath(path)


def _path_of_url(scheme: str, rest: str) -> RemotePath:
    """Returns the path of a URL; `rest` is the text after its scheme and first slash."""
    store, slash, key = rest.removeprefix("/").partition("/")
    scheme = _OF_HADOOP.get(scheme, scheme)
    if scheme in _AZURE_OF_HADOOP:
        raise UnsupportedError(_as_azure(scheme, store, key))
    special = r"[?#]" if scheme in WEB_SERVERS else r"\?"  # a key of a store may have a `#`
    shown = f"{scheme}://{re.split(special, store.rpartition('@')[2] + slash + key)[0]}"
    if not _STORE.fullmatch(store.rpartition("@")[2]):
        shown = f"{scheme}://…"  # otherwise a secret with a slash would be shown
    if scheme not in SCHEMES:
        raise UnsupportedError(
            f"{shown}: seglog reads {', '.join(f'{known}:' for known in SCHEMES)} and mounted file systems, but not"
            f" {scheme}; mount it, and name the mounted path"
        )
    if "@" in store or re.search(special, store + key):
        raise ConfigError(
            f"{shown}: a URL cannot have a user part, a query or a fragment; give credentials as the store's"
            " own tools take them, such as AWS_ACCESS_KEY_ID in the environment"
        )
    parts = key.removesuffix("/").split("/") if key.removesuffix("/") else []
    if scheme in WEB_SERVERS:
        parts = [os.fsdecode(unquote_to_bytes(os.fsencode(part))) for part in parts]
    if shown.endswith("…") or any(part in ("", ".", "..") or "/" in part for part in parts):
        raise ConfigError(f"{shown}: a URL needs a bucket or host and a key, and no part may be empty, . or ..")
    for part in parts:
        require_name(part)
    return remote_path(scheme, store, *parts)


def _as_azure(scheme: str, store: str, key: str) -> str:
    """Returns how to write a URL of Hadoop's Azure file systems, `abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/KEY`."""
    found = _CONTAINER_AND_ACCOUNT.fullmatch(store)
    if found is None or "?" in key:
        return f"{scheme}://…: write az://CONTAINER/KEY, and set AZURE_STORAGE_ACCOUNT_NAME"
    container, account = found.groups()
    url = f"az://{container}/{key}".rstrip("/")
    return f"{scheme}://{store}/{key}: write {url}, and set AZURE_STORAGE_ACCOUNT_NAME={account}"


def _path_of_uri(text: str) -> str:
    """Returns the path in a `file:` URI. `#` and `?` belong to it: file names may contain them."""
    rest = text[len(_FILE) :]
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host.lower() not in _FILE_HOSTS:
            raise UnsupportedError(f"{text}: it names another machine, {host}; name a path on this one")
        rest = slash + path
    return os.fsdecode(unquote_to_bytes(os.fsencode(rest)))  # %ff is a byte, whatever the text's encoding


def require_name(text: str) -> None:
    """Raises ConfigError for text that cannot name a file: with a NUL, or with half a character (a lone surrogate)."""
    if "\0" in text:
        raise ConfigError(f"{text!r}: a path cannot contain a NUL")
    try:
        os.fsencode(text)
    except UnicodeEncodeError as error:
        raise ConfigError(f"{text!r}: a path cannot contain half a character") from error


# --- file systems


def machine_files() -> RoutingFileSystem:
    """Returns the file system of this machine's files and of URLs."""
    return RoutingFileSystem(LocalFileSystem(), shared_remote_files)


def files_with(settings: StoreSettings) -> RoutingFileSystem:
    """Returns a file system with its own store settings, cache and listings. Listings stay valid until
    `forget_listings`.
    """

    def remote() -> RemoteFileSystem:
        from seglog.remote.filesystem import RemoteFileSystem
        from seglog.remote.limits import limits_of
        from seglog.remote.traffic import OF_PROCESS

        limits = limits_of(settings.over(os.environ))
        return RemoteFileSystem(settings=settings, limits=replace(limits, listing_s=math.inf), traffic=OF_PROCESS)

    return RoutingFileSystem(LocalFileSystem(), cache(remote))


def shared_remote_files() -> RemoteFileSystem:
    """Returns the process's remote file system; all its users share its cache and limits."""
    global _shared
    if _shared is None:
        from seglog.remote.filesystem import RemoteFileSystem
        from seglog.remote.traffic import OF_PROCESS

        _shared = RemoteFileSystem(traffic=OF_PROCESS)
    return _shared


_shared: RemoteFileSystem | None = None


def traffic() -> Traffic:
    """Returns the requests to object stores of this process and of the tasks of its jobs."""
    from seglog.remote.traffic import OF_PROCESS

    return OF_PROCESS


class RoutingFileSystem(PassingFileSystem):
    """Routes RemotePaths to `remote`, other paths to `local`. URLs are read-only here: changes go to `local`, which has
    no such path. `put`, `create` and `discard` handle both.
    """

    def __init__(self, local: FileSystem, remote: Callable[[], RemoteFileSystem]) -> None:
        super().__init__(local)
        self._remote = remote
        self._opened: RemoteFileSystem | None = None

    def forget_listings(self) -> None:
        """Drops all listings of stores."""
        if self._opened is not None:
            self._opened.forget_listings()

    def expect(self, path: Path, size: int, modified_ns: int, version: str) -> None:
        """Sets what is known of a remote object (`RemoteFileSystem.expect`)."""
        if isinstance(path, RemotePath):
            self._opening().expect(path, size, modified_ns, version)

    def beginning(self, directory: Path, start: str) -> set[str] | None:
        """Returns the names of the directories in an object store's `directory` that begin with `start`, and lists only
        those. Returns None if a listing cannot be limited so.
        """
        is_store = isinstance(directory, RemotePath) and directory.scheme in OBJECT_STORES
        return self._opening().beginning(directory, start) if is_store else None

    def put(self, path: Path, pieces: Iterable[bytes], size: int) -> None:
        """Makes an object or a file, whole and durable on return. Its name must be new."""
        if isinstance(path, RemotePath):
            self._opening().put(path, pieces, size)
            return
        self._below.make_directory(path.parent, parents=True)
        with self._below.open(path, "create_new") as file:
            position = 0
            for piece in pieces:
                file.write_at(position, piece)
                position += len(piece)
            file.sync()
        self._below.sync_directory(path.parent)

    def create(self, path: Path, data: bytes) -> bool:
        """Makes an object or a file with `data` unless the name exists; then returns False. If several create one name
        at once, one gets True, and no reader sees a part.
        """
        if isinstance(path, RemotePath):
            return self._opening().create(path, data)
        unfinished = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
        self.put(unfinished, [data], len(data))
        try:
            self._below.link(unfinished, path)
        except FileExistsError:
            return False
        finally:
            self._below.remove(unfinished)
        self._below.sync_directory(path.parent)
        return True

    def discard(self, path: Path) -> None:
        """Removes an object or a file if it exists."""
        if isinstance(path, RemotePath):
            self._opening().discard(path)
            return
        with suppress(FileNotFoundError):
            self._below.remove(path)

    def open(self, path: Path, mode: OpenMode) -> File:
        return self._of(path).open(path, mode)

    def status(self, path: Path, follow: bool = True) -> FileStatus | None:
        return self._of(path).status(path, follow)

    def list(self, directory: Path) -> list[str]:
        return self._of(directory).list(directory)

    def entries(self, directory: Path) -> Sequence[tuple[str, FileStatus]]:
        return self._of(directory).entries(directory)

    def reads_at_once(self, path: Path) -> int:
        return self._of(path).reads_at_once(path)

    def read_bytes(self, path: Path, limit: int = READ_BYTES_LIMIT) -> bytes:
        return self._of(path).read_bytes(path, limit)

    def _of(self, path: Path) -> FileSystem:
        return self._opening() if isinstance(path, RemotePath) else self._below

    def _opening(self) -> RemoteFileSystem:
        self._opened = self._remote()
        return self._opened
