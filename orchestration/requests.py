"""What runs there are already, and the request for one more: the part of a tick that asks Dagster's instance."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from dagster import AssetKey, DagsterRunStatus, RunRequest, RunsFilter

from orchestration.run_tags import CAUSE
from orchestration.tick import Group
from pipelines.streaming.run.attempts import pause_after

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagster import DagsterInstance, RunRecord

    from pipelines.streaming.names import StreamName

POSITION = "tidemill/position"
# A run holds the leases of its streams within seconds. One that has started long ago and does not hold a stream's
# lease is done with that stream, or has died: no launcher but those of Kubernetes and the like notices that.
STARTED_LONG_AGO = timedelta(minutes=5)
_MOST_ATTEMPTS = 12
_NOT_STARTED = (
    DagsterRunStatus.QUEUED,
    DagsterRunStatus.NOT_STARTED,
    DagsterRunStatus.STARTING,
    DagsterRunStatus.CANCELING,
)


def covered_streams(
    instance: "DagsterInstance", job: str, keys: "Mapping[StreamName, AssetKey]", now: datetime
) -> "dict[StreamName, str]":
    """Return the streams that a queued run, or one in progress, covers, with the run's id.

    Args:
        instance: Dagster's instance.
        job: The job of the pipeline; a run of it without a selection covers all of its streams.
        keys: The asset keys of the pipeline's streams.
        now: The current time.
    """
    covered: dict[StreamName, str] = {}
    records = instance.get_run_records(RunsFilter(statuses=[*_NOT_STARTED, DagsterRunStatus.STARTED]))
    for record in records:
        run = record.dagster_run
        if run.status == DagsterRunStatus.STARTED and _started(record) < now - STARTED_LONG_AGO:
            continue
        selected = run.asset_selection
        for name, key in keys.items():
            if key in selected if selected is not None else run.job_name == job:
                covered.setdefault(name, run.run_id)
    return covered


def run_request(
    instance: "DagsterInstance",
    group: Group,
    keys: "Mapping[StreamName, AssetKey]",
    *,
    cause: str,
    now: datetime,
) -> RunRequest | str:
    """Return the request for a run of a group, or the reason why it has to wait.

    Runs that started from the same position did not change it: they crashed, or found nothing that only Spark
    could see. The pause before the next one doubles. Its number is part of the run's key, so that two ticks at
    the same time request one run, and a run that crashed does not block its key forever.

    Args:
        instance: Dagster's instance.
        group: The group.
        keys: The asset keys of the pipeline's streams.
        cause: What requests it: `backlog` or `schedule`.
        now: The current time.
    """
    records = instance.get_run_records(RunsFilter(tags={POSITION: group.position}), limit=_MOST_ATTEMPTS)
    if records:
        again = _ended(records[0]) + pause_after(len(records))
        if now < again:
            run = records[0].dagster_run
            return (
                f"{group.reason}; run {run.run_id} ended as {run.status.value} and left everything as it was, so "
                f"the next attempt is at {again.isoformat(timespec='seconds')}"
            )
    return RunRequest(
        run_key=f"{group.position}-{len(records)}",
        asset_selection=[keys[stream.name] for stream in group.streams],
        tags={POSITION: group.position, CAUSE: cause},
    )


def _started(record: "RunRecord") -> datetime:
    return _moment(record.start_time) or record.create_timestamp.astimezone(UTC)


def _ended(record: "RunRecord") -> datetime:
    return _moment(record.end_time) or record.update_timestamp.astimezone(UTC)


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
