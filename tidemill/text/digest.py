"""A short hash of plain values, the same in every process and on every host."""

import hashlib
import json

_LENGTH = 16


def digest(value: object, *, length: int = _LENGTH) -> str:
    """Return a short hash of JSON values; a value that JSON does not have counts as its string."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:length]
