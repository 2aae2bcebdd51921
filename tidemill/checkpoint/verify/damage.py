"""The damaged files of a checkpoint: examined on demand at level `quick`, all of them at level `full`."""

from collections.abc import Callable, Iterator

from tidemill.checkpoint.format.errors import CheckpointFormatError
from tidemill.checkpoint.verify.contents import Contents
from tidemill.storage.store import Entry

Progress = Callable[[int, int], None]
"""A function that receives the number of bytes that are done, and their total."""


class Damage:
    """The problem of each file, and the files that a check requested.

    A damaged file that no check requested is one that the next start does not read.
    """

    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self._problems: dict[str, CheckpointFormatError] = {}
        self._requested: set[str] = set()
        self._examined: set[str] = set()

    def problem(self, path: str) -> CheckpointFormatError | None:
        """Return the problem of a file that the next start reads; None if the file is sound."""
        self._requested.add(path)
        if path not in self._examined:
            self._examine(path)
        return self._problems.get(path)

    def examine(self, files: list[Entry], on_progress: Progress | None) -> Iterator[str]:
        """Examine all files; yield those that are sound in themselves and do not match their checksums."""
        total = sum(file.size for file in files)
        done = 0
        for file in files:
            path = file.key
            self._examine(path)
            hidden = file.name.startswith(".")
            if not hidden and path not in self._problems and self._contents.matches_checksums(path) is False:
                yield path
            done += file.size
            if on_progress is not None:
                on_progress(done, total)

    def requested(self, path: str) -> bool:
        """Return whether a check requested a file."""
        return path in self._requested

    def unread(self) -> Iterator[CheckpointFormatError]:
        """Yield the problems of files that no check requested."""
        for path, problem in self._problems.items():
            if path not in self._requested:
                yield problem

    def _examine(self, path: str) -> None:
        self._examined.add(path)
        problem = self._contents.problem(path)
        if problem is not None:
            self._problems[path] = problem
