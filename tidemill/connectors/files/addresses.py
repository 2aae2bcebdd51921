"""The addresses of files as Spark writes them, and paths."""

import re
from urllib.parse import quote as percent_encoded
from urllib.parse import unquote

_GLOB = re.compile(r"[*?\[{]")
_NOT_ESCAPED = "/-_.!~'()*,;:$&+=@"


def file_address(path: str) -> str:
    """Return the address of a file as Spark logs it."""
    return f"file://{_escaped(path)}"


def _escaped(path: str) -> str:
    """Return a path as `java.net.URI` escapes it: only what is not allowed in ASCII."""
    return "".join(char if not char.isascii() else percent_encoded(char, safe=_NOT_ESCAPED) for char in path)


def plain_path(address: str) -> str:
    """Return a path as Spark logs it (`file:///a/b%20c`), or as users write it, without scheme and escapes."""
    if not address.startswith("file:"):
        return address
    path = address.removeprefix("file:")
    path = path.removeprefix("//") if path.startswith("///") else path
    return unquote(path) if "%" in path else path


def without_glob(path: str) -> str:
    """Return a path up to the first pattern in it."""
    parts = path.split("/")
    plain = next((number for number, part in enumerate(parts) if _GLOB.search(part)), len(parts))
    return "/".join(parts[:plain])


def is_glob(path: str) -> bool:
    """Return whether a path is a pattern of several."""
    return _GLOB.search(path) is not None
