"""An alert: one message about a stream that fails, or that has recovered."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from tidemill.errors import TransientError

Cause = Literal["run failed", "check failed"]
Event = Literal["failed", "recovered"]

SCHEMA_VERSION = 1
MOST_CHARACTERS = 3_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One message.

    Attributes:
        event: `failed` or `recovered`.
        cause: `run failed` or `check failed`.
        subject: What fails: a stream (`ads/clicks`), or the pipeline or the step whose run did not get to its
            streams.
        stream: The stream; None where the subject is no stream.
        check: The check that failed; None for a run.
        message: What happened, what was lost, and the fix.
        run_id: The run of Dagster that found it.
        at: When it happened.
    """

    event: Event
    cause: Cause
    target: str
    subject: str
    stream: str | None = None
    check: str | None = None
    message: str
    run_id: str
    at: datetime

    @property
    def title(self) -> str:
        """The alert in one line."""
        cause = f"{self.cause} ({self.check})" if self.check else self.cause
        event = cause if self.event == "failed" else f"recovered from: {cause}"
        return " ".join(f"[tidemill {self.target}] {self.subject}: {event}".split())

    @property
    def body(self) -> str:
        """The rest of the message, as it is sent in plain text."""
        return f"{shortened(self.message)}\nDagster run {self.run_id}, {self.at:%Y-%m-%d %H:%M:%S} UTC"

    def as_json(self) -> dict[str, Any]:
        """Return the object that the webhook gets; `text` is what chat systems display."""
        text = f"{self.title}\n{self.body}"
        return {
            "schema_version": SCHEMA_VERSION,
            # Slack reads <...> as a link or a mention; the text of an error must not notify a whole channel.
            "text": text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"),
            "event": self.event,
            "cause": self.cause,
            "target": self.target,
            "subject": self.subject,
            "stream": self.stream,
            "check": self.check,
            "message": shortened(self.message),
            "run_id": self.run_id,
            "at": self.at.isoformat(timespec="seconds"),
        }


def shortened(message: str) -> str:
    """Return a message that every channel accepts: the end of a very long one is left out."""
    if len(message) <= MOST_CHARACTERS:
        return message
    return message[:MOST_CHARACTERS] + " ... (the log of the run has the rest)"


class DeliveryError(TransientError):
    """An alert could not be delivered; the next tick sends it."""

    code = "alert-not-delivered"
    lost = "No alert was lost: the next tick sends it."
