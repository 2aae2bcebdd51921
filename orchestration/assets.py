"""`streaming_assets(pipeline)`: one op that runs the selected streams of a pipeline and reports each as it ends."""

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from dagster import (
    AssetCheckKey,
    AssetCheckResult,
    AssetExecutionContext,
    AssetKey,
    AssetObservation,
    AssetsDefinition,
    AssetSelection,
    DagsterExecutionInterruptedError,
    DagsterRunStatus,
    DataVersion,
    Failure,
    MaterializeResult,
    define_asset_job,
    in_process_executor,
    multi_asset,
)

from orchestration.checks import CHECKPOINT_SOUND, check_results, check_specs, checkpoint_check
from orchestration.metadata import idle_metadata, result_metadata
from orchestration.translator import StreamTranslator, stream_specs
from pipelines.streaming.errors import TidemillError
from pipelines.streaming.plurals import counted
from pipelines.streaming.run.pipeline_run import PipelineRun
from resources.spark import SparkResource

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagster import UnresolvedAssetJobDefinition

    from pipelines.streaming import Pipeline, Stream
    from pipelines.streaming.records.lake import Lake
    from pipelines.streaming.run.results import StreamResult
    from pipelines.streaming.target import Target

Event = MaterializeResult[None] | AssetCheckResult


def streaming_assets(
    pipeline: "Pipeline", translator: StreamTranslator | None = None, *, target: "Target | None" = None
) -> AssetsDefinition:
    """Return the streams of a pipeline as assets of one op that can run any subset of them.

    The op has no pool: the lease of each stream excludes a second run, so runs of disjoint streams proceed
    at the same time.

    Args:
        pipeline: The pipeline.
        translator: How a stream becomes an asset spec.
        target: The target whose table paths, columns and feed bindings the assets show before a run. A run
            works on the target of its own `spark` resource.
    """
    specs = stream_specs(pipeline, translator or StreamTranslator(), target)
    streams = {specs[stream.name].key: stream for stream in pipeline}

    @multi_asset(
        # Two underscores: no pipeline, and so no job, can have this name.
        name=f"{pipeline.name}__streams",
        description=pipeline.description,
        specs=list(specs.values()),
        check_specs=[spec for key, stream in streams.items() for spec in check_specs(stream, key)],
        can_subset=True,
    )
    def run_streams(context: AssetExecutionContext, spark: SparkResource) -> Iterator[Event]:
        try:
            yield from _standalone_checks(context, streams, spark.resolved_target.lake)
            yield from _run(context, streams, spark)
        except TidemillError as error:  # its text says it all; a stack would bury it
            raise Failure(description=str(error), allow_retries=error.transient) from None

    return run_streams


def pipeline_job(pipeline: "Pipeline", assets: AssetsDefinition) -> "UnresolvedAssetJobDefinition":
    """Return the job that runs a whole pipeline, in one process: one JVM per step would take longer."""
    return define_asset_job(
        pipeline.name,
        selection=AssetSelection.assets(assets),
        description=pipeline.description,
        executor_def=in_process_executor,
    )


def _run(
    context: AssetExecutionContext, streams: "Mapping[AssetKey, Stream]", spark: SparkResource
) -> Iterator[Event]:
    """Run the selected streams; raise at the end if one failed, so that all others have ended by then."""
    selected = [stream for key, stream in streams.items() if key in context.selected_asset_keys]
    if not selected:
        return
    keys = {stream.name: key for key, stream in streams.items()}
    run = PipelineRun(selected, target=spark.resolved_target, engine=spark.engine, run_id=context.run.run_id)
    try:
        # Closing also cancels the queries where Dagster stops between two results.
        with closing(run.iter_results()) as results:
            for result in results:
                key = keys[result.stream]
                yield from _report(context, streams[key], key, result, spark.resolved_target.lake)
    except (DagsterExecutionInterruptedError, KeyboardInterrupt):
        _cancel(context, run.finished)
        raise
    _raise_for(run.finished)


def _cancel(context: AssetExecutionContext, results: "list[StreamResult]") -> None:
    """Log which streams were canceled, and let Dagster end the run as canceled.

    Dagster does so only after Terminate, and treats a bare signal as a failure. Here a signal is the same
    request: every stream has stopped properly, and the next run continues.
    """
    for result in results:
        if result.outcome == "canceled":
            context.log.warning("%s", result.error)
    run = context.instance.get_run_by_id(context.run.run_id)
    if run is not None and run.status != DagsterRunStatus.CANCELING:
        context.instance.report_run_canceling(run, "The run's process received a signal to stop.")


def _report(
    context: AssetExecutionContext, stream: "Stream", key: AssetKey, result: "StreamResult", lake: "Lake"
) -> Iterator[Event]:
    """Yield one stream's result as Dagster events, which Dagster records at once."""
    now = datetime.now(UTC)
    checks = [
        check
        for check in check_results(stream, key, result, lake, now)
        if check.check_name and AssetCheckKey(key, check.check_name) in context.selected_asset_check_keys
    ]
    for warning in result.warnings:
        context.log.warning("%s: %s", result.stream, warning)
    match result.outcome:
        case "updated":
            context.log.info(
                "%s: %s read, %s written, %s, %.1f s",
                result.stream,
                counted(result.total("rows_read"), "row"),
                f"{result.total('rows_written'):,}",
                counted(len(result.batches), "batch"),
                result.seconds,
            )
            yield MaterializeResult(
                asset_key=key,
                metadata=result_metadata(result, now),
                check_results=checks,
                # Without it, Dagster derives a version from the code and the feeds, which new rows do not change.
                data_version=DataVersion(f"{result.generation}.{result.table_version}"),
            )
            return
        case "idle":
            context.log_event(AssetObservation(key, metadata=idle_metadata(result, now)))
            context.log.info("%s: %s", result.stream, result.reason)
        case "busy":
            context.log.info("%s: busy: %s", result.stream, result.reason)
        case "skipped":
            context.log.warning("%s: skipped: %s", result.stream, result.reason)
        case _:
            context.log.error("%s", result.error)
    yield from checks


def _standalone_checks(
    context: AssetExecutionContext, streams: "Mapping[AssetKey, Stream]", lake: "Lake"
) -> Iterator[AssetCheckResult]:
    """Yield the checks that are selected without their asset: a checkpoint can be verified without a run."""
    for check in context.selected_asset_check_keys:
        if check.asset_key in context.selected_asset_keys:
            continue
        if check.name == CHECKPOINT_SOUND:
            yield checkpoint_check(check.asset_key, streams[check.asset_key], lake)
        else:
            context.log.warning(
                "%s of %s is evaluated only by a run of the stream.", check.name, check.asset_key
            )


def _raise_for(results: "list[StreamResult]") -> None:
    """Fail the op if a stream failed.

    Raises:
        Failure: With the streams that failed and why, and those that were skipped. Dagster may retry only
            where a retry can help.
    """
    failed = [result for result in results if result.outcome in ("failed", "canceled")]
    if not failed:
        return
    skipped = [result for result in results if result.outcome == "skipped"]
    messages = [str(result.error) for result in failed]
    messages += [f"{result.stream}: skipped: {result.reason}." for result in skipped]
    raise Failure(
        description="\n".join(messages),
        metadata={
            "tidemill/failed": [str(result.stream) for result in failed],
            "tidemill/skipped": [str(result.stream) for result in skipped],
            "tidemill/errors": {
                str(result.stream): {"kind": _kind(result.error), "message": str(result.error)}
                for result in failed
            },
        },
        allow_retries=all(result.error is not None and result.error.transient for result in failed),
    )


def _kind(error: TidemillError | None) -> str:
    """Return what tells one error of a stream from another, whatever numbers its message has."""
    return "" if error is None else " ".join(filter(None, (type(error).__name__, error.error_class)))
