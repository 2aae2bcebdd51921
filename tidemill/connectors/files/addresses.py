"""The addresses of files as Spark writes them, and paths."""

import os
import re
from urllib.parse import quote as percent_encoded
from urllib.parse import unquote

from tidemill.storage.local_store import scheme_of
from tidemill.storage.locations import spelled
from tidemill.storage.object_store import SCHEMES

_GLOB = re.compile(r"[*?\[{]")
_ALTERNATIVES = re.compile(r"\{([^{}]*)\}")
_NOT_ESCAPED = "/-_.!~'()*,;:$&+=@"
_ON_S3 = "s3a://"


def file_address(path: str) -> str:
    """Return the address of a file as Spark logs it."""
    return (
        f"{_ON_S3}{_escaped(path.removeprefix(_ON_S3))}" if is_on_store(path) else f"file://{_escaped(path)}"
    )


def _escaped(path: str) -> str:
    """Return a path as `java.net.URI` escapes it: only what is not allowed in ASCII."""
    return "".join(char if not char.isascii() else percent_encoded(char, safe=_NOT_ESCAPED) for char in path)


def plain_path(address: str) -> str:
    """Return a file without escapes: a path, or an address on another store.

    Args:
        address: As Spark logs it (`file:///a/b%20c`, `s3a://bucket/b%20c`).
    """
    if is_on_store(address):
        return unquote(address) if "%" in address else address
    if not address.startswith("file:"):
        return address
    path = address.removeprefix("file:")
    path = path.removeprefix("//") if path.startswith("///") else path
    return unquote(path) if "%" in path else path


def source_path(path: str) -> str:
    """Return the folder, file or glob that a source names as the addresses of its files begin.

    An absolute path, or an address such as `s3a://bucket/folder`.
    """
    if scheme_of(path) in SCHEMES:
        return spelled(path)
    plain = plain_path(path)
    return plain if "://" in plain else os.path.abspath(os.path.expanduser(plain))  # noqa: PTH100, PTH111


def is_on_store(path: str) -> bool:
    """Return whether an address is one on S3, as Spark writes it."""
    return path.startswith(_ON_S3)


def is_unknown(path: str) -> bool:
    """Return whether only Spark can list what is there: it is neither on a file system nor on S3."""
    return "://" in path and not is_on_store(path)


def without_glob(path: str) -> str:
    """Return a path up to the first pattern in it."""
    parts = path.split("/")
    plain = next((number for number, part in enumerate(parts) if _GLOB.search(part)), len(parts))
    return "/".join(parts[:plain])


def is_glob(path: str) -> bool:
    """Return whether a path is a pattern of several."""
    return _GLOB.search(path) is not None


def alternatives(pattern: str) -> list[str]:
    """Return `a{b,c}` as `ab` and `ac`: Hadoop's globs have braces and Python's do not."""
    braces = _ALTERNATIVES.search(pattern)
    if braces is None:
        return [pattern]
    before, after = pattern[: braces.start()], pattern[braces.end() :]
    return [path for part in braces[1].split(",") for path in alternatives(f"{before}{part}{after}")]
