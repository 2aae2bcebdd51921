"""`streaming_assets(pipeline)`: one op that runs the selected streams of a pipeline and reports each as it ends.

The op does nothing but `yield from streams.run(context)`, and so can an asset of your own.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from dagster import (
    AssetCheckResult,
    AssetExecutionContext,
    AssetKey,
    AssetObservation,
    AssetsDefinition,
    AssetSelection,
    ConfigurableResource,
    DagsterExecutionInterruptedError,
    DagsterRunStatus,
    DataVersion,
    Failure,
    MaterializeResult,
    OpExecutionContext,
    ResourceDependency,
    define_asset_job,
    in_process_executor,
    multi_asset,
)

from tidemill.checks.evaluation import evaluate
from tidemill.definitions.selection import select
from tidemill.errors import TidemillError
from tidemill.orchestration.assets.checks import Event, as_dagster, check_specs, without_output
from tidemill.orchestration.assets.metadata import idle_metadata, result_metadata
from tidemill.orchestration.assets.observations import LiveObservations
from tidemill.orchestration.assets.translator import INPUTS, STREAM, StreamTranslator, stream_specs
from tidemill.orchestration.automation.run_tags import job_tags, tag_run
from tidemill.orchestration.jobs.operation_job import failing
from tidemill.orchestration.spark_resource import SparkResource
from tidemill.run.execute.pipeline_run import PipelineRun
from tidemill.text.names import StreamName
from tidemill.text.plurals import pluralize

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from dagster import HookDefinition, RetryPolicy, UnresolvedAssetJobDefinition

    from tidemill.definitions.pipeline import Pipeline
    from tidemill.definitions.stream import Stream
    from tidemill.run.execute.results import StreamResult
    from tidemill.target.resolve import ResolvedTarget
    from tidemill.target.target import Target

Context = AssetExecutionContext | OpExecutionContext


class StreamsResource(ConfigurableResource[Any]):
    """Runs streams in an op and reports each of them as Dagster events.

    Attributes:
        spark: The Spark and the target.
        asset_keys: The asset keys of streams that are no assets of the op; without an entry the stream's name is
            the key.
    """

    spark: ResourceDependency[SparkResource]
    asset_keys: ResourceDependency[Mapping[StreamName, AssetKey] | None] = None  # type: ignore[assignment] # a descriptor

    def run(
        self, context: Context, streams: "Iterable[Stream] | None" = None, *, selection: Sequence[str] = ()
    ) -> Iterator[Event]:
        """Run streams, and yield the events of each as it ends.

        Streams that are assets of the op run where Dagster selected them, and become its outputs. Any other op
        runs all the streams; they become materializations of their own assets.

        ```python
        from dagster import AssetExecutionContext, MaterializeResult, asset
        from tidemill.orchestration import StreamsResource


        @asset
        def nightly(context: AssetExecutionContext, streams: StreamsResource):
            yield from streams.run(context, selection=["ads/impressions+"])
            yield MaterializeResult()
        ```

        Args:
            context: The context of the op or asset.
            streams: The streams that may run; by default those of all pipelines of the target.
            selection: Runs only these of the streams, in the words of the command: `"ads/impressions+"`.

        Raises:
            Failure: When all streams have ended: those that failed, and why.
        """
        with failing():
            target = self.spark.resolved_target
            candidates = tuple(target.streams() if streams is None else streams)
            known = {stream.name: stream for stream in candidates}
            if selection:
                candidates = select(candidates, selection)
            outputs = _outputs(context)
            keys = {stream: outputs.get(str(stream.name)) or self._key(stream) for stream in candidates}
            if outputs:
                by_key = {key: stream for stream, key in keys.items()}
                yield from _standalone_checks(context, by_key, known, target)
                keys = {
                    stream: key
                    for stream, key in keys.items()
                    if key in context.selected_asset_keys or (selection and str(stream.name) not in outputs)
                }
            yield from self._run(context, keys, known, set(outputs.values()))

    def _key(self, stream: "Stream") -> AssetKey:
        known = (self.asset_keys or {}).get(stream.name)
        return known or AssetKey([stream.name.pipeline, stream.name.stream])

    def _run(
        self,
        context: Context,
        keys: "Mapping[Stream, AssetKey]",
        known: "Mapping[StreamName, Stream]",
        outputs: set[AssetKey],
    ) -> Iterator[Event]:
        """Run the streams; raise at the end if one failed, so that all others have ended by then."""
        if not keys:
            return
        target = self.spark.resolved_target
        pipelines = (stream.name.pipeline for stream in keys)
        tag_run(context.instance, context.run.run_id, target.name, pipelines)
        run = PipelineRun(list(keys), target=target, engine=self.spark.engine, run_id=context.run.run_id)
        try:
            observed = LiveObservations(
                context, run.live.streams, {stream.name: key for stream, key in keys.items()}
            )
            # Closing also cancels the queries where Dagster stops between two results.
            with closing(run.iter_results(on_wait=observed.update)) as results:
                for result in results:
                    key = keys[known[result.stream]]
                    for event in _report(context, key, known, result, target):
                        yield from [event] if key in outputs else without_output(event)
        except (DagsterExecutionInterruptedError, KeyboardInterrupt):
            _cancel(context, run.finished)
            raise
        _raise_for(run.finished)


def streaming_resources(
    target: "ResolvedTarget | None" = None,
    *,
    spark: Any = None,
    asset_keys: Mapping[StreamName, AssetKey] | None = None,
    prefix: str = "",
) -> dict[str, Any]:
    """Return the resources `spark` and `streams`, which share one session and the config of a run.

    Args:
        target: The target; None: `TIDEMILL_TARGET`, then the file's default.
        spark: The resource `spark`, in place of one of the target: `SparkResource.configure_at_launch(...)`.
        asset_keys: The keys of `StreamsResource`.
        prefix: What the names of the two begin with, as in `streaming_assets`.
    """
    spark = SparkResource.configure_at_launch(target=target) if spark is None else spark
    return {
        f"{prefix}spark": spark,
        f"{prefix}streams": StreamsResource(spark=spark, asset_keys=asset_keys),
    }


def streaming_assets(
    pipeline: "Pipeline",
    translator: StreamTranslator | None = None,
    *,
    target: "Target | None" = None,
    pool: str | None = None,
    retry_policy: "RetryPolicy | None" = None,
    op_tags: Mapping[str, Any] | None = None,
    hooks: "AbstractSet[HookDefinition] | None" = None,
    prefix: str = "",
) -> AssetsDefinition:
    """Return the streams of a pipeline as assets of one op that can run any subset of them.

    By default the op has no pool: the lease of each stream excludes a second run, so runs of disjoint streams
    proceed at the same time.

    Args:
        pipeline: The pipeline.
        translator: How a stream becomes an asset spec; the same one for all pipelines of a code location.
        target: The target whose table paths, columns and feed bindings the assets show before a run. A run
            works on the target of the resource `spark`.
        pool: A pool that the op takes a slot of, such as one that limits the load on a cluster.
        retry_policy: Retries the op; transient errors of a stream have been retried three times by then.
        op_tags: Tags of the op, such as the resources of its pod on Kubernetes.
        hooks: Functions that Dagster calls when the op succeeds or fails.
        prefix: What the names of the op and of its resource begin with, such as `prod__`.
    """
    resource = f"{prefix}streams"
    specs = stream_specs(pipeline, translator or StreamTranslator(), target)
    streams = {specs[stream.name].key: stream for stream in pipeline}

    @multi_asset(
        # Two underscores: no pipeline, and so no job, can have this name.
        name=f"{prefix}{pipeline.name}__streams",
        description=pipeline.description,
        specs=list(specs.values()),
        check_specs=[spec for key, stream in streams.items() for spec in check_specs(stream, key, target)],
        can_subset=True,
        required_resource_keys={resource},
        pool=pool,
        retry_policy=retry_policy,
        op_tags=op_tags,
        hooks=hooks,
    )
    def run_streams(context: AssetExecutionContext) -> Iterator[Event]:
        streams: StreamsResource = getattr(context.resources, resource)
        yield from streams.run(context, pipeline)

    return run_streams


def pipeline_job(
    pipeline: "Pipeline",
    assets: "AssetsDefinition | Iterable[AssetKey]",
    *,
    target: "Target | None" = None,
    retry_policy: "RetryPolicy | None" = None,
    run_tags: Mapping[str, str] | None = None,
    hooks: "AbstractSet[HookDefinition] | None" = None,
    prefix: str = "",
) -> "UnresolvedAssetJobDefinition":
    """Return the job that runs a whole pipeline, in one process: one JVM per step would take longer.

    Args:
        pipeline: The pipeline.
        assets: Its assets, or their keys.
        target: The target, which the runs are tagged with.
        retry_policy: Retries the op; one of the assets takes precedence.
        run_tags: Further tags of the runs, such as a priority or a limit of their duration.
        hooks: Functions that Dagster calls when the op succeeds or fails.
        prefix: What the name of the job begins with, such as `prod__`.
    """
    return define_asset_job(
        f"{prefix}{pipeline.name}",
        selection=AssetSelection.assets(*([assets] if isinstance(assets, AssetsDefinition) else assets)),
        description=pipeline.description,
        executor_def=in_process_executor,
        run_tags={**job_tags(None if target is None else target.name, pipeline.name), **(run_tags or {})},
        op_retry_policy=retry_policy,
        hooks=hooks,
    )


def checks_job(
    pipeline: "Pipeline",
    assets: "AssetsDefinition | Iterable[AssetKey]",
    *,
    target: "Target | None" = None,
    prefix: str = "",
) -> "UnresolvedAssetJobDefinition":
    """Return the job that evaluates the checks of a pipeline without running a stream, and without a JVM.

    Args:
        assets: Its assets, or their keys.
    """
    return define_asset_job(
        # Two underscores: no pipeline, and so no other job, can have this name.
        f"{prefix}{pipeline.name}__checks",
        selection=AssetSelection.checks_for_assets(
            *([assets] if isinstance(assets, AssetsDefinition) else assets)
        ),
        description=f"The checks of {pipeline.name}, without a run of its streams.",
        executor_def=in_process_executor,
        run_tags=job_tags(None if target is None else target.name, pipeline.name),
    )


def _outputs(context: Context) -> dict[str, AssetKey]:
    """Return the assets of the op that are streams, by the names of the streams."""
    if not context.has_assets_def:
        return {}
    return {
        str(spec.metadata[STREAM]): spec.key for spec in context.assets_def.specs if STREAM in spec.metadata
    }


def _inputs(context: Context, key: AssetKey) -> dict[str, list[AssetKey]]:
    """Return the assets that a stream reads, by source; none in an op that does not own the stream's asset.

    Only dependencies of the asset count: what renames keys after the translator may leave the metadata behind.
    """
    if key not in _outputs(context).values():
        return {}
    spec = context.assets_def.get_asset_spec(key)
    known = {dep.asset_key.to_user_string(): dep.asset_key for dep in spec.deps}
    inputs = {
        name: [known.get(asset) for asset in assets] for name, assets in spec.metadata.get(INPUTS, {}).items()
    }
    return {name: [asset for asset in assets if asset] for name, assets in inputs.items() if all(assets)}


def _cancel(context: Context, results: "list[StreamResult]") -> None:
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
    context: Context,
    key: AssetKey,
    known: "Mapping[StreamName, Stream]",
    result: "StreamResult",
    target: "Target",
) -> Iterator[Event]:
    """Yield one stream's result as Dagster events, which Dagster records at once."""
    now, stream = datetime.now(UTC), known[result.stream]
    names = _selected_checks(context, key)
    results = evaluate(stream, target, now, result=result, names=names, streams=known)
    checks = [as_dagster(check, key) for check in results]
    for warning in result.warnings:
        context.log.warning("%s: %s", result.stream, warning)
    match result.outcome:
        case "updated":
            context.log.info(
                "%s: %s read, %s written, %s, %.1f s",
                result.stream,
                pluralize(result.total("rows_read"), "row"),
                f"{result.total('rows_written'):,}",
                pluralize(len(result.batches), "batch"),
                result.seconds,
            )
            yield MaterializeResult(
                asset_key=key,
                metadata=result_metadata(result, now, target.lake, _inputs(context, key)),
                check_results=checks,
                # Without it, Dagster derives a version from the code and the feeds, which new rows do not change.
                data_version=DataVersion(f"{result.generation}.{result.table_version}"),
            )
            return
        case "idle" if stream.record_idle:
            yield MaterializeResult(
                asset_key=key,
                metadata=idle_metadata(result, now),
                check_results=checks,
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


def _selected_checks(context: Context, key: AssetKey) -> list[str] | None:
    """Return the checks of an asset that Dagster selected; None for all, in an op that does not own the asset."""
    if key not in _outputs(context).values():
        return None
    return [check.name for check in context.selected_asset_check_keys if check.asset_key == key]


def _standalone_checks(
    context: Context,
    streams: "Mapping[AssetKey, Stream]",
    known: "Mapping[StreamName, Stream]",
    target: "Target",
) -> Iterator[AssetCheckResult]:
    """Yield the checks that are selected without their asset: they need no run, and no JVM."""
    now = datetime.now(UTC)
    alone = {check.asset_key for check in context.selected_asset_check_keys} - context.selected_asset_keys
    for key in alone & streams.keys():
        names = _selected_checks(context, key)
        checks = evaluate(streams[key], target, now, names=names, streams=known)
        yield from (as_dagster(check, key) for check in checks)


def _raise_for(results: "list[StreamResult]") -> None:
    """Fail the op if a stream failed."""
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
                str(result.stream): {
                    "code": "" if result.error is None else result.error.code,
                    "kind": _kind(result.error),
                    "message": str(result.error),
                }
                for result in failed
            },
        },
        allow_retries=all(result.error is not None and result.error.transient for result in failed),
    )


def _kind(error: TidemillError | None) -> str:
    """Return what distinguishes one error of a stream from another, whatever numbers its message has."""
    return (
        "" if error is None else " ".join(filter(None, (type(error).__name__, error.code, error.error_class)))
    )
