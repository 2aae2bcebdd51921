"""The version of a table that has a stream's rows up to one batch, and whether it can still be restored."""

from collections.abc import Iterator
from datetime import datetime

from tidemill.definitions.sink import transaction_app_id
from tidemill.records.manifest import Generation, Manifest
from tidemill.records.stream_records import StreamRecords
from tidemill.storage.commit_metadata import commit_metadata
from tidemill.storage.delta_log import Commit
from tidemill.storage.table_ref import TableRef


def generation_of_batch(manifest: Manifest, batch: int) -> Generation:
    """Return the generation that a batch of the active one was committed in: a rewound one continues another."""
    by_number = {generation.number: generation for generation in manifest.generations}
    generation = manifest.active
    # The commit that a rewind ends with stands for the last batch that was kept.
    while batch < generation.first_batch - 1 and generation.continues is not None:
        generation = by_number[generation.continues]
    return generation


def continued(manifest: Manifest) -> list[int]:
    """Return the numbers of the active generation and of those that it continues, newest first."""
    by_number = {generation.number: generation for generation in manifest.generations}
    numbers, number = [], manifest.active.number
    while True:
        numbers.append(number)
        before = by_number[number].continues
        if before is None:
            return numbers
        number = before


def version_after(table: TableRef, generation: Generation, sink: str, batch: int) -> int | None:
    """Return the version of a table after a batch: the one before the first commit of a later batch.

    Args:
        generation: The generation that committed the batch.

    Returns:
        The version; None where the log no longer shows it, or where there is no table.
    """
    head = table.log.latest_version()
    if head is None or generation.query_id is None:
        return None
    app_id = transaction_app_id(generation.query_id, sink)
    version = head
    for commit in _newest_first(table, head):
        own = commit.transactions.get(app_id)
        if own is not None and own <= batch:
            return version
        if own is not None:
            version = commit.version - 1
    return None


def batch_at(table: TableRef, manifest: Manifest, moment: datetime) -> int | None:
    """Return the last batch of the active generation that the main table had at a moment.

    Args:
        table: The main table's folder.
        moment: The moment, with a time zone.

    Returns:
        The batch; None where the table had none of them, or its log no longer shows which.
    """
    head = table.log.latest_version()
    ids = {one.query_id for one in manifest.generations if one.number in continued(manifest)}
    for commit in () if head is None else _newest_first(table, head):
        batches = [batch for app_id, batch in commit.transactions.items() if app_id in ids]
        if batches and commit.timestamp_ms is not None and commit.timestamp_ms <= moment.timestamp() * 1000:
            return batches[0]
    return None


def version_before_replays(records: StreamRecords, restored: int) -> int | None:
    """Return the version of a quarantine before the first replay whose rows are taken back; None where none is.

    A replay removed the records of these rows from the quarantine, in which they belong again.

    Args:
        restored: The version of the main table that is restored.
    """
    replays = {operation.id for operation in records.operations() if operation.kind == "replay"}
    taken_back = {
        metadata["operation"]
        for commit in records.table().log.commits(restored + 1)
        if (metadata := commit_metadata(commit)).get("operation") in replays
    }
    path = records.table("quarantine")
    for version in path.log.versions() if taken_back else ():
        commit = path.log.commit(version)
        if commit is not None and commit_metadata(commit).get("operation") in taken_back:
            return version - 1
    return None


def missing_files(table: TableRef, version: int) -> list[str] | None:
    """Return the files of a version that are missing, by VACUUM; None where its log is missing as well."""
    from deltalake.exceptions import DeltaError

    try:
        state = table.open(version)
        if state is None:
            return None
        paths = state.get_add_actions().column("path").to_pylist()
    except (DeltaError, OSError):
        return None
    return table.missing(path for path in paths if path is not None)


def _newest_first(table: TableRef, head: int) -> Iterator[Commit]:
    """Yield the commits of a table's log from its end, as far as the log goes back."""
    for version in range(head, -1, -1):
        commit = table.log.commit(version)
        if commit is None:
            return
        yield commit
