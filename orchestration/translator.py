"""How a stream, and what it reads from outside, becomes a Dagster asset."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dagster import AssetKey, AssetSpec

from orchestration.code_version import code_version
from orchestration.metadata import standing_metadata
from pipelines.streaming import DeltaSource, Feed, FileSource, KafkaSource
from pipelines.streaming.errors import ConfigurationError
from pipelines.streaming.sources import StreamReading
from pipelines.streaming.target import TopicBinding

if TYPE_CHECKING:
    from pipelines.streaming import Pipeline, Stream
    from pipelines.streaming.names import StreamName
    from pipelines.streaming.sources import Source
    from pipelines.streaming.target import Target

EXTERNAL_GROUP = "sources"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamData:
    """A stream, as the translator gets it.

    Attributes:
        stream: The stream.
        inputs: What it reads, as external data or other streams, by their asset keys.
        kinds: The kinds of what it reads from outside: `kafka`, `file` or `deltalake`.
        target: The target; None where assets are made without one.
    """

    stream: "Stream"
    inputs: tuple[AssetKey, ...] = ()
    kinds: frozenset[str] = frozenset()
    target: "Target | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalData:
    """What streams read and none of the pipeline's streams writes.

    Attributes:
        path: What identifies it: `("feed", "ad-clicks")`, `("kafka", <cluster>, <topic>)`,
            `("files", <folders> ...)`, `("delta", <folders> ...)`, or a stream of another pipeline.
        kind: `kafka`, `file` or `deltalake`; None where only the target knows and there is none.
        description: It in a few words.
        metadata: What else is known.
    """

    path: tuple[str, ...]
    kind: str | None = None
    description: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)


class StreamTranslator:
    """Makes asset specs; override `get_asset_spec` to change keys, groups, owners or anything else.

    ```python
    class Ours(StreamTranslator):
        def get_asset_spec(self, data):
            return super().get_asset_spec(data).merge_attributes(tags={"domain": "advertising"})
    ```
    """

    def get_asset_spec(self, data: StreamData | ExternalData) -> AssetSpec:
        """The spec of one asset.

        A key that is changed here is changed wherever other streams depend on it.
        """
        if isinstance(data, ExternalData):
            return AssetSpec(
                AssetKey(list(data.path)),
                description=data.description,
                group_name=EXTERNAL_GROUP,
                kinds={data.kind} if data.kind else set(),
                metadata=data.metadata,
            )
        stream = data.stream
        return AssetSpec(
            AssetKey([stream.name.pipeline, stream.name.stream]),
            deps=data.inputs,
            description=stream.description,
            group_name=stream.name.pipeline,
            kinds={"spark", "deltalake", *data.kinds},
            owners=stream.owners,
            tags=stream.tags,
            code_version=code_version(stream),
            metadata={} if data.target is None else standing_metadata(stream.name, data.target.lake),
            skippable=True,
        )


def stream_specs(
    pipeline: "Pipeline", translator: StreamTranslator, target: "Target | None"
) -> dict["StreamName", AssetSpec]:
    """The specs of a pipeline's streams; each is declared after what it reads, so keys are known in time."""
    specs: dict[StreamName, AssetSpec] = {}
    for stream in pipeline:
        inputs: dict[AssetKey, None] = {}
        kinds: set[str] = set()
        for source in stream.sources.values():
            if source.upstream in specs:
                inputs[specs[source.upstream].key] = None
                continue
            for data in external_data(source, target):
                inputs[translator.get_asset_spec(data).key] = None
                kinds |= {data.kind} - {None}  # type: ignore[arg-type]  # the None is gone
        specs[stream.name] = translator.get_asset_spec(
            StreamData(stream=stream, inputs=tuple(inputs), kinds=frozenset(kinds), target=target)
        )
    return specs


def external_assets(
    pipelines: "Iterable[Pipeline]",
    translator: StreamTranslator | None = None,
    *,
    target: "Target | None" = None,
) -> list[AssetSpec]:
    """One spec for each feed, topic, folder and table that streams read from outside, each once.

    Args:
        pipelines: All pipelines of the code location; two may read one feed.
        translator: How assets are made.
        target: The target; without it nobody knows whether a feed is a topic or a folder.
    """
    translator = translator or StreamTranslator()
    specs = {}
    for pipeline in pipelines:
        for stream in pipeline:
            for source in stream.sources.values():
                if source.upstream is None:
                    for data in external_data(source, target):
                        spec = translator.get_asset_spec(data)
                        specs[spec.key] = spec
    return list(specs.values())


def external_data(source: "Source", target: "Target | None") -> "Iterator[ExternalData]":
    """What a source reads, topic by topic; a reading of another stream is that stream."""
    match source:
        case StreamReading():
            yield ExternalData(path=(source.stream.pipeline, source.stream.stream))
        case Feed():
            yield _feed(source, target)
        case KafkaSource():
            topics = source.subscribe or tuple(source.assign) or (source.subscribe_pattern or "",)
            for topic in topics:
                yield ExternalData(
                    path=("kafka", source.cluster, topic),
                    kind="kafka",
                    description=f"Kafka topic {topic} on {source.cluster}.",
                )
        case FileSource():
            yield ExternalData(
                path=("files", *_parts(source.path)), kind="file", description=f"{source.describe()}."
            )
        case DeltaSource():
            yield ExternalData(
                path=("delta", *_parts(source.path)),
                kind="deltalake",
                description=f"Delta table {source.path}.",
            )
        case _:
            yield ExternalData(path=("source", source.describe()), description=source.describe())


def _feed(feed: Feed, target: "Target | None") -> ExternalData:
    kind, metadata = None, {}
    if target is not None:
        try:
            binding = target.binding(feed.name)
        except ConfigurationError:
            # A target may bind the feeds of some pipelines only; the run of this stream says what is missing.
            pass
        else:
            kind = "kafka" if isinstance(binding, TopicBinding) else "file"
            metadata = {"tidemill/binding": str(binding)}
    return ExternalData(
        path=("feed", feed.name), kind=kind, description=f"Feed {feed.name}.", metadata=metadata
    )


def _parts(path: str) -> list[str]:
    """The folders of a path or an address, as parts of an asset key."""
    return [part for part in path.replace("://", "/").split("/") if part]
