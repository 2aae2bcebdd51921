"""The files that may be unread, by as few requests as possible: a listing of a store has 1,000 files in each.

On a file system each question lists the folder. On a store a listing that took long is kept for ten times as long, so
that listing takes at most a tenth of the time of a process that asks often, as a sensor does. Files whose names come
after all earlier ones are listed by themselves.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic

from tidemill.connectors.files.addresses import is_on_store, source_path
from tidemill.connectors.files.listing import Present, present_files
from tidemill.storage.lake import Lake

# A listing that takes less is made again each time, seconds.
_SHORT = 1.0
_KEPT_TIMES = 10


@dataclass(frozen=True, slots=True)
class Recent:
    """A listing.

    Attributes:
        present: The files that may be unread.
        count: How many files there are, read ones too; None where the older ones were not listed.
        last: The address that comes last; "" where no file was listed.
    """

    present: Present
    count: int | None
    last: str

    @classmethod
    def of(cls, present: Present) -> "Recent":
        """Return a listing of everything."""
        return cls(present, len(present.paths), max(present.paths, default=""))


@dataclass(frozen=True, slots=True)
class _Kept:
    """A listing of everything, reduced to the files that were unread then, and until when it is used."""

    recent: Recent
    until: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Which files of a source may be unread.

    Attributes:
        path: A folder, a file, or a glob of them.
        options: The file source's options.
        lake: The lake of the target, which says how S3 is reached.
        what: A description of the source.
        reader: Who reads it, by the address of the checkpoint.
        unread: Returns those of some files that are not read.
        newest_read: The last address of the files that are read; "" where none is.
        is_ordered: Whether new files have names after those of all earlier ones, as declared.
        seems_ordered: Whether the files that are read came in the order of their names.
    """

    path: str
    options: Mapping[str, str]
    lake: Lake
    what: str
    reader: str
    unread: Callable[[list[str]], list[str]]
    newest_read: str
    is_ordered: bool
    seems_ordered: bool

    def listed(self, after: str = "") -> Present:
        """Return the files that are there.

        Args:
            after: Only those after this address.
        """
        return present_files(self.path, self.options, self.lake, what=self.what, after=after)


_kept: dict[tuple[object, ...], _Kept] = {}


def recent_files(question: Question) -> Recent:
    """Return the files that may be unread; raises as `present_files` does."""
    if not is_on_store(source_path(question.path)):
        return Recent.of(question.listed())
    if question.is_ordered and question.newest_read:
        present = question.listed(question.newest_read)
        return Recent(present, None, max(present.paths, default=question.newest_read))
    key = (question.path, frozenset(question.options.items()), question.lake.access, question.reader)
    kept = _kept.get(key)
    if kept is None or monotonic() >= kept.until:
        return _listed_anew(question, key)
    if not question.seems_ordered:
        return kept.recent
    earlier = kept.recent
    newer = Recent.of(question.listed(max(earlier.last, question.newest_read)))
    return Recent(
        earlier.present.with_others(newer.present),
        (earlier.count or 0) + (newer.count or 0),
        max(earlier.last, newer.last),
    )


def _listed_anew(question: Question, key: tuple[object, ...]) -> Recent:
    begun = monotonic()
    recent = Recent.of(question.listed())
    ended = monotonic()
    if ended - begun < _SHORT:
        _kept.pop(key, None)
    else:
        unread = recent.present.only(question.unread(recent.present.paths))
        _kept[key] = _Kept(Recent(unread, recent.count, recent.last), ended + _KEPT_TIMES * (ended - begun))
    return recent
