"""The sensor that sends alerts: one message per stream and cause, and one when the stream has recovered."""

from typing import TYPE_CHECKING

from dagster import (
    AssetCheckKey,
    DefaultSensorStatus,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
    sensor,
)

from tidemill.checks.evaluation import check_names
from tidemill.orchestration.alerts.channels import channels
from tidemill.orchestration.alerts.incident_log import IncidentLog
from tidemill.orchestration.alerts.routing import ChannelState, Delivery, as_cursor, parse
from tidemill.text.plurals import pluralize

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dagster import AssetKey

    from tidemill.definitions.pipeline import Pipeline
    from tidemill.target.resolve import ResolvedTarget
    from tidemill.text.names import StreamName

NAME = "tidemill__alerts"  # the sensors of pipelines end with `__backlog`
INTERVAL_SECONDS = 30


def alert_sensors(
    pipelines: "Iterable[Pipeline]",
    keys: "Mapping[StreamName, AssetKey]",
    *,
    target: "ResolvedTarget",
    prefix: str = "",
) -> list[SensorDefinition]:
    """Return the sensor that sends the alerts of a target; none for a target without `[alerts]`.

    A tick reads the runs that have ended since the last one. Each channel has its own position in the cursor, so
    one that is down does not delay the other.
    """
    settings = target.alerts
    if settings is None:
        return []
    streams = {
        keys[stream.name]: stream for pipeline in pipelines for stream in pipeline if stream.name in keys
    }
    checks = [
        AssetCheckKey(key, name) for key, stream in streams.items() for name in check_names(stream, target)
    ]

    @sensor(
        name=f"{prefix}{NAME}",
        minimum_interval_seconds=INTERVAL_SECONDS,
        description="Sends an alert when a stream or a check fails, and when it has recovered.",
        default_status=DefaultSensorStatus.RUNNING,
    )
    def evaluate(context: SensorEvaluationContext) -> SensorResult:
        log = IncidentLog(context.instance, streams, checks)
        states = parse(context.cursor)
        deliveries = {
            name: Delivery(log, send, target.name, states.get(name) or ChannelState())
            for name, send in channels(settings).items()
        }
        errors = [error for delivery in deliveries.values() if (error := delivery.deliver()) is not None]
        sent = sum(delivery.sent for delivery in deliveries.values())
        if errors and not sent:
            raise errors[0]  # a failed tick leaves the cursor as it is, so nothing is lost
        for error in errors:
            context.log.error("%s", error)
        notes = [f"{pluralize(sent, 'message')} sent.", *map(str, errors)]
        return SensorResult(
            skip_reason=" ".join(notes),
            cursor=as_cursor({name: delivery.state for name, delivery in deliveries.items()}),
        )

    return [evaluate]
