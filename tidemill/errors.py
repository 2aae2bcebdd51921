"""Errors as types: whether a retry can help, what was lost, and what fixes it.

Two families drive everything that follows an error: a `TransientError` is worth a retry, a `TerminalError` is
not. Every message has the same order: the stream, what happened, what was lost (nothing, as a rule), and after
`Fix:` the command or edit.
"""

from typing import Self

NOTHING_LOST = "No data was lost."


class TidemillError(Exception):
    """Base of all errors of Tidemill.

    Attributes:
        code: The stable name of this kind of error, such as `lease-held`; docs/errors.md explains each.
        what: What happened, one or more sentences.
        stream: The stream it happened to, as `<pipeline>/<stream>`; None where no stream is involved.
        lost: What was lost.
        fix: The command or edit that fixes it; empty where `what` already says it.
        error_class: The engine's own error class (Spark's, Delta's), where there is one.
        rule: The expectation that stopped the run, where one did.
    """

    transient = False
    # Of an error that is raised without them.
    code = "error"
    lost = ""
    fix = ""

    def __init__(
        self,
        what: str,
        *,
        code: str | None = None,
        stream: object | None = None,
        lost: str | None = None,
        fix: str | None = None,
        error_class: str | None = None,
        rule: str | None = None,
    ) -> None:
        self.what = what
        self.code = self.code if code is None else code
        self.stream = None if stream is None else str(stream)
        self.lost = self.lost if lost is None else lost
        self.fix = self.fix if fix is None else fix
        self.error_class = error_class
        self.rule = rule
        super().__init__(str(self))

    def of(self, stream: object) -> Self:
        """Return the same error with the stream that it happened to."""
        named = type(self).__new__(type(self), *self.args)
        named.__dict__.update(self.__dict__)
        named.stream = str(stream)
        return named

    def __str__(self) -> str:
        head = f"{self.stream}: " if self.stream else ""
        return head + " ".join(filter(None, (self._event, self.lost, self.fix and f"Fix: {self.fix}")))

    @property
    def _event(self) -> str:
        """What happened, as the message has it."""
        return self.what


class DefinitionError(TidemillError, ValueError):
    """A pipeline, a stream or one of its parts is declared wrongly; raised at the declaration."""

    code = "argument-invalid"


class ConfigurationError(TidemillError):
    """A target, a flag or the environment is wrong; raised before anything is read."""


class TransientError(TidemillError):
    """A failure that a retry can fix: a broker that is down, a lost connection, a conflicting write."""

    transient = True
    lost = NOTHING_LOST
    fix = "Run it again; the next run continues where this one stopped."


class TerminalError(TidemillError):
    """A failure that every retry repeats until somebody changes something."""

    lost = NOTHING_LOST


class LeaseHeldError(TerminalError):
    """Another run holds the stream's lease; this run changed nothing."""

    code = "lease-held"


class LeaseLostError(TerminalError):
    """Another run has taken the stream over; this run must not write any more."""

    code = "lease-lost"


class CheckpointError(TerminalError):
    """The checkpoint is damaged, missing, or not the one that the table was written with."""


class DataLossError(TerminalError):
    """A source no longer has the data that the checkpoint reads next."""


class SchemaChangeError(TerminalError):
    """The output no longer fits the table."""


class UpstreamChangeError(TerminalError):
    """Rows were removed or changed in a table that the stream reads as append-only."""


class CanceledError(TidemillError):
    """The run was asked to stop; the next run repeats the batch that was in progress."""

    code = "canceled"
    lost = NOTHING_LOST
    fix = TransientError.fix

    def __init__(self, what: str = "the run was canceled.", *, stream: object | None = None) -> None:
        super().__init__(what, stream=stream)
