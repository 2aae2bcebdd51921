"""A probe of a store: whether it keeps what Tidemill relies on. Not each store with the interface of S3 does."""

from contextlib import suppress
from uuid import uuid4

from tidemill.errors import NOTHING_LOST, ConfigurationError
from tidemill.storage.object_store import ObjectStore
from tidemill.storage.store import ChangedError, Store

_FOLDER = "control/.probe"
_PASSED = "control/.probed"
"""There once a store has passed, with what it was asked."""
_VERSION = b"1"
_probed: set[ObjectStore] = set()


def require_probed(store: Store) -> None:
    """Probe the object store of a lake before its first use; a file in the lake keeps that it has passed.

    Raises:
        ConfigurationError: It lacks something; nothing of the lake has been written.
        TransientError: It does not answer.
    """
    if not isinstance(store, ObjectStore) or store in _probed:
        return
    with suppress(FileNotFoundError):
        if store.read(_PASSED) == _VERSION:
            _probed.add(store)
            return
    if faults := faults_of(store):
        raise ConfigurationError(
            f"the store of {store.uri()} lacks what a lake needs: {'; '.join(faults)}.",
            lost=NOTHING_LOST,
            fix="use a store with conditional writes, such as S3, MinIO or Ceph in a recent version; "
            "`tidemill debug` probes it.",
            code="store-lacks-writes",
        )
    store.replace(_PASSED, _VERSION)
    _probed.add(store)


def faults_of(store: Store) -> list[str]:
    """Return what a store does otherwise than a lake needs, a sentence each; none where it passes.

    Raises:
        ConfigurationError: It refuses access, or has no such bucket.
        TransientError: It does not answer.
    """
    name = uuid4().hex
    key = f"{_FOLDER}/{name}"
    version = store.create(key, b"created")
    try:
        store.replace(key, b"replaced", unchanged=version)
        answers = {
            "a file that exists can be created again (If-None-Match is ignored)": _creates(store, key),
            "a file is replaced although it has changed (If-Match is ignored)": _replaces(
                store, key, version
            ),
            "a listing lacks what was just written": name not in store.names(_FOLDER),
            "a listing after a name has that name": name in store.names(_FOLDER, after=name),
        }
        return [fault for fault, is_there in answers.items() if is_there]
    finally:
        store.delete([key])


def _creates(files: Store, key: str) -> bool:
    try:
        files.create(key, b"again")
    except FileExistsError:
        return False
    return True


def _replaces(files: Store, key: str, version: str) -> bool:
    try:
        files.replace(key, b"stale", unchanged=version)
    except ChangedError:
        return False
    return True
