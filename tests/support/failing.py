"""A sink that fails on purpose."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from uuid import uuid4

from tidemill import DeltaAppend

PURPOSE = "on purpose"


@dataclass(frozen=True, kw_only=True)
class Failing(DeltaAppend):
    """An append that fails once, before its first commit or after it, in whichever process it writes."""

    when: Literal["before", "after"]
    mark: str = field(default_factory=lambda: uuid4().hex)

    @property
    def identity(self):
        return DeltaAppend().identity

    def commit(self, rows, table, transaction, metadata):
        has_failed = Path(f"{table.uri}.{self.mark}")
        fails = not has_failed.exists()
        if self.when == "after" or not fails:
            super().commit(rows, table, transaction, metadata)
        if fails:
            has_failed.touch()
            raise RuntimeError(PURPOSE)
