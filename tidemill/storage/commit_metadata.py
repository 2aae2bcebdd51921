"""What Tidemill writes into the `userMetadata` of its commits."""

import json
from collections.abc import Mapping
from typing import Any

from tidemill.storage.delta_log import Commit


def commit_metadata(commit: Commit | None) -> Mapping[str, Any]:
    """Return what Tidemill wrote into a commit's `userMetadata`; empty where it wrote nothing."""
    if commit is None or not commit.user_metadata:
        return {}
    try:
        metadata = json.loads(commit.user_metadata).get("tidemill", {})
    except (ValueError, AttributeError):
        return {}
    return metadata if isinstance(metadata, dict) else {}
