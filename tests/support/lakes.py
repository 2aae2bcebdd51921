"""The lake of the tests: a folder, or a prefix of a bucket where TEST_LAKE is `s3`."""

import os
from pathlib import Path

from tidemill.storage.lake import Lake
from tidemill.storage.object_store import ObjectStore
from tidemill.storage.s3_settings import S3Settings

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
        return Lake(ObjectStore.at(str(address), bucket().settings))
    return Lake(bucket().below(str(address).strip("/")))
