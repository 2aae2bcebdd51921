"""What an op yields about a stream: outputs where the stream is an asset of the op, else events of another asset."""

from collections.abc import Iterator

from dagster import AssetCheckEvaluation, AssetCheckResult, AssetMaterialization, MaterializeResult

Event = MaterializeResult[None] | AssetCheckResult | AssetMaterialization | AssetCheckEvaluation
_DATA_VERSION = "dagster/data_version"


def without_output(event: Event) -> Iterator[Event]:
    """Yield what an op may report about an asset that it does not own."""
    match event:
        case MaterializeResult():
            assert event.asset_key is not None  # noqa: S101 - `_report` sets it
            version = {} if event.data_version is None else {_DATA_VERSION: event.data_version.value}
            yield AssetMaterialization(event.asset_key, metadata=event.metadata, tags=version)
            for check in event.check_results or ():
                yield from without_output(check)
        case AssetCheckResult():
            assert event.asset_key is not None  # noqa: S101 - likewise
            assert event.check_name is not None  # noqa: S101 - likewise
            yield AssetCheckEvaluation(
                asset_key=event.asset_key,
                check_name=event.check_name,
                passed=event.passed,
                metadata=event.metadata,
                severity=event.severity,
                description=event.description,
            )
        case _:
            yield event
