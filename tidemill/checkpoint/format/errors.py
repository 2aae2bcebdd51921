"""Errors about a checkpoint: the folder is not one, or a file in it is not what Spark wrote."""

from tidemill.errors import CheckpointError

UNCHANGED = "Nothing was changed."


class NotACheckpointError(CheckpointError):
    """The folder does not exist, or has no `metadata`, no `offsets` and no `commits`."""

    code = "not-a-checkpoint"

    def __init__(self, path: object, what: str) -> None:
        self.path = str(path)
        super().__init__(
            f"{self.path} is not a checkpoint: {what}.",
            lost=UNCHANGED,
            fix="Give the query's checkpointLocation: the folder with metadata, offsets/ and commits/.",
        )


class CheckpointFormatError(CheckpointError):
    """A file of a checkpoint cannot be read in its format.

    Attributes:
        where: The file, relative to the checkpoint.
        what: What is wrong with the file.
        code: The code under which `verify` reports the problem, such as `truncated-file`.
    """

    def __init__(self, where: str, what: str, *, code: str, fix: str = "") -> None:
        self.where = where
        super().__init__(what, code=code, lost=UNCHANGED, fix=fix)

    @property
    def _event(self) -> str:
        return f"{self.where}: {self.what}"


class FileAbsentError(CheckpointFormatError):
    """A file is missing."""

    def __init__(self, where: str) -> None:
        super().__init__(where, "The file is missing.", code="missing-file")
