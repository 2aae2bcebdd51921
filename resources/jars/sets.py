"""The two sets of jars, as this folder pins them: an ivy.xml that names them, a sums file that fixes them."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from resources.jars.location import cache_root

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class JarSet:
    """Jars that are fetched, verified and shown together.

    Attributes:
        name: Stem of its files here and of its folder in the cache.
        purpose: Who needs it, for messages.
        fetch_command: The command that fetches it, or replaces a damaged copy.
    """

    name: str
    purpose: str
    fetch_command: str

    @property
    def ivy_file(self) -> Path:
        """What to fetch, in Ivy's words."""
        return HERE / f"{self.name}.ivy.xml"

    @property
    def sums_file(self) -> Path:
        """What must have come, as `sha256sum` writes it."""
        return HERE / f"{self.name}.sha256"

    def sums(self) -> dict[str, str]:
        """File name to sha256, in hex."""
        lines = self.sums_file.read_text(encoding="ascii").splitlines()
        return {name: digest for digest, name in (line.split(maxsplit=1) for line in lines)}

    def folder(self) -> Path:
        """Where the set lies in the cache.

        The name carries a digest of the sums: two clones with different pins never share a folder, and a
        folder never changes its meaning.
        """
        digest = hashlib.sha256(self.sums_file.read_bytes()).hexdigest()
        return cache_root() / "jars" / f"{self.name}-{digest[:12]}"


SPARK = JarSet("spark", "Spark", "tidemill jars fetch")
BROKER = JarSet("kafka-broker", "the development Kafka broker", "tidemill jars fetch --broker")
