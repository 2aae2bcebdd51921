"""The folder of this user's cache."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path


def cache_root(environ: Mapping[str, str] | None = None, platform: str = sys.platform) -> Path:
    """Return TIDEMILL_CACHE, else `tidemill` in the user's cache folder (XDG base directories, macOS's custom)."""
    environ = os.environ if environ is None else environ
    if chosen := environ.get("TIDEMILL_CACHE"):
        return Path(chosen).expanduser().absolute()
    xdg = Path(environ.get("XDG_CACHE_HOME", ""))
    if xdg.is_absolute():  # the specification says to ignore a relative one
        return xdg / "tidemill"
    return Path.home() / ("Library/Caches" if platform == "darwin" else ".cache") / "tidemill"
