"""Which files of a checkpoint are damaged: on demand for a quick look, all of them for a full one."""

from collections.abc import Callable, Iterator

from pipelines.streaming.checkpoint.contents import Contents
from pipelines.streaming.checkpoint.errors import CheckpointFormatError
from pipelines.streaming.checkpoint.files import Item

Progress = Callable[[int, int], None]
"""Is told how many bytes are done, of how many."""


class Damage:
    """Remembers what was found of each file, and which files somebody asked about.

    A damaged file that nobody asked about is one that the next start does not read.
    """

    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self._problems: dict[str, CheckpointFormatError] = {}
        self._asked: set[str] = set()
        self._examined: set[str] = set()

    def problem(self, path: str) -> CheckpointFormatError | None:
        """What is wrong with a file that the next start reads; None when nothing is."""
        self._asked.add(path)
        if path not in self._examined:
            self._examine(path)
        return self._problems.get(path)

    def examine(self, files: list[tuple[str, Item]], on_progress: Progress | None) -> Iterator[str]:
        """Looks into all files; gives those whose sidecar does not fit while they are sound in themselves."""
        total = sum(item.size for _, item in files)
        done = 0
        for path, item in files:
            self._examine(path)
            hidden = path.rpartition("/")[2].startswith(".")
            if not hidden and path not in self._problems and self._contents.sum_matches(path) is False:
                yield path
            done += item.size
            if on_progress is not None:
                on_progress(done, total)

    def asked(self, path: str) -> bool:
        """Whether somebody asked about a file."""
        return path in self._asked

    def unread(self) -> Iterator[CheckpointFormatError]:
        """What is wrong with files that nobody asked about."""
        for path, problem in self._problems.items():
            if path not in self._asked:
                yield problem

    def _examine(self, path: str) -> None:
        self._examined.add(path)
        problem = self._contents.problem(path)
        if problem is not None:
            self._problems[path] = problem
