"""The error about an alert that could not be delivered."""

from tidemill.errors import TransientError


class DeliveryError(TransientError):
    """An alert could not be delivered; the next tick sends it."""

    code = "alert-not-delivered"
    lost = "No alert was lost: the next tick sends it."
