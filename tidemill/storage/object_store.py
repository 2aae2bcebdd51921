"""A store on S3 or a store with its interface, by obstore: the engine of delta-rs, so both see the same files.

What S3 promises and this relies on: a PUT is whole or nothing, `If-None-Match: *` and `If-Match` let one writer win,
and a listing has every write that has ended (S3 user guide, "Conditional writes", "Strong read-after-write
consistency"). Not each store with S3's interface keeps that, so a lake's store is probed before it is used.
"""

import errno
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from tidemill.errors import NOTHING_LOST, ConfigurationError, TransientError
from tidemill.storage.s3_settings import S3Settings
from tidemill.storage.side_by_side import for_each
from tidemill.storage.store import ChangedError, Entry, Store, checked_key, one_level
from tidemill.text.secret import revealed

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import S3Store
    from pyarrow.fs import FileSystem

SCHEMES = frozenset({"s3", "s3a"})
"""The schemes of addresses of such a store."""

# How long a request is repeated while the store does not answer; a run that fails then is repeated as a whole.
_RETRY = timedelta(seconds=20)
_RETRIES = 6
# Larger files are sent in parts: a single PUT takes at most 5 GiB, and is repeated as a whole.
_ONE_PUT = 64 << 20
# Names a write in the metadata of its file, so that a repeated request recognizes the file of its first try.
_WRITE = "tidemill-write"
# `Path` makes `s3:/bucket` of `s3://bucket`.
_ADDRESS = re.compile(
    r"s3a?:/{1,2}(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])"
    r"(?:/(?P<prefix>(?!\.)[\w.=-]+(?:/(?!\.)[\w.=-]+)*))?",
    re.ASCII,
)
_DENIED = re.compile(r"status code: 40[13]|<Code>(?:Expired|Invalid)\w*Token</Code>|AWS Error ACCESS_DENIED")
_REASONS = (r"<Message>([^<]+)</Message>", r"<Code>([^<]+)</Code>", r"retry_timeout: \S+\s+- ([^\n]+)")


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """The files below a prefix of a bucket.

    Attributes:
        bucket: The bucket.
        prefix: What the keys of its files begin with; "" or names with "/" between them.
        settings: How the bucket is reached.
    """

    bucket: str
    prefix: str = ""
    settings: S3Settings = field(default_factory=S3Settings)

    @classmethod
    def at(cls, address: str, settings: S3Settings) -> "ObjectStore":
        """Return the store below an address, such as `s3://bucket/prefix`.

        Raises:
            ConfigurationError: The address has no bucket, or a name in it that a table's address must not have.
        """
        match = _ADDRESS.fullmatch(address.rstrip("/"))
        if match is None:
            raise ConfigurationError(
                f"{address!r} is no address of a store.",
                lost=NOTHING_LOST,
                fix="write it like s3://bucket/prefix, with letters, digits and . _ = - in the names.",
                code="store-address-invalid",
            )
        return cls(match["bucket"], match["prefix"] or "", settings)

    def __str__(self) -> str:
        return self.uri()

    def read(self, key: str) -> bytes:
        """Return the content of a file."""
        import obstore

        with self._translated(key):
            return bytes(obstore.get(self._client, self._key(key)).bytes())

    def read_range(self, key: str, start: int, length: int) -> bytes:
        """Return a part of a file."""
        import obstore

        with self._translated(key):
            if start >= 0:
                options: Any = {"range": (start, start + length)}
            else:
                options = {"range": {"suffix": -start}}
            try:
                return bytes(obstore.get(self._client, self._key(key), options=options).bytes())[:length]
            except obstore.exceptions.BaseError:
                # S3 refuses a range that begins behind the end (416), and a suffix of an empty file.
                size = obstore.head(self._client, self._key(key))["size"]
                if 0 <= start < size or (start < 0 and size):
                    raise
                return b""

    def create(self, key: str, data: bytes) -> str:
        """Create a file by a conditional PUT."""
        from obstore.exceptions import AlreadyExistsError

        try:
            return self._put(key, data, mode="create")
        except AlreadyExistsError:
            raise FileExistsError(errno.EEXIST, "it exists already", self.uri(key)) from None

    def replace(self, key: str, data: bytes, *, unchanged: str | None = None) -> str:
        """Replace a file; only one that is unchanged by a conditional PUT."""
        from obstore.exceptions import PreconditionError

        if unchanged is None:
            return self._put(key, data, mode="overwrite")
        try:
            return self._put(key, data, mode={"e_tag": unchanged})
        except (FileNotFoundError, PreconditionError):
            raise ChangedError(f"{self.uri(key)} was replaced or removed by another process") from None

    def delete(self, keys: Iterable[str]) -> None:
        """Delete files, up to 1,000 in a request."""
        import obstore

        doomed = [self._key(key) for key in keys]
        if doomed:
            with self._translated(""):
                obstore.delete(self._client, doomed)

    def delete_folder(self, folder: str) -> None:
        """Delete all objects below a prefix, also those by which Hadoop marks folders: obstore cannot name these."""
        with self._translated(folder), suppress(FileNotFoundError):
            files, root = self.arrow_files()
            files.delete_dir(f"{root}/{checked_key(folder)}")

    def list(self, prefix: str = "", *, after: str = "") -> Sequence[Entry]:
        """Return the files and folders directly below a prefix."""
        import obstore

        folder = self._folder(prefix)
        with self._translated(prefix):
            if not after:
                level = obstore.list_with_delimiter(self._client, folder or None)
                folders = {Entry(self._relative(path), kind="folder") for path in level["common_prefixes"]}
                return sorted({*folders, *self._entries(level["objects"], folder)})
            offset = f"{folder}/{after}" if folder else after
            return one_level(self._below(prefix, offset=offset), prefix, after)

    def names(self, prefix: str = "", *, after: str = "") -> Sequence[str]:
        """Return the names that `list` has: the same request."""
        return [entry.name for entry in self.list(prefix, after=after)]

    def walk(self, prefix: str = "", *, after: str = "") -> Sequence[Entry]:
        """Return all files below a prefix."""
        with self._translated(prefix):
            return sorted(self._below(prefix, offset=self._key(after) if after else None))

    def has_files(self, prefix: str = "") -> bool:
        """Return whether there is an object below a prefix, by one request."""
        import obstore

        folder = self._folder(prefix)
        with self._translated(prefix):
            return any(
                True for part in obstore.list(self._client, folder or None, chunk_size=1) for _ in part
            )

    def entry(self, key: str) -> Entry | None:
        """Return a file; None where there is none."""
        import obstore

        try:
            with self._translated(key):
                status = obstore.head(self._client, self._key(key))
        except FileNotFoundError:
            return None
        return Entry(key, status["size"], status["last_modified"].timestamp())

    def missing(self, keys: Iterable[str]) -> Sequence[str]:
        """Return those of some files that are not there: each is asked for, side by side."""
        asked = [*keys]
        are_there = for_each(self, self._is_file, asked)
        return [key for key, is_there in zip(asked, are_there, strict=True) if not is_there]

    def copy(self, source: str, to: str, into: Store | None = None) -> None:
        """Copy a file: in the store itself where the copy is in the same bucket."""
        import obstore

        target = self if into is None else into
        if not isinstance(target, ObjectStore) or (target.bucket, target.settings) != (
            self.bucket,
            self.settings,
        ):
            target.replace(to, self.read(source))
            return
        with self._translated(source):
            obstore.copy(self._client, self._key(source), target._key(to))  # noqa: SLF001 - of the same class

    @property
    def has_folders(self) -> bool:
        """A listing has all files, and each file is a request."""
        return False

    def below(self, prefix: str) -> "ObjectStore":
        """Return the store of the files below a prefix."""
        return ObjectStore(self.bucket, self._key(prefix), self.settings)

    def confined(self) -> "ObjectStore":
        """Return the store itself: it has no links."""
        return self

    def uri(self, key: str = "") -> str:
        """Return the address of a file or folder, as Spark and delta-rs take it."""
        path = self._key(key) if key else self.prefix
        return f"s3a://{self.bucket}/{path}".rstrip("/")

    def delta_options(self) -> Mapping[str, str]:
        """Return the settings as delta-rs takes them."""
        options = self.settings.client_options()
        return options | ({"aws_allow_http": "true"} if self.settings.is_plain_http else {})

    def arrow_files(self) -> "tuple[FileSystem, str]":
        """Return Arrow's client of S3, whose paths begin with the bucket."""
        from pyarrow.fs import S3FileSystem

        given = self.settings
        scheme, _, address = (given.endpoint or "").rpartition("://")
        files = S3FileSystem(
            access_key=revealed(given.access_key_id) or None,
            secret_key=revealed(given.secret_access_key) or None,
            session_token=revealed(given.session_token) or None,
            region=given.region,
            scheme=scheme or "https",
            endpoint_override=address or None,
        )
        return files, f"{self.bucket}/{self.prefix}".rstrip("/")

    @property
    def _client(self) -> "S3Store":
        return _client(self.bucket, self.settings, os.getpid())

    def _key(self, key: str) -> str:
        return f"{self.prefix}/{checked_key(key)}" if self.prefix else checked_key(key)

    def _folder(self, prefix: str) -> str:
        return self._key(prefix) if prefix else self.prefix

    def _relative(self, path: str) -> str:
        return path.removeprefix(f"{self.prefix}/") if self.prefix else path

    def _below(self, prefix: str, offset: str | None = None) -> Iterator[Entry]:
        import obstore

        folder = self._folder(prefix)
        parts = obstore.list(self._client, folder or None, offset=offset, chunk_size=1000)
        entries = [entry for part in parts for entry in self._entries(part, folder)]
        folders = {entry.key[:end] for entry in entries for end in _slashes(entry.key)}
        for entry in entries:
            # Of a folder that Hadoop marks there is no file, and of an empty file there is.
            if entry.size or (entry.key not in folders and self._is_file(entry.key)):
                yield entry

    def _is_file(self, key: str) -> bool:
        return self.entry(key) is not None

    def _entries(self, objects: Iterable["ObjectMeta"], folder: str) -> Iterator[Entry]:
        for item in objects:
            # Hadoop marks a folder by an empty file whose name ends with "/", and obstore gives it without the slash.
            if item["path"] != folder:
                modified = item["last_modified"].timestamp()
                version = item["e_tag"] or ""
                yield Entry(self._relative(item["path"]), item["size"], modified, version=version)

    def _put(self, key: str, data: bytes, mode: Any) -> str:
        """Write a file and return its version.

        Raises:
            AlreadyExistsError: It exists.
            PreconditionError: It has another version.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        path, write = self._key(key), uuid4().hex
        with self._translated(key):
            try:
                result = obstore.put(
                    self._client,
                    path,
                    data,
                    mode=mode,
                    attributes={_WRITE: write},
                    use_multipart=mode == "overwrite" and len(data) > _ONE_PUT,
                )
            except (AlreadyExistsError, PreconditionError) as error:
                # A request whose answer was lost is sent again, and meets the file of its first try.
                try:
                    there = obstore.get(self._client, path)
                except FileNotFoundError:
                    raise error from None
                if there.attributes.get(_WRITE) != write:
                    raise
                return there.meta["e_tag"] or ""
            return result["e_tag"] or ""

    @contextmanager
    def _translated(self, key: str) -> Iterator[None]:
        """Turn the errors of obstore into those of files."""
        from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

        try:
            yield
        except (AlreadyExistsError, PreconditionError):
            raise
        except (OSError, BaseError) as error:
            raise self._meaning(error, self.uri(key)) from None

    @property
    def _where(self) -> str:
        """The server, for a message; empty for Amazon's."""
        return f" at {self.settings.endpoint}" if self.settings.endpoint else ""

    def _meaning(self, error: Exception, address: str) -> Exception:
        """Return an error of obstore as one of files or of Tidemill."""
        if "NoSuchBucket" in str(error):
            return ConfigurationError(
                f"there is no bucket {self.bucket!r}.",
                lost=NOTHING_LOST,
                fix="create it, or correct the lake of the target and the endpoint in [targets.<name>.store].",
                code="store-missing",
            )
        if isinstance(error, FileNotFoundError):
            return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), address)
        if _DENIED.search(str(error)):
            return ConfigurationError(
                f"the store refuses access to {address}: {_reason(error)}.",
                lost=NOTHING_LOST,
                fix="renew or correct the credentials: the environment (AWS_ACCESS_KEY_ID, ...), or "
                "[targets.<name>.store].",
                code="store-access-denied",
            )
        return TransientError(
            f"the store of {self.uri()}{self._where} does not answer: {_reason(error)}.",
            lost=NOTHING_LOST,
            fix="run it again once the store answers; `tidemill debug` asks it.",
            code="store-unavailable",
        )


def _slashes(key: str) -> Iterator[int]:
    """Yield the position of each slash of a key."""
    position = key.find("/")
    while position >= 0:
        yield position
        position = key.find("/", position + 1)


def _reason(error: Exception) -> str:
    """Return the reason of an error of obstore, which has the whole answer of the store, in one line."""
    message = str(error).split("\n\nDebug source")[0]
    for pattern in _REASONS:
        if match := re.search(pattern, message, re.MULTILINE):
            return match[1].strip().rstrip(".")
    return message.splitlines()[0].rstrip(".")


@lru_cache(maxsize=16)
def _client(bucket: str, settings: S3Settings, _process: int) -> "S3Store":
    """Return a client, one per process and bucket: it has a pool of connections, and no process may inherit one."""
    from obstore.store import S3Store

    options: Any = settings.client_options()
    return S3Store(
        bucket,
        config=options,
        client_options={"allow_http": settings.is_plain_http},
        retry_config={"max_retries": _RETRIES, "retry_timeout": _RETRY},
    )
