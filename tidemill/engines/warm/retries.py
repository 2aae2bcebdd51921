"""Retries of Spark Connect that end with the server: Spark's own last ten minutes."""

from threading import Event

from pyspark.sql.connect.client.retries import DefaultPolicy


class WhileServed(DefaultPolicy):
    """Spark's retries, as long as the server lives.

    Args:
        ended: Set when the server has ended.
    """

    def __init__(self, ended: Event) -> None:
        super().__init__()
        self._ended = ended

    def can_retry(self, exception: BaseException) -> bool:
        """Return whether a failed call may be repeated."""
        return not self._ended.is_set() and super().can_retry(exception)
