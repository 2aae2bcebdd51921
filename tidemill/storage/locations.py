"""Locations of tables as catalogs write them: a folder or an address, in one of several spellings."""

import re
from urllib.parse import unquote

_FILE = re.compile(r"file:(//)?(?=/)", re.IGNORECASE)
_S3 = re.compile(r"s3[an]?:/{1,2}", re.IGNORECASE)


def spelled(location: str) -> str:
    """Return a location in one spelling: without `file:`, of S3 with `s3a://`, and without a slash at its end."""
    return _S3.sub("s3a://", _FILE.sub("", location, count=1), count=1).rstrip("/")


def is_same_location(one: str, other: str) -> bool:
    """Return whether two strings mean the same location; one of them may be percent-encoded, as in an address."""
    one, other = spelled(one), spelled(other)
    return one == other or unquote(one) == other or one == unquote(other)
