"""The sets of jars, as this folder pins them: an ivy.xml with their names, a file with their checksums."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from tidemill.cache import cache_root

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class JarSet:
    """Jars that are fetched, verified and shown together.

    Attributes:
        name: Stem of its files here and of its folder in the cache.
        purpose: The program that needs it, for messages.
        fetch_command: The command that fetches it, or replaces a damaged copy.
    """

    name: str
    purpose: str
    fetch_command: str

    @property
    def ivy_file(self) -> Path:
        """The names and versions of the jars, as Ivy reads them."""
        return HERE / f"{self.name}.ivy.xml"

    @property
    def checksum_file(self) -> Path:
        """The checksums of the jars, as `sha256sum` writes them."""
        return HERE / f"{self.name}.sha256"

    def checksums(self) -> dict[str, str]:
        """Return the sha256 of each file, in hex, by name."""
        lines = self.checksum_file.read_text(encoding="ascii").splitlines()
        return {name: digest for digest, name in (line.split(maxsplit=1) for line in lines)}

    def folder(self) -> Path:
        """Return the folder of the set in the cache.

        Its name contains a digest of the checksums: two clones with different pins never share a folder, and
        the content of a folder never changes.
        """
        digest = hashlib.sha256(self.checksum_file.read_bytes()).hexdigest()
        return cache_root() / "jars" / f"{self.name}-{digest[:12]}"


SPARK = JarSet("spark", "Spark", "tidemill jars fetch")
BROKER = JarSet("kafka-broker", "the development Kafka broker", "tidemill jars fetch --broker")
S3 = JarSet("s3", "a lake on S3", "tidemill jars fetch --store s3")
STORES = {"s3": S3, "s3a": S3}
"""The set that Spark needs for a lake, by the scheme of its URI."""
SETS = {jar_set.name: jar_set for jar_set in (SPARK, S3, BROKER)}
