"""What can go wrong, as types: may a retry help, what was lost, and what fixes it.

Two families drive everything that follows an error: a `TransientError` is worth another attempt, a
`TerminalError` is not. Every message reads in the same order: the stream, what happened, what was lost
(nothing, as a rule), and the command or edit that fixes it.
"""

NOTHING_LOST = "Nothing was lost."


class TidemillError(Exception):
    """Base of all errors of ours.

    Attributes:
        what: What happened, one or more sentences.
        stream: The stream it happened to, as `<pipeline>/<stream>`; None where no stream is involved.
        lost: What was lost.
        fix: The command or edit that fixes it; empty where `what` already says it.
        error_class: The engine's own error class (Spark's, Delta's), where there is one.
    """

    transient = False

    def __init__(
        self,
        what: str,
        *,
        stream: object | None = None,
        lost: str = "",
        fix: str = "",
        error_class: str | None = None,
    ) -> None:
        self.what = what
        self.stream = None if stream is None else str(stream)
        self.lost = lost
        self.fix = fix
        self.error_class = error_class
        super().__init__(str(self))

    def __str__(self) -> str:
        head = f"{self.stream}: " if self.stream else ""
        return head + " ".join(part for part in (self.what, self.lost, self.fix) if part)


class DefinitionError(TidemillError, ValueError):
    """A pipeline, a stream or one of its parts is declared wrongly; raised when it is declared."""


class ConfigurationError(TidemillError):
    """A target, a flag or the environment is wrong; nothing was looked at yet."""


class TransientError(TidemillError):
    """Worth another attempt: a broker that is down, a lost connection, a conflict with another writer."""

    transient = True

    def __init__(
        self,
        what: str,
        *,
        stream: object | None = None,
        lost: str = NOTHING_LOST,
        fix: str = "The next run continues where this one stopped.",
        error_class: str | None = None,
    ) -> None:
        super().__init__(what, stream=stream, lost=lost, fix=fix, error_class=error_class)


class TerminalError(TidemillError):
    """Another attempt would fail the same way until somebody changes something."""

    def __init__(
        self,
        what: str,
        *,
        stream: object | None = None,
        lost: str = NOTHING_LOST,
        fix: str = "",
        error_class: str | None = None,
    ) -> None:
        super().__init__(what, stream=stream, lost=lost, fix=fix, error_class=error_class)


class LeaseHeldError(TerminalError):
    """Another run works on this stream: this one touched nothing."""


class LeaseLostError(TerminalError):
    """Another run took this stream over; this one must not write any more."""


class CheckpointError(TerminalError):
    """The checkpoint is damaged, missing or not the one that the table was written with."""


class DataLossError(TerminalError):
    """A source no longer has what the checkpoint says comes next."""


class SchemaChangeError(TerminalError):
    """The output no longer fits the table."""


class UpstreamChangeError(TerminalError):
    """Rows were removed or changed in a table that this stream reads as append-only."""


class CanceledError(TidemillError):
    """The run was asked to stop; the batch that was under way is repeated by the next run."""

    def __init__(
        self,
        what: str = "the run was canceled.",
        *,
        stream: object | None = None,
        lost: str = "Nothing was lost: the next run continues.",
        fix: str = "",
        error_class: str | None = None,
    ) -> None:
        super().__init__(what, stream=stream, lost=lost, fix=fix, error_class=error_class)
