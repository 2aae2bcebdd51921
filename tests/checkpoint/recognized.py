"""The reading of checkpoints whose sources are of the kinds that Tidemill knows."""

from functools import partial

from tidemill import checkpoint
from tidemill.checkpoint import verify as verification
from tidemill.connectors.registry import recognize

inspect = partial(checkpoint.inspect, recognize=recognize)
verify = partial(verification.verify, recognize=recognize)
