"""Asset keys of external data: Dagster accepts few characters in a key, and a path or a pattern has any.

What Dagster accepts stays as it is: `/data/in` is `files/data/in`. In anything else the refused characters
become `_`, and a hash of the original follows, so that two sources never share a key.
"""

import hashlib
import json
import re

# The parts of a key, joined, must match ^[A-Za-z0-9_]+$ once Dagster has replaced `-` and `.` by `_`.
_VALID = re.compile(r"[A-Za-z0-9_.-]+")
_REFUSED = re.compile(r"[^A-Za-z0-9_.-]+")
_HASH_LENGTH = 8
_ENDS_WITH_HASH = re.compile(rf".*-[0-9a-f]{{{_HASH_LENGTH}}}", re.DOTALL)
_STORES = frozenset({"abfs", "abfss", "dbfs", "gs", "hdfs", "s3", "s3a", "wasb", "wasbs"})


def topic_key(cluster: str, topic: str) -> tuple[str, ...]:
    """Return the key of a Kafka topic: `kafka/<cluster>/<topic>`."""
    return _key("kafka", [cluster, topic], [cluster, topic])


def pattern_key(cluster: str, pattern: str) -> tuple[str, ...]:
    """Return the key of all topics that match a pattern: `kafka/<cluster>/pattern/<pattern>`."""
    return _key("kafka", [cluster, "pattern", pattern], [cluster, pattern])


def folder_key(namespace: str, path: str) -> tuple[str, ...]:
    """Return the key of a folder: the namespace, and the folders of an absolute path or of a store's URL.

    Args:
        namespace: `files` or `delta`.
        path: A path, a glob or a URL.
    """
    path = path.removeprefix("file://") if path.startswith("file:///") else path
    path = path.rstrip("/")
    parts = [part for part in path.replace("://", "/", 1).split("/") if part]
    local = "".join(f"/{part}" for part in parts)
    url = local.removeprefix("/").replace("/", "://", 1)
    in_store = bool(parts) and parts[0] in _STORES
    return _key(namespace, parts, path, exact=path == (url if in_store else local))


def catalog_key(name: str) -> tuple[str, ...]:
    """Return the key of a table of a catalog: `delta/<catalog>.<schema>.<table>`."""
    return _key("delta", [name], name)


def table_key(database: str, table: str) -> tuple[str, ...]:
    """Return the key of a table of a database: `postgres/<database>/<schema>/<table>`."""
    return _key("postgres", [database, *table.split(".")], [database, table])


def query_key(database: str, query: str) -> tuple[str, ...]:
    """Return the key of the rows of a query: `postgres/<database>/query`, with a hash of the query."""
    return _key("postgres", [database, "query"], [database, query], exact=False)


def other_key(description: str) -> tuple[str, ...]:
    """Return the key of a source of another kind, known by its description only."""
    return _key("source", [description], description)


def _key(namespace: str, parts: list[str], original: object, *, exact: bool = True) -> tuple[str, ...]:
    """Return a valid key.

    Args:
        namespace: The first part.
        parts: The other parts, with any characters.
        original: What the key stands for: equal originals have equal keys.
        exact: Whether the parts alone say what the original is.
    """
    if exact and all(map(_VALID.fullmatch, parts)) and not _ENDS_WITH_HASH.fullmatch("".join(parts[-1:])):
        return (namespace, *parts)
    digest = hashlib.sha256(json.dumps(original).encode()).hexdigest()[:_HASH_LENGTH]
    *folders, last = (_REFUSED.sub("_", part) or "_" for part in parts)
    return (namespace, *folders, f"{last}-{digest}")
