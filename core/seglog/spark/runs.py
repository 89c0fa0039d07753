"""Log directories that are read while a run of seglog changes them, or after one was cut short: a plan takes a part for
the whole.
"""

from __future__ import annotations

import logging
from pathlib import Path

from seglog.errors import IncompleteError
from seglog.remote_path import RemotePath
from seglog.scan.view import unfinished_run
from seglog.storage.filesystem import FileSystem

_logger = logging.getLogger(__name__)


class RunWatch:
    """Looks for such runs during one search for partitions: before anything is listed, and when all is.

    A run that is found is an IncompleteError, or a line of the log where `fail_on_data_loss` is false.
    """

    def __init__(self, fs: FileSystem, *, fail_on_data_loss: bool) -> None:
        self._fs, self._fail_on_data_loss = fs, fail_on_data_loss
        self._seen: set[Path] = set()

    def look_in(self, log_directory: Path) -> None:
        """Looks in a log directory, the first time that it is met. URLs are passed over: runs are only on disks."""
        if log_directory not in self._seen and not isinstance(log_directory, RemotePath):
            self._seen.add(log_directory)
            self._look(log_directory)

    def look_again(self) -> None:
        """Looks once more in all of them: a run may have begun since."""
        for log_directory in sorted(self._seen):
            self._look(log_directory)

    def _look(self, log_directory: Path) -> None:
        problem = unfinished_run(self._fs, log_directory)
        if problem and self._fail_on_data_loss:
            raise IncompleteError(f"{problem} (failOnDataLoss=false goes on with what is there)")
        if problem:
            _logger.warning("%s; going on", problem)
