"""The error about an alert that could not be delivered."""

from tidemill.errors import TransientError


class DeliveryError(TransientError):
    """An alert could not be delivered; the next tick sends it."""

    def __init__(self, what: str, *, fix: str) -> None:
        super().__init__(what, lost="No alert was lost: the next tick sends it.", fix=fix)
