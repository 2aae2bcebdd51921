"""The commits of a table's log by which a rewind restored an earlier version."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemill.storage.commit_metadata import commit_metadata

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidemill.storage.delta_log import Commit


@dataclass(frozen=True, slots=True, order=True)
class Restore:
    """A commit that restored an earlier version of a table.

    Attributes:
        restored: The version that it restored.
    """

    version: int
    restored: int

    def takes_back(self, version: int) -> bool:
        """Return whether a commit is one that was taken back, or the restore itself."""
        return self.restored < version <= self.version


def restores_in(commits: "Iterable[Commit]") -> list[Restore]:
    """Return the restores of a table's log that no later one has taken back, oldest first.

    Args:
        commits: Commits of the log, oldest first.
    """
    kept: list[Restore] = []
    for commit in reversed(list(commits)):
        restored = commit_metadata(commit).get("restores")
        if isinstance(restored, int) and not any(later.takes_back(commit.version) for later in kept):
            kept.append(Restore(commit.version, restored))
    return kept[::-1]
