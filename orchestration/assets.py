"""streaming_assets(pipeline): one op runs the selected streams of a pipeline and reports each as it ends."""

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
    """The streams of a pipeline as assets of one op, any subset of which runs.

    There is no pool: the lease of each stream is the exclusion, so runs of disjoint streams go side by side.

    Args:
        pipeline: The pipeline.
        translator: How a stream becomes an asset spec.
        target: The target, for what assets show before a run: the table's place and columns, and whether
            a feed is a topic or a folder. What a run works on is decided by its own `spark` resource.

    Raises:
        DefinitionError: a rule has the name of a check that every stream has.
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
        yield from _checks_alone(context, streams, spark.resolved_target.lake)
        yield from _run(context, streams, spark)

    return run_streams


def pipeline_job(pipeline: "Pipeline", assets: AssetsDefinition) -> "UnresolvedAssetJobDefinition":
    """The job that runs a whole pipeline; in one process, because a JVM for each step would take longer."""
    return define_asset_job(
        pipeline.name,
        selection=AssetSelection.assets(assets),
        description=pipeline.description,
        executor_def=in_process_executor,
    )


def _run(
    context: AssetExecutionContext, streams: "Mapping[AssetKey, Stream]", spark: SparkResource
) -> Iterator[Event]:
    """Runs what is selected; raises at the end if something failed, so that all else is done by then."""
    selected = [stream for key, stream in streams.items() if key in context.selected_asset_keys]
    if not selected:
        return
    keys = {stream.name: key for key, stream in streams.items()}
    run = PipelineRun(selected, target=spark.resolved_target, engine=spark.engine, run_id=context.run.run_id)
    try:
        # Closing cancels the queries, too, where Dagster gives up between two results.
        with closing(run.iter_results()) as results:
            for result in results:
                key = keys[result.stream]
                yield from _report(context, streams[key], key, result, spark.resolved_target.lake)
    except (DagsterExecutionInterruptedError, KeyboardInterrupt):
        _cancel(context, run.finished)
        raise
    _raise_for(run.finished)


def _cancel(context: AssetExecutionContext, results: "list[StreamResult]") -> None:
    """Says what was canceled, and lets Dagster end the run as canceled.

    Dagster does so after Terminate only, and takes a bare signal for a failure. Here a signal is as good a
    request: every stream has stopped in good order, and the next run continues.
    """
    for result in results:
        if result.outcome == "canceled":
            context.log.warning("%s", result.error)
    recorded = context.instance.get_run_by_id(context.run.run_id)
    if recorded is not None and recorded.status != DagsterRunStatus.CANCELING:
        context.instance.report_run_canceling(recorded, "The run's process got a signal to stop.")


def _report(
    context: AssetExecutionContext, stream: "Stream", key: AssetKey, result: "StreamResult", lake: "Lake"
) -> Iterator[Event]:
    """One stream's result as Dagster's events; Dagster records each at once."""
    now = datetime.now(UTC)
    checks = [
        check
        for check in check_results(stream, key, result, lake, now)
        if check.check_name and AssetCheckKey(key, check.check_name) in context.selected_asset_check_keys
    ]
    match result.outcome:
        case "updated":
            context.log.info(
                "%s: %s rows read, %s written, %s batches, %s s",
                result.stream,
                result.total("rows_read"),
                result.total("rows_written"),
                len(result.batches),
                result.seconds,
            )
            yield MaterializeResult(
                asset_key=key,
                metadata=result_metadata(result, now),
                check_results=checks,
                # Without it Dagster derives one from the code and the feeds, and new rows would not show.
                data_version=DataVersion(f"{result.generation}.{result.table_version}"),
            )
            return
        case "idle":
            context.log_event(AssetObservation(key, metadata=idle_metadata(result, now)))
            context.log.info("%s: %s", result.stream, result.reason)
        case "skipped":
            context.log.warning("%s: skipped: %s", result.stream, result.reason)
        case _:
            context.log.error("%s", result.error)
    yield from checks


def _checks_alone(
    context: AssetExecutionContext, streams: "Mapping[AssetKey, Stream]", lake: "Lake"
) -> Iterator[AssetCheckResult]:
    """Checks that are selected without their asset: a checkpoint can be judged without a run, rows cannot."""
    for check in context.selected_asset_check_keys:
        if check.asset_key in context.selected_asset_keys:
            continue
        if check.name == CHECKPOINT_SOUND:
            yield checkpoint_check(check.asset_key, streams[check.asset_key], lake)
        else:
            context.log.warning(
                "%s of %s is evaluated by a run of the stream only.", check.name, check.asset_key
            )


def _raise_for(results: "list[StreamResult]") -> None:
    """Fails the op when a stream failed.

    Raises:
        Failure: names what failed and why, and what was skipped for it. Dagster may retry only where
            another attempt can help.
    """
    failed = [result for result in results if result.outcome in ("failed", "canceled")]
    if not failed:
        return
    skipped = [result for result in results if result.outcome == "skipped"]
    said = [str(result.error) for result in failed]
    said += [f"{result.stream}: skipped: {result.reason}." for result in skipped]
    raise Failure(
        description="\n".join(said),
        metadata={
            "tidemill/failed": [str(result.stream) for result in failed],
            "tidemill/skipped": [str(result.stream) for result in skipped],
        },
        allow_retries=all(result.error is not None and result.error.transient for result in failed),
    )
