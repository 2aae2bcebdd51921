"""The lake of the tests and its feeds: folders, or prefixes of a bucket where TEST_LAKE is `s3`."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

from tidemill.storage.lake import Lake
from tidemill.storage.object_store import ObjectStore
from tidemill.storage.s3_settings import S3Settings
from tidemill.target.target import Target
from tidemill.testing import Scratch

ON_S3 = os.environ.get("TEST_LAKE") == "s3"
# The processes of a test find the same server here.
_SERVER = "TEST_STORE_AT"


def serve(server) -> None:
    """Let this process and those that it starts use a server."""
    os.environ[_SERVER] = server.endpoint


def bucket() -> ObjectStore:
    """Return the bucket of the tests."""
    from tests.servers.object_store import ACCESS_KEY, REGION, SECRET_KEY

    return ObjectStore(
        "lake",
        settings=S3Settings(
            endpoint=os.environ[_SERVER],
            region=REGION,
            access_key_id=ACCESS_KEY,
            secret_access_key=SECRET_KEY,
        ),
    )


def lake_at(address: str | Path) -> Lake:
    """Return the lake at an address; on S3 a folder stands for a prefix of the same name."""
    if not ON_S3:
        return Lake.at(address)
    if str(address).startswith("s3a://"):
        return Lake(ObjectStore.at(str(address), bucket().settings), access=bucket().settings)
    return Lake(bucket().below(str(address).strip("/")), access=bucket().settings)


@dataclass(slots=True)
class ScratchOnS3(Scratch):
    """A scratch lake whose feeds are prefixes of the bucket; the landing folder keeps a copy of each file."""

    @property
    def target(self) -> Target:
        """The target of the runs."""
        feeds = bucket().below(str(self.landing).strip("/"))
        return replace(Scratch.target.fget(self), default_binding=feeds)

    def drop_file(self, feed, records):
        """Put a file of JSON lines into the prefix of a feed."""
        path = Scratch.drop_file(self, feed, records)
        bucket().create(str(path).strip("/"), path.read_bytes())
        return path


def scratch_in(lake: str | Path, landing: str | Path, engine) -> Scratch:
    """Return a scratch lake in folders, or in prefixes of the same names."""
    kind = ScratchOnS3 if ON_S3 else Scratch
    return kind(lake=lake_at(lake), landing=Path(landing), engine=engine)
