"""The known listings of an object store's directories; fresh ones are reused.

A listing without delimiter costs one request per thousand keys, and shows all directories below at once. A listing with
delimiter shows a single directory, whatever is below it. A log directory is flat and wide, but a bucket may be deep. So
the first page decides: if all its keys are in the directory or one level below, the listing continues; otherwise a
listing of that directory alone replaces it.

When listings are no longer fresh, one directory is listed alone, for readers that follow one partition. At the second
one, what had shown both is listed again: so a walk through many partitions costs a request per thousand keys a minute.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterable, Mapping, Sequence

from seglog.clock import Clock
from seglog_stores.remote.store import PAGE, ObjectStatus, ObjectStore

_SHALLOW = 2  # parts of a key below a directory: a partition and a file in it

Found = ObjectStatus | None  # None: a directory


class Listings:
    """The directories of `store`. What is known of one stays valid for `kept_s` seconds."""

    def __init__(self, store: ObjectStore, clock: Clock, kept_s: float) -> None:
        self._store, self._clock, self._kept_s = store, clock, kept_s
        self._directories: dict[str, dict[str, Found]] = {}
        self._since: dict[str, float] = {}
        self._single: dict[str, tuple[float, ObjectStatus | None]] = {}
        self._asked: dict[str, set[str]] = {}
        self._shown_by: dict[str, str] = {}  # directory → the one whose wide listing showed it
        self._renewed_below: dict[str, str] = {}  # the latter → the first of the former that was listed again alone
        self._guard = threading.RLock()

    def entries(self, directory: str) -> Mapping[str, Found] | None:
        """Returns the contents of a directory by name, None if there is nothing."""
        with self._guard:
            known = self._current(directory)
            if known is None:
                known = self._named_before(directory)
            if known is None:
                self._look(directory)
                known = self._directories.get(directory)
            return known or None

    def _named_before(self, directory: str) -> dict[str, Found] | None:
        """For a server that may not list: returns the files in a directory that were requested by name."""
        if self._store.lists:
            return None
        found = {key: status for key, (_, status) in self._single.items() if status is not None}
        return {k.rpartition("/")[2]: each for k, each in found.items() if k.rpartition("/")[0] == directory} or None

    def beginning(self, directory: str, start: str) -> set[str]:
        """Returns the names of the directories in `directory` that begin with `start` (or equal it, if it ends with a
        slash), and lists their contents. Does not list keys before and after those, nor report files.
        """
        below = f"{directory}/{start}" if directory else start
        objects: list[ObjectStatus] = []
        with self._guard:
            for page in self._store.pages(directory, below):
                objects += [status for status in page if status.key.startswith(below)]
                if not page or not page[-1].key.startswith(below):
                    break
            contents = self._by_directory(directory, objects)
            names = {name for name, status in contents.pop(directory).items() if status is None}
            self._note(contents)
            return names

    def find(self, key: str) -> tuple[bool, Found]:
        """Returns whether something exists at `key`, and the object there (None for a directory)."""
        directory, _, name = key.rpartition("/")
        with self._guard:
            if not key or self._known(key):
                return True, None
            around = self._current(directory)
            if around is not None:
                return name in around, around.get(name)
            moment, found = self._single.get(key, (0.0, None))
            if key in self._single and self._is_fresh(moment):
                return found is not None, found
            try:
                if self._store.lists and self._is_narrow(directory, key):
                    return self.find(key)
                if self._store.lists and self.entries(key):
                    return True, None
            except PermissionError as refused:
                return True, self._object_alone(key, refused)
            found = self._store.head(key)
            if found is not None and found.is_page:
                return True, None
            self._single[key] = self._clock.monotonic(), found
            return found is not None or self._is_listed(key), found

    def _object_alone(self, key: str, refused: PermissionError) -> ObjectStatus:
        """Returns the object at `key` for a user who may read but not list. The store does not tell such a user that an
        object is missing; so without an object, raises `refused`, the error of the listing.
        """
        try:
            found = self._store.head(key)
        except PermissionError:
            found = None
        if found is None:
            raise refused
        self._single[key] = self._clock.monotonic(), found
        return found

    def _is_narrow(self, directory: str, key: str) -> bool:
        """Lists a directory in which a second name is requested. Returns True if one page had all of it."""
        asked = self._asked.setdefault(directory, set())
        asked.add(key)
        if len(asked) != 2:
            return False
        page = next(iter(self._store.pages(directory)), ())
        if len(page) >= PAGE:
            return False
        self._note(self._by_directory(directory, page))
        return True

    def _is_listed(self, directory: str) -> bool:
        """True if a web server lists the directory; without listings its directories are unknown."""
        if self._store.lists:
            return False  # it was listed before
        try:
            return self.entries(directory) is not None
        except OSError as error:
            if error.errno != errno.ENOTSUP:
                raise
            return False

    def expect(self, key: str, status: ObjectStatus) -> None:
        """Sets `status` for the object at `key`, unless a listing says otherwise."""
        with self._guard:
            self._single[key] = self._clock.monotonic(), status

    def forget_all(self) -> None:
        """Forgets everything."""
        with self._guard:
            for known in (self._directories, self._since, self._single, self._asked):
                known.clear()
            self._shown_by.clear()
            self._renewed_below.clear()

    def forget(self, key: str) -> None:
        """Forgets the object at `key`, which has changed, and its directory."""
        with self._guard:
            directory = key.rpartition("/")[0]
            self._directories.pop(directory, None)
            self._single.pop(key, None)

    def _known(self, directory: str) -> dict[str, Found] | None:
        if directory in self._directories and self._is_fresh(self._since[directory]):
            return self._directories[directory]
        return None

    def _current(self, directory: str) -> dict[str, Found] | None:
        """Returns the fresh contents of a directory, after listing it again if they were known before."""
        known = self._known(directory)
        if known is not None or directory not in self._directories:
            return known
        above = self._shown_by.get(directory)
        if above is not None and self._renewed_below.setdefault(above, directory) != directory:
            for each in [each for each, by in self._shown_by.items() if by == above]:
                self._directories.pop(each, None)
            self._look(above)
            known = self._known(directory)
        if known is None:
            self._look(directory)
            known = self._known(directory)
        return known

    def _is_fresh(self, moment: float) -> bool:
        return self._clock.monotonic() - moment < self._kept_s

    def _look(self, directory: str) -> None:
        listed: list[ObjectStatus] = []
        for page in self._store.pages(directory):
            if not listed and not self._is_shallow(directory, page):
                objects, directories = self._store.level(directory)
                named: dict[str, Found] = {e.key.rpartition("/")[2]: e for e in objects if e.key != directory}
                named |= dict.fromkeys((key.rpartition("/")[2] for key in directories), None)
                self._note({directory: named})
                return
            listed += page
        contents = self._by_directory(directory, listed)
        self._note(contents)
        self._shown_by.update((below, directory) for below in contents if below != directory)
        self._renewed_below.pop(directory, None)

    def _is_shallow(self, directory: str, page: Sequence[ObjectStatus]) -> bool:
        """True if the listing of all keys should continue after this first page; also if the page is the only one."""
        below = len(directory) + 1 if directory else 0
        return len(page) < PAGE or all(each.key.count("/", below) < _SHALLOW for each in page)

    def _note(self, directories: Mapping[str, dict[str, Found]]) -> None:
        moment = self._clock.monotonic()
        self._directories.update(directories)
        self._since.update(dict.fromkeys(directories, moment))

    def _by_directory(self, top: str, objects: Iterable[ObjectStatus]) -> dict[str, dict[str, Found]]:
        found: dict[str, dict[str, Found]] = {top: {}}
        for each in objects:
            if each.key == top:
                continue  # consoles create such an object to show a directory
            directory, _, name = each.key.rpartition("/")
            if each.key not in found:  # skips a directory marker whose directory has contents
                found.setdefault(directory, {})[name] = each
            while directory != top:
                above, _, name = directory.rpartition("/")
                found.setdefault(above, {})[name] = None
                directory = above
        return found
