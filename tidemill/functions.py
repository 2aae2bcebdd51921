"""`pyspark.sql.functions`, loaded when the first of them is called.

```python
from tidemill import functions as F
```

Every command reads the definitions, most of them find nothing to do, and loading pyspark is the longest part of
such a command. `from pyspark.sql import functions as F` works as well, and costs that time.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.functions import *  # noqa: F403


def __getattr__(name: str) -> Any:
    """Return the function of that name.

    Raises:
        AttributeError: Spark has no such function.
    """
    if name.startswith("__"):  # the import system asks a module for these
        raise AttributeError(name)
    from pyspark.sql import functions

    return getattr(functions, name)
