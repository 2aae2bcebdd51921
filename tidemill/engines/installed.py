"""Where pyspark is installed, found without importing it."""

import importlib.util
from pathlib import Path

from tidemill.errors import ConfigurationError


def pyspark_folder() -> Path:
    """Return the folder of the installed pyspark, which is a Spark home as well.

    Raises:
        ConfigurationError: pyspark is not installed.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ConfigurationError(
            "pyspark is not installed here.", fix="Run: pip install tidemill", code="pyspark-missing"
        )
    return Path(spec.origin).parent
